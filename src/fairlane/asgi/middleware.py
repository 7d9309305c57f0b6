"""The middleware: every HTTP request waits its fair turn before the application sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

from fairlane.asgi.gate import FairGate, GateOptions
from fairlane.asgi.inbox import Inbox
from fairlane.asgi.protocol import ASGIApp, Scope, Send, header
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.asgi.refusal import RefusedRequest, refused_with, render_json
from fairlane.asgi.stats import GateStats
from fairlane.errors import InvalidArgument, UnavailableError
from fairlane.scheduler import Key, Priority

DEFAULT_KEY = "default"
DEADLINE_MAX_MS = 86_400_000

KeyOf: TypeAlias = Callable[[Scope], Key | None]


class FairQueue:
    """An ASGI middleware that puts every HTTP request through a fair queue.

    WebSockets and the lifespan pass through untouched. A request that gets its turn holds a slot until the application
    returns, raises or is cancelled. One that does not is answered here, and the application never runs.

    Attributes:
        app: the application behind the queue.
        gate: what the requests go through, with its statistics and live changes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        gate: FairGate | None = None,
        key: str | KeyOf = "x-tenant",
        cost: Callable[[Scope], int] | None = None,
        priority: Callable[[Scope], Priority] | None = None,
        throttles: Callable[[Scope], Sequence[str]] | None = None,
        deadline_header: str | None = "x-deadline-ms",
        exempt: Callable[[Scope], bool] | None = None,
        on_refusal: Callable[[Scope, RefusedRequest], ASGIApp] = render_json,
        **options: Unpack[GateOptions],
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            gate: the gate to go through, to share it or to reach it later; without it the options make a new one.
            key: the header that names the fairness key, or a function of the scope that returns it. Without a value the
                key is ``"default"``. The function may raise ``InvalidArgument`` to have the request answered with 400.
            cost: what serving the request costs; 1 if not given.
            priority: its rank among the requests of its key; normal if not given.
            throttles: names of the throttles that must all have a token before it goes.
            deadline_header: the header in which a client says how many milliseconds it will wait for its turn; None to
                ignore what clients say.
            exempt: tells which requests do not queue, such as health checks.
            on_refusal: makes the response to a request that is refused, as an ASGI application. The response objects of
                Starlette and FastAPI are such applications.
            **options: see ``FairGate``.

        Raises:
            InvalidArgument: both a gate and options for a new one are given.
        """
        if gate is not None and options:
            raise InvalidArgument(f"A gate is given, so {', '.join(options)} must be given to the gate.")
        self.app = app
        self.gate = gate if gate is not None else FairGate(**options)
        self._key_of: KeyOf = key if callable(key) else _header_reader(key)
        self._cost_of = cost
        self._priority_of = priority
        self._throttles_of = throttles
        self._deadline_header = deadline_header
        self._exempt = exempt
        self._on_refusal = on_refusal

    def stats(self) -> GateStats:
        """Return how the gate stands now."""
        return self.gate.stats()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - see ASGIApp
        """Serve one connection."""
        if scope["type"] != "http" or (self._exempt is not None and self._exempt(scope)):
            await self.app(scope, receive, send)
            return
        inbox = Inbox(receive)
        try:
            await self._serve(scope, inbox, send)
        finally:
            inbox.close()

    async def _serve(self, scope: Scope, inbox: Inbox, send: Send) -> None:
        try:
            place = await self._turn(scope, inbox)
        except (InvalidArgument, UnavailableError) as error:
            self.gate.note_refusal(error)
            respond = self._on_refusal(scope, refused_with(error))
            await respond(scope, inbox.receive, send)
            return
        if place is None:
            return
        try:
            await self.app(scope, inbox.receive, send)
        finally:
            self.gate.finish(place)

    async def _turn(self, scope: Scope, inbox: Inbox) -> QueuedRequest | None:
        """Wait for the request's turn. Returns None if the client has left, and raises if the turn will not come."""
        place = self._place(scope)
        self.gate.enter(place)
        if not place.is_decided:
            is_here = False
            try:
                is_here = await inbox.wait_for(place.turn(asyncio.get_running_loop()))
            finally:
                if not is_here:
                    self.gate.abandon(place)
            if not is_here:
                return None
        if place.error is not None:
            raise place.error
        self.gate.begin()
        return place

    def _place(self, scope: Scope) -> QueuedRequest:
        return self.gate.place(
            self._key_of(scope) or DEFAULT_KEY,
            cost=1 if self._cost_of is None else self._cost_of(scope),
            priority=Priority.NORMAL if self._priority_of is None else self._priority_of(scope),
            throttles=() if self._throttles_of is None else self._throttles_of(scope),
            wait_max_ms=self._client_wait_max_ms(scope),
        )

    def _client_wait_max_ms(self, scope: Scope) -> int | None:
        name = self._deadline_header
        text = None if name is None else header(scope, name)
        if text is None:
            return None
        # Ten digits are more than the limit has, and few enough for any of them to be read.
        if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= DEADLINE_MAX_MS:  # noqa: PLR2004
            return int(text)
        raise InvalidArgument(
            f"The header {name} must be a whole number of milliseconds from 0 to {DEADLINE_MAX_MS}, not {text[:40]!r}."
        )


def _header_reader(name: str) -> KeyOf:
    def read(scope: Scope) -> Key | None:
        return header(scope, name)

    return read
