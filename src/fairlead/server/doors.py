"""What all doors share: the broker, who may call, what is counted, and whether the server goes down."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fairlead.broker.aio import AsyncBroker
from fairlead.broker.requests import Reply
from fairlead.errors import Closed, FairleadError, Forbidden, InternalError
from fairlead.journal.records import AnyRecord
from fairlead.model.limits import PAYLOAD_BYTES_MAX
from fairlead.server.asgi import Scope, header
from fairlead.server.callers import ANYBODY, Caller
from fairlead.server.dispatch import HANDLERS, NEW_WORK, Answer, check_rights
from fairlead.server.keys import KeyRing
from fairlead.server.verbs.quick import QUICK
from fairlead.wire.verbs import Shape

Listener: TypeAlias = Callable[[Sequence[AnyRecord]], None]
_log = logging.getLogger("fairlead.server")
_ROOM_FOR_THE_REST = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What one caller may take at once.

    Attributes:
        body_bytes_max: bytes in one request, or in one message of the stream.
        calls_max: calls in flight on one connection of the stream; more are not read until one is answered.
        connections_max: connections of the stream, and HTTP requests that stream deliveries, at the same time.
        wait_ms_max: how long a request over HTTP may wait for messages or room.
    """

    body_bytes_max: int = PAYLOAD_BYTES_MAX + _ROOM_FOR_THE_REST
    calls_max: int = 1024
    connections_max: int = 4096
    wait_ms_max: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}.")


@dataclass(slots=True)
class Tally:
    """What has been counted since the server was started."""

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    commits: int = 0
    streams: int = 0
    subscriptions: int = 0


class Doors:
    """What HTTP and the stream are opened upon."""

    def __init__(
        self,
        broker: AsyncBroker,
        *,
        keys: KeyRing | None = None,
        limits: DoorLimits | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self.broker = broker
        self.hosts = hosts
        """The names under which the server may be called where no keys are asked for; None for any."""
        self.keys = keys if keys is not None else KeyRing(broker)
        self.limits = limits if limits is not None else DoorLimits()
        self.tally = Tally()
        self.draining = asyncio.Event()
        """Set when the server goes down: no new work is taken, what has begun may be finished."""
        self.closing = asyncio.Event()
        """Set a while later: every connection is to end now."""
        self.listeners: set[Listener] = set()
        """Who is told of every commit."""
        broker.add_tap(self._on_commit)

    def _on_commit(self, records: Sequence[AnyRecord], _now_ms: int) -> None:
        self.tally.commits += 1
        for listener in list(self.listeners):
            listener(records)

    async def call(self, name: str, request: Shape, caller: Caller) -> Answer:
        """Do what a verb says.

        Raises:
            FairleadError: it was refused; nothing else is ever raised, but for being cancelled.
        """
        try:
            self._admit(name, request, caller)
            return await HANDLERS[name](self.broker, request, caller)
        except Exception as error:
            refusal = self.refusal(name, error)
            if refusal is error:
                raise
            raise refusal from error

    def ask(self, name: str, request: Shape, caller: Caller, reply: Reply) -> None:
        """Let a quick verb be done, whose outcome goes to a reply; what the reply refuses is to be counted by it.

        Raises:
            FairleadError: it was refused at once.
        """
        try:
            self._admit(name, request, caller)
            self.broker.submit(QUICK[name].ask(request, reply))
        except Exception as error:
            refusal = self.refusal(name, error)
            if refusal is error:
                raise
            raise refusal from error

    def _admit(self, name: str, request: Shape, caller: Caller) -> None:
        self.tally.calls[name] += 1
        self.check_open(name)
        check_rights(name, request, caller)

    def refusal(self, name: str, error: BaseException) -> FairleadError:
        """Return the error by which a verb is refused that has failed, and count it."""
        refusal = error if isinstance(error, FairleadError) else self.fault(name, error)
        self.tally.errors[refusal.code] += 1
        return refusal

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
        if name in NEW_WORK and self.draining.is_set():
            raise Closed("The server is going down.")

    @staticmethod
    def fault(name: str, error: BaseException) -> InternalError:
        """Note a fault of ours in the log, and return it as an error that says no more than a caller should know."""
        _log.error("The verb %s failed.", name, exc_info=error)
        return InternalError(f"The verb {name} failed: {type(error).__name__}.")

    # ------------------------------------------------------------------------------------------------------ going down

    def dismiss_waiters(self) -> None:
        """Let everybody go with nothing who waits for messages."""
        for waiter in self.broker._engine.dispatcher.everybody():
            if not waiter.reply.done():
                waiter.reply.set_result([])

    async def nothing_leased(self) -> None:
        """Wait until nothing is leased, or until the connections are to end anyway."""
        committed = asyncio.Event()

        def listener(_records: Sequence[AnyRecord]) -> None:
            committed.set()

        self.listeners.add(listener)
        try:
            while not self.closing.is_set() and any(view.leased for view in await self.broker.queues()):
                tasks = [asyncio.ensure_future(event.wait()) for event in (committed, self.closing)]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                committed.clear()
        finally:
            self.listeners.discard(listener)
