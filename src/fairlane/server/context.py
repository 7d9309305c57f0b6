"""What the interfaces of one server share: the gateway, API keys, limits, counts, and whether the server shuts down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from fairlane.broker.waiting.room import Room
from fairlane.errors import Closed, FairlaneError, Forbidden, InternalError, RateLimited, Unauthenticated
from fairlane.gateway.caller import ANYBODY, Caller, check_before_reading, check_rights
from fairlane.gateway.context import CallContext, with_context
from fairlane.gateway.leases import leased_unless
from fairlane.gateway.protocol import Answer, Gateway
from fairlane.journal.records import AnyRecord
from fairlane.server.access_log import AccessLog
from fairlane.server.addresses import Network, block_of
from fairlane.server.api_keys import ApiKeys
from fairlane.server.connections import SCOPE_KEY, CallsInProgress, Connections, OpenConnection
from fairlane.server.interfaces.asgi import Headers, Scope, address_of
from fairlane.server.limits import CallLimits
from fairlane.server.live.recorder import HistoryRecorder
from fairlane.server.live.viewers import Viewers
from fairlane.server.metrics.calls import CallCounts
from fairlane.server.metrics.scrape import KEYS_MAX, QUEUES_MAX, Metrics
from fairlane.server.origins import check_host_once, check_origin
from fairlane.server.rate_limits import RateLimits
from fairlane.server.refusals import RefusalLog
from fairlane.server.tracing.spans import Spans
from fairlane.server.waiters import CallerWaits
from fairlane.server.watchdog import Watchdog
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.verb import Reply, Request, Verb
from fairlane.wire.headers import FORWARDED
from fairlane.wire.spin import LoopSpin

Listener: TypeAlias = Callable[[Sequence[AnyRecord]], None]
OwnVerb: TypeAlias = Callable[[Any, Caller], Coroutine[Any, Any, Answer]]
_KNOWN_HOSTS_MAX: Final = 64
_log = logging.getLogger("fairlane.server")


class ServerContext:
    """What HTTP, the stream and gRPC are served from."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        api_keys: ApiKeys | None = None,
        limits: CallLimits | None = None,
        hosts: frozenset[str] | None = None,
        trusted_proxies: Sequence[Network] = (),
        spans: Spans | None = None,
        reports: Path | None = None,
        metrics_queues_max: int = QUEUES_MAX,
        metrics_keys_max: int = KEYS_MAX,
        watchdog: Watchdog | None = None,
    ) -> None:
        observed = gateway.observed
        self.gateway = gateway
        self.observed = observed
        """What is served here, for observers."""
        self.reports = reports
        """The folder with the results of the data pipeline, if there is one."""
        self.spans = spans
        """Traces every call; None unless tracing is on."""
        self.hosts = hosts
        """The host names that requests may name while authentication is disabled; None for any."""
        self._known_hosts: set[str] = set()  # Host headers that were allowed
        self.api_keys = api_keys if api_keys is not None else ApiKeys(observed)
        self.limits = limits if limits is not None else CallLimits()
        self.connections = Connections(self.limits, trusted=trusted_proxies)
        """The open connections, where our own server accepts them."""
        self.grpc_calls = CallsInProgress(self.limits)
        self.waiters = CallerWaits(self.limits.waiters_per_caller_max)
        """What each caller waits for."""
        self._room = Room(self.limits.unread_total_bytes_max)
        self._rooms: WeakValueDictionary[str, Room] = WeakValueDictionary()  # by API key; connections keep them
        self.tally = CallCounts()
        self.metrics = Metrics(
            observed,
            watchdog=watchdog if watchdog is not None else Watchdog(),
            queues_max=metrics_queues_max,
            keys_max=metrics_keys_max,
        )
        self.recorder = HistoryRecorder(observed, self.metrics.fold, queues_max=metrics_queues_max)
        """Records what the queues did in the last hour and day, while its task runs."""
        rate = self.limits.requests_per_second
        self.rates = None if rate is None else RateLimits(rate, self.limits.requests_burst, now_ms=observed.now_ms)
        """Limits how often each caller may ask; None without a limit."""
        self.failures = RateLimits(
            self.limits.auth_failures_per_second, self.limits.auth_failures_per_second * 10, now_ms=observed.now_ms
        )
        """Limits how often each address may fail to authenticate."""
        self.refusals = RefusalLog(self.limits.refusals_logged_per_second, now_ms=observed.now_ms)
        """Logs refused requests."""
        self.spin: LoopSpin | None = None
        """Keeps the loop awake after a lone request; None where that is not wanted."""
        self.access: AccessLog | None = None
        """Logs all calls; None unless the operator wants that."""
        self.draining = asyncio.Event()
        """Set when the server shuts down: it takes no new work, and finishes work in progress."""
        self.closing = asyncio.Event()
        """Set after the drain: every connection ends now."""
        self.tls_renewals = 0
        """How often the TLS files were read again."""
        self.listeners: set[Listener] = set()
        """Called with the records of every commit."""
        self.viewers = Viewers(observed, self.listeners)
        """The viewers of the live feed."""
        self.lessees: set[object] = set()
        """Connections that have leased messages with the verb, which they may still acknowledge while draining."""
        self._background: set[asyncio.Task[None]] = set()
        self._own: Mapping[str, OwnVerb] = {
            "create_key": self.api_keys.create,
            "list_keys": self.api_keys.shown,
            "revoke_key": self.api_keys.revoke,
        }
        observed.add_tap(self._on_commit)

    def log_calls(self) -> None:
        """Log all calls from now on."""
        self.access = AccessLog(self.limits.calls_logged_per_second, now_ms=self.observed.now_ms)

    def _on_commit(self, records: Sequence[AnyRecord], now_ms: int) -> None:
        self.metrics.fold.note(records, now_ms)
        for listener in list(self.listeners):
            listener(records)

    # ----------------------------------------------------------------------------------------------------------- calls

    async def call(self, request: Request[Any], caller: Caller, context: CallContext) -> Answer:
        """Return the answer to a request.

        Raises:
            FairlaneError: the request was refused. Nothing else is ever raised, except on cancellation.
        """
        verb = request.verb
        try:
            if self.spans is not None:
                return await self._traced(self.spans, verb, request, caller, context)
            return await self._begin(verb, request, caller, context)
        except Exception as error:
            refusal = self.refusal(verb.name, error)
            if refusal is error:
                raise
            raise refusal from error

    def ask(
        self, request: Request[Any], caller: Caller, context: CallContext, reply: Reply
    ) -> asyncio.Task[None] | None:
        """Send the answer to a request to a reply, which passes the errors that it gets to ``refusal``.

        Returns the task that finds the answer, if it takes one; see ``Gateway.ask``.

        Raises:
            FairlaneError: the request was refused at once.
        """
        verb = request.verb
        if self.spans is not None or verb.name in self._own:
            return asyncio.create_task(self._reply(verb, request, caller, context, reply))
        try:
            self._check(verb, request, caller)
            if context.correlation_id is not None or context.trace is not None:
                request = with_context(request, context)
            return self.gateway.ask(request, caller, context, reply)
        except Exception as error:
            refusal = self.refusal(verb.name, error)
            if refusal is error:
                raise
            raise refusal from error

    async def _reply(
        self, verb: Verb, request: Request[Any], caller: Caller, context: CallContext, reply: Reply
    ) -> None:
        """Answer a call that is traced, or that the server answers itself."""
        try:
            if self.spans is not None:
                answer = await self._traced(self.spans, verb, request, caller, context)
            else:
                answer = await self._begin(verb, request, caller, context)
        except Exception as error:  # noqa: BLE001 - the reply passes it on
            if not reply.done():
                reply.set_exception(error)
            return
        if not reply.done():
            reply.set_result(answer)
        elif isinstance(answer, LeasedMessages):
            self.give_back(caller, answer)

    async def _traced(
        self, spans: Spans, verb: Verb, request: Request[Any], caller: Caller, context: CallContext
    ) -> Answer:
        span = spans.begin(verb.name, request, context)
        try:
            answer = await self._begin(verb, request, caller, context)
        except Exception as error:
            span.refused(self._explained(verb.name, error))
            raise
        else:
            span.done(answer)
            return answer
        finally:
            span.end()

    def _begin(self, verb: Verb, request: Request[Any], caller: Caller, context: CallContext) -> Awaitable[Answer]:
        self._check(verb, request, caller)
        own = self._own.get(verb.name)
        if own is not None:
            return own(request, caller)
        if context.correlation_id is not None or context.trace is not None:
            request = with_context(request, context)
        if caller.id is not None and isinstance(request, Lease) and request.wait_ms:
            return self._lease_while_valid(request, caller, context)
        return self.gateway.call(request, caller, context)

    def _check(self, verb: Verb, request: Request[Any], caller: Caller) -> None:
        self.tally.calls[verb.name] += 1
        if verb.is_new_work and self.draining.is_set():
            self.check_open()
        if caller.grants is not None:
            check_rights(verb, request, caller)

    async def _lease_while_valid(self, request: Lease, caller: Caller, context: CallContext) -> Answer:
        """Lease messages for as long as the API key of the caller is valid."""
        leasing = _awaited(self.gateway.call(request, caller, context))
        leased = await leased_unless(partial(self.give_back, caller), leasing, self.api_keys.ended(caller))
        if leased is None:
            raise Unauthenticated(f"API key {caller.name!r} has been revoked or has expired.")
        return leased

    def refusal(self, name: str, error: BaseException) -> FairlaneError:
        """Return the error that a caller sees when a call failed. Our bugs are logged, and shown without details."""
        if not isinstance(error, FairlaneError):
            _log.error("Unexpected error in %s.", name, exc_info=error)
        return self._explained(name, error)

    def explained(self, error: FairlaneError) -> FairlaneError:
        """Return an error as callers see it; see ``Gateway.explained``."""
        return error if self.closing.is_set() else self.gateway.explained(error)

    def _explained(self, name: str, error: BaseException) -> FairlaneError:
        if isinstance(error, FairlaneError):
            return self.explained(error)
        return InternalError(f"The server failed to answer {name}: {type(error).__name__}.")

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background that no caller waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def give_back(self, caller: Caller, leased: LeasedMessages) -> None:
        """Return messages to their queue that were leased for a caller who is gone."""
        if leased.deliveries:
            self.gateway.give_back(leased.deliveries[0].queue, leased.deliveries, caller)

    # --------------------------------------------------------------------------------------------------------- callers

    def caller(self, headers: Headers, scope: Scope) -> Caller:
        """Return who makes a request over HTTP or opens a stream, and count its connection against that caller.

        A node of this cluster asks in the name of a caller, whose API key is checked as if the caller had come itself.
        No one else may use the header of nodes; after this it can be relied on.

        Raises:
            Unauthenticated: an API key is required, and the request has none that is valid.
            RateLimited: too many requests from its address had no valid API key.
            TooManyConnections: the caller has too many connections.
            Forbidden: the request comes from a page of another site (see ``origins``), or pretends to come from a node.
            InvalidArgument: it names several hosts.
        """
        if FORWARDED in headers and not self.gateway.is_node(headers[FORWARDED]):
            raise Forbidden(f"Only nodes of this cluster may send {FORWARDED.decode()}.")
        if len(headers) != len(scope["headers"]):
            check_host_once(scope["headers"])
        connection: OpenConnection | None = scope.get(SCOPE_KEY)
        if self.api_keys.is_required:
            try:
                caller = self.api_keys.caller(headers.get(b"authorization"))
            except Unauthenticated as error:
                self.count_failure(address_of(scope), error)
                raise
        else:
            if b"origin" in headers or headers.get(b"host", "") not in self._known_hosts:
                check_origin(headers, scope.get("scheme", "http"), self.hosts)
                if len(self._known_hosts) < _KNOWN_HOSTS_MAX:
                    self._known_hosts.add(headers.get(b"host", ""))
            caller = ANYBODY
        if connection is not None and connection.api_key != caller.id:
            self.connections.claim(connection, caller)
        return caller

    def count_failure(self, address: str | None, error: Unauthenticated) -> None:
        """Count a request without a valid API key against its address.

        Only the request itself is refused. Others from the address may come through the same proxy, so a valid API key
        is served whatever the count is.

        Raises:
            RateLimited: there were too many such requests from the address.
        """
        self.tally.auth_failures += 1
        holder = block_of(address)
        retry_after_ms = self.failures.retry_after_ms(holder)
        if retry_after_ms is None:
            self.failures.allows(holder)
            return
        most = self.limits.auth_failures_per_second
        cause = f"Too many requests from this address had no valid API key; auth_failures_per_second is {most}."
        raise RateLimited(cause, retry_after_ms=retry_after_ms) from error

    def admit(self, caller: Caller, address: str | None) -> None:
        """Count a request of a caller. Raises RateLimited if the caller makes requests too often."""
        if self.rates is not None:
            self.rates.check(caller.id or block_of(address))

    def check_before_reading(self, verb: Verb, caller: Caller) -> None:
        """Refuse a caller that has no right to any request of a verb, before one is read or decoded.

        Raises:
            Forbidden: see ``gateway.caller.check_before_reading``.
        """
        if caller.grants is None:
            return
        try:
            check_before_reading(verb, caller)
        except Forbidden:
            self.tally.calls[verb.name] += 1
            raise

    def room(self, caller: Caller) -> Room:
        """Return the room of a new connection, for what it is sent and has not read.

        All connections of an API key share half of what all connections have, so that one tenant that reads nothing
        does not keep large answers from the others.
        """
        shared: Room | None = self._room
        if caller.id is not None:
            shared = self._rooms.get(caller.id)
            if shared is None:
                shared = self._rooms[caller.id] = Room(self.limits.unread_total_bytes_max // 2, shared=self._room)
        return Room(self.limits.unread_bytes_max, shared=shared)

    def check_open(self) -> None:
        """Raise Closed for new work while the server shuts down."""
        if self.draining.is_set():
            raise Closed("The server is shutting down.")

    @contextmanager
    def subscription(self, holder: str | None) -> Iterator[None]:
        """Count a request whose answer is a stream, for as long as it lasts.

        Raises:
            TooManyWaiters: its caller waits for ``waiters_per_caller_max`` things already.
        """
        with self.waiters.counted(holder):
            self.tally.subscriptions += 1
            try:
                yield
            finally:
                self.tally.subscriptions -= 1


async def _awaited(answering: Awaitable[Answer]) -> Answer:
    return await answering
