"""The middleware: every HTTP request waits for its turn before the application sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Unpack

from fairlane.asgi.gate import FairGate, GateOptions
from fairlane.asgi.inbox import Inbox
from fairlane.asgi.protocol import ASGIApp, Scope, Send, header
from fairlane.asgi.queued_request import QueuedRequest, attach
from fairlane.asgi.refusal import RefusedRequest, refused_with, render_json
from fairlane.asgi.statistics import GateStats
from fairlane.errors import InvalidArgument, UnavailableError
from fairlane.scheduler import Key, Priority

DEFAULT_KEY = "default"
DEADLINE_MAX_MS = 86_400_000

KeyOf: TypeAlias = Callable[[Scope], Key | None]


class FairQueue:
    """An ASGI middleware that puts every HTTP request through a fair queue.

    WebSocket and lifespan connections pass through unchanged. A request that gets its turn holds a slot until the
    application returns, raises or is cancelled. A request that does not is answered here, and the application never
    runs.

    Attributes:
        app: the application behind the queue.
        gate: the gate, for statistics and live changes.
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
            gate: an existing gate, to share it or to change it later; by default a new one is created from the options.
            key: the header that names the fairness key, or a function of the scope that returns it. Without a value the
                key is ``"default"``. The function may raise ``InvalidArgument`` to answer the request with 400.
            cost: returns the cost of a request; 1 by default.
            priority: returns the priority of a request among those of its key; normal by default.
            throttles: returns the names of the throttles that must all have a token before a request runs.
            deadline_header: the header with the milliseconds that a client will wait for its turn; None to ignore it.
            exempt: returns whether a request bypasses the queue, such as a health check.
            on_refusal: returns the response to a refused request as an ASGI application. The response objects of
                Starlette and FastAPI are such applications.
            **options: see ``FairGate``.

        Raises:
            InvalidArgument: both a gate and options for a new one are given.
        """
        if gate is not None and options:
            raise InvalidArgument(f"A gate was given: {', '.join(options)} must be given to the gate instead.")
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
        """Return the current statistics of the gate."""
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
            request = await self._turn(scope, inbox)
        except (InvalidArgument, UnavailableError) as error:
            self.gate.note_refusal(error)
            respond = self._on_refusal(scope, refused_with(error))
            await respond(scope, inbox.receive, send)
            return
        if request is None:
            return
        try:
            await self.app(scope, inbox.receive, send)
        finally:
            self.gate.finish(request)

    async def _turn(self, scope: Scope, inbox: Inbox) -> QueuedRequest | None:
        """Wait for the request's turn. Return None if the client has left; raise if the request is refused."""
        request = self._request(scope)
        self.gate.enter(request)
        if not request.is_decided:
            is_here = False
            try:
                is_here = await inbox.wait_for(request.turn(asyncio.get_running_loop()))
            finally:
                if not is_here:
                    self.gate.abandon(request)
            if not is_here:
                return None
        if request.error is not None:
            raise request.error
        self.gate.begin(request)
        attach(scope, request)
        return request

    def _request(self, scope: Scope) -> QueuedRequest:
        return self.gate.create_request(
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
        # Ten digits exceed the limit, and bound the cost of int() for hostile input.
        if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= DEADLINE_MAX_MS:  # noqa: PLR2004
            return int(text)
        raise InvalidArgument(
            f"The header {name} must be an integer from 0 to {DEADLINE_MAX_MS} (milliseconds), got {text[:40]!r}."
        )


def _header_reader(name: str) -> KeyOf:
    def read(scope: Scope) -> Key | None:
        return header(scope, name)

    return read
