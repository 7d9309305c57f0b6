"""What all doors share: the broker, who may call, what is counted, and whether the server goes down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.requests import Reply
from fairlane.cluster.forwarding import Heard
from fairlane.cluster.groups import RETRY_AFTER_MS, Groups, Looking
from fairlane.errors import (
    Closed,
    FairlaneError,
    Forbidden,
    InternalError,
    InvalidArgument,
    QueueMoving,
    StoreFenced,
    TooManyWaiters,
    Unauthenticated,
)
from fairlane.gateway.caller import ANYBODY, Caller
from fairlane.gateway.context import Origin, marked
from fairlane.gateway.leases import leased_unless
from fairlane.journal.records import AnyRecord
from fairlane.model.limits import PAYLOAD_BYTES_MAX
from fairlane.model.message import Delivery
from fairlane.server.api_keys import KeyRing
from fairlane.server.dispatch import Answer, check_rights
from fairlane.server.interfaces.asgi import Scope, header
from fairlane.server.live.viewers import Viewers
from fairlane.server.metrics.calls import CallCounts
from fairlane.server.metrics.scrape import KEYS_MAX, QUEUES_MAX, Metrics
from fairlane.server.rate_limits import RequestRates
from fairlane.server.tracing.spans import Spans
from fairlane.verbs.batches import Stage
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.table import NEW_WORK
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import CONSUME

Listener: TypeAlias = Callable[[Sequence[AnyRecord]], None]
_log = logging.getLogger("fairlane.server")
_ROOM_FOR_THE_REST: Final = 8 * 1024 * 1024
_RETRY_AFTER_MS: Final = 1_000
_NOWHERE: Final = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What one caller may take at once.

    Attributes:
        body_bytes_max: bytes in one request, or in one message of the stream.
        calls_max: calls in flight on one connection of the stream; more are not read until one is answered.
        connections_max: connections of the stream, and HTTP requests that stream deliveries, at the same time.
        wait_ms_max: how long a request over HTTP or gRPC may wait for messages or room.
        requests_per_second: how many requests one caller may make in a second: by its key, or by its address where no
            keys are asked for. None for no limit.
        requests_burst: how many of them it may make at once; by default what a second gives.
    """

    body_bytes_max: int = PAYLOAD_BYTES_MAX + _ROOM_FOR_THE_REST
    calls_max: int = 1024
    connections_max: int = 4096
    wait_ms_max: int = 60_000
    requests_per_second: int | None = None
    requests_burst: int | None = None

    def __post_init__(self) -> None:
        for name, made in self.__dataclass_fields__.items():
            value = getattr(self, name)
            if value is None and made.default is None:
                continue
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}.")
        if self.requests_burst is not None and self.requests_per_second is None:
            raise ValueError("requests_burst needs requests_per_second.")

    def check_wait(self, request: Shape) -> None:
        """Refuse a request that would wait too long for one that holds a connection of its own meanwhile.

        Raises:
            InvalidArgument: it would.
        """
        if isinstance(request, (Lease, Enqueue, Stage)) and request.wait_ms > self.wait_ms_max:
            raise InvalidArgument(f"wait_ms is at most {self.wait_ms_max}, not {request.wait_ms}.")


class Router(Protocol):
    """How a node of a cluster answers what may be for others to answer."""

    def call(self, name: str, request: Any, caller: Caller, origin: Origin) -> Awaitable[Answer]:  # noqa: ANN401 - by verb
        """Do what a verb says, here or elsewhere."""

    async def find(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue here.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: none does.
        """

    def give_back(self, queue: str, messages: Sequence[Delivery], caller: Caller) -> None:
        """Let messages go back that were leased for a caller who is gone, wherever their queue is."""

    def grpc_at(self, address: str) -> str | None:
        """Return where the node that is reached at an address has its gRPC, if it has any."""

    def others(self) -> list[str]:
        """Return the addresses of all other nodes that live."""

    def listening(self, address: str, target: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Heard]:
        """Lend what another node answers bit by bit."""


async def _awaited(answering: Awaitable[Answer]) -> Answer:
    return await answering


class Doors:
    """What HTTP and the stream are opened upon."""

    def __init__(
        self,
        broker: AsyncBroker | Groups,
        *,
        keys: KeyRing | None = None,
        limits: DoorLimits | None = None,
        hosts: frozenset[str] | None = None,
        spans: Spans | None = None,
        router: Router | None = None,
        reports: Path | None = None,
        metrics_queues_max: int = QUEUES_MAX,
        metrics_keys_max: int = KEYS_MAX,
    ) -> None:
        self.broker: Looking = broker
        """What is served here, to be looked at."""
        self.one = broker if isinstance(broker, AsyncBroker) else None
        """The broker of all queues; None at a node of a cluster, which has many."""
        self.groups = broker if isinstance(broker, Groups) else None
        """The brokers of a node of a cluster."""
        self.router = router
        """How a node of a cluster comes by the answers of others."""
        self.reports = reports
        """The folder of what the data pipeline has made, if one is named."""
        self.spans = spans
        """Who is told of every call, to trace it; usually nobody."""
        self.hosts = hosts
        """The names under which the server may be called where no keys are asked for; None for any."""
        self.keys = keys if keys is not None else KeyRing(broker)
        self._own: Mapping[str, Callable[[Any, Caller], Awaitable[Answer]]] = {
            "create_key": self.keys.create,
            "list_keys": self.keys.shown,
            "revoke_key": self.keys.revoke,
        }
        self.limits = limits if limits is not None else DoorLimits()
        self.tally = CallCounts()
        self.metrics = Metrics(broker, queues_max=metrics_queues_max, keys_max=metrics_keys_max)
        """What is counted of commits."""
        rate = self.limits.requests_per_second
        self.rates = None if rate is None else RequestRates(rate, self.limits.requests_burst, now_ms=broker.now_ms)
        """How often each caller may ask; None where that is not limited."""
        self.draining = asyncio.Event()
        """Set when the server goes down: no new work is taken, what has begun may be finished."""
        self.closing = asyncio.Event()
        """Set a while later: every connection is to end now."""
        self.listeners: set[Listener] = set()
        """Who is told of every commit."""
        self.viewers = Viewers(broker, self.listeners)
        """Who looks at the live feed."""
        self.lessees: set[object] = set()
        """Connections that have leased by the verb, so that what they have does not go back with them."""
        broker.add_tap(self._on_commit)

    def _on_commit(self, records: Sequence[AnyRecord], now_ms: int) -> None:
        self.metrics.fold.note(records, now_ms)
        for listener in list(self.listeners):
            listener(records)

    async def call(self, name: str, request: Any, caller: Caller, origin: Origin | None = None) -> Answer:  # noqa: ANN401 - by verb
        """Do what a verb says.

        Raises:
            FairlaneError: it was refused; nothing else is ever raised, but for being cancelled.
        """
        span = None if self.spans is None else self.spans.begin(name, request, origin)
        try:
            self._check(name, request, caller)
            if origin is not None:
                request = marked(request, origin)
            if caller.id is not None and isinstance(request, Lease) and request.wait_ms:
                answer = await self._lease_while_good(request, caller, origin)
            else:
                answer = await self._answering(name, request, caller, origin)
        except Exception as error:
            told = self.refusal(name, error)
            if span is not None:
                span.refused(told)
            if told is error:
                raise
            raise told from error
        else:
            if span is not None:
                span.done(answer)
            return answer
        finally:
            if span is not None:
                span.end()

    def _answering(self, name: str, request: Any, caller: Caller, origin: Origin | None) -> Awaitable[Answer]:  # noqa: ANN401 - by verb
        if name in self._own:
            return self._own[name](request, caller)
        if self.one is not None:
            return self.one.call(request, by=caller.name)
        return self._router().call(name, request, caller, origin or _NOWHERE)

    def _router(self) -> Router:
        if self.router is None:
            raise QueueMoving("The node has not joined the cluster yet.", retry_after_ms=_RETRY_AFTER_MS)
        return self.router

    async def broker_of(self, queue: str) -> AsyncBroker:
        """Return the broker that serves a queue here.

        Raises:
            QueueElsewhere, QueueMoving, QueueNotFound: none does.
        """
        return self.one if self.one is not None else await self._router().find(queue)

    def brokers(self) -> list[AsyncBroker]:
        """Return all brokers that are open here."""
        return [self.one] if self.one is not None else self.groups.brokers() if self.groups is not None else []

    def ask(self, name: str, request: Any, caller: Caller, reply: Reply) -> None:  # noqa: ANN401 - by verb
        """Let a quick verb be done, whose outcome goes to a reply; what the reply refuses is to be counted by it.

        Raises:
            FairlaneError: it was refused at once.
        """
        try:
            self._check(name, request, caller)
            broker = self.one if self.one is not None else self._here(request)
            broker.ask(request, reply, by=caller.name)
        except Exception as error:
            refusal = self.refusal(name, error)
            if refusal is error:
                raise
            raise refusal from error

    def _here(self, request: Shape) -> AsyncBroker:
        return cast("Groups", self.groups).of(request.queue)  # type: ignore[attr-defined] # quick verbs are about a queue

    def _check(self, name: str, request: Shape, caller: Caller) -> None:
        self.tally.calls[name] += 1
        self.check_open(name)
        check_rights(name, request, caller)

    def refusal(self, name: str, error: BaseException) -> FairlaneError:
        """Return the error by which a verb is refused that has failed, and count it."""
        refusal = self.told(error) if isinstance(error, FairlaneError) else self.fault(name, error)
        self.tally.errors[refusal.code] += 1
        return refusal

    def told(self, error: FairlaneError) -> FairlaneError:
        """Return an error as callers are told it: where a broker gives up a store, another node has the queue soon."""
        if self.one is None and not self.closing.is_set() and isinstance(error, (Closed, StoreFenced)):
            return QueueMoving("The queue is on its way to another node.", retry_after_ms=RETRY_AFTER_MS)
        return error

    async def _lease_while_good(self, request: Lease, caller: Caller, origin: Origin | None) -> Answer:
        """Lease messages, as long as the caller's key is good."""
        leasing = _awaited(self._answering("lease", request, caller, origin))
        leased = await leased_unless(partial(self.give_back, caller), leasing, self.keys.ended(caller))
        if leased is None:
            raise Unauthenticated(f"The key {caller.name!r} has been revoked, or has expired.")
        return leased

    def give_back(self, caller: Caller, leased: LeasedMessages) -> None:
        """Let messages go back that were leased for a caller who is gone, wherever their queue is."""
        if not leased.deliveries:
            return
        queue = leased.deliveries[0].queue
        if self.router is None:
            self.broker.give_back(queue, leased.deliveries)
        else:
            self.router.give_back(queue, leased.deliveries, caller)

    def admit(self, caller: Caller, address: str | None) -> None:
        """Count a request of a caller.

        Raises:
            RateLimited: it asks too often.
        """
        if self.rates is None:
            return
        try:
            self.rates.check(caller.id or address or "")
        except FairlaneError as error:
            self.tally.errors[error.code] += 1
            raise

    @contextmanager
    def subscription(self) -> Iterator[None]:
        """Count a request that deliveries are streamed to, as long as it lasts.

        Raises:
            TooManyWaiters: there are as many as may be.
        """
        tally = self.tally
        if tally.subscriptions >= self.limits.connections_max:
            cause = f"There are {tally.subscriptions} subscriptions; connections_max is reached."
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        tally.subscriptions += 1
        try:
            yield
        finally:
            tally.subscriptions -= 1

    def caller(self, scope: Scope) -> Caller:
        """Return who makes a request.

        Where no keys are asked for, a page of another site must not be able to call through a browser of this machine:
        it would betray itself by its origin, or by a name of this server that is not one.

        Raises:
            Unauthenticated: a key is asked for, and there is none, or none that is good.
            Forbidden: it comes from a page of another site.
        """
        if self.keys.is_required:
            return self.keys.caller(header(scope, b"authorization"))
        host = header(scope, b"host") or ""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.hosts is not None and name.strip("[]").lower() not in self.hosts:
            raise Forbidden(f"The server is not called {host!r:.100}; it answers to {', '.join(sorted(self.hosts))}.")
        origin = header(scope, b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Forbidden(f"Pages of {origin!r:.100} may not call a server that asks for no keys.")
        return ANYBODY

    def check_open(self, name: str) -> None:
        """Refuse new work when the server goes down.

        Raises:
            Closed: it does.
        """
        if (name in NEW_WORK or name == CONSUME) and self.draining.is_set():
            raise Closed("The server is going down.")

    @staticmethod
    def fault(name: str, error: BaseException) -> InternalError:
        """Note a fault of ours in the log, and return it as an error that says no more than a caller should know."""
        _log.error("The verb %s failed.", name, exc_info=error)
        return InternalError(f"The verb {name} failed: {type(error).__name__}.")
