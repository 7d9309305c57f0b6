"""Drives an ASGI application by hand, on an event loop whose time advances only when nothing else can happen."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlane.asgi import FairGate, FairQueue
from fairlane.asgi.protocol import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

_TURNS_OF_THE_LOOP_MAX = 10_000


class Clock:
    """Virtual time in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class _Selector(selectors.DefaultSelector):
    """Moves the clock to the end of each wait instead of waiting."""

    clock: Clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "Everything waits, and nothing will ever happen."
            if timeout > 0:
                self.clock.now_ms += max(1, round(timeout * 1000))
        return events


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        selector = _Selector()
        selector.clock = self.clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self.clock.now_ms / 1000


def run(clock: Clock, scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario to its end in virtual time, and raise any error of a callback."""
    errors: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        runner.get_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        result = runner.run(scenario)
    assert errors == []
    return result


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, without time passing."""
    for _ in range(_TURNS_OF_THE_LOOP_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("The condition never held.")


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class Request:
    """A request in progress, whose client side the test controls."""

    def __init__(self, app: ASGIApp, path: str, headers: dict[str, str], body: Sequence[bytes] | None) -> None:
        self.sent: list[Message] = []
        self.inbound: asyncio.Queue[Message] = asyncio.Queue()
        for chunk in body or ():
            self.send_body(chunk, more=True)
        if body is None:
            self.send_body(b"", more=False)
        scope: Scope = {
            "type": "http",
            "path": path,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(_call(app, scope, self.inbound.get, self._send))

    def send_body(self, chunk: bytes, *, more: bool) -> None:
        self.inbound.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def disconnect(self) -> None:
        self.inbound.put_nowait({"type": "http.disconnect"})

    async def response(self) -> Response:
        await self.task
        start, *rest = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], headers, b"".join(message["body"] for message in rest))

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


class Stage:
    """An application that records the requests it starts, and holds each until it is released."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running = 0
        self.running_max = 0
        self._held: dict[str, asyncio.Event] = {}
        self._is_open = False

    def let_go(self, name: str) -> None:
        self._held[name].set()

    def open(self) -> None:
        self._is_open = True
        for held in self._held.values():
            held.set()

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        name = scope["path"].strip("/")
        held = self._held[name] = asyncio.Event()
        if self._is_open:
            held.set()
        self.started.append(name)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            await held.wait()
        finally:
            self.running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": name.encode()})


class FairService:
    """An application behind a fair queue, and clients for it. A request's tenant is the first letter of its name."""

    def __init__(self, queue: FairQueue, stage: Stage) -> None:
        self.queue = queue
        self.stage = stage

    @property
    def gate(self) -> FairGate:
        return self.queue.gate

    def send(self, name: str, *, body: Sequence[bytes] | None = None, **headers: str) -> Request:
        named = {"x-tenant": name[0]} | {key.replace("_", "-"): value for key, value in headers.items()}
        return Request(self.queue, f"/{name}", named, body)

    async def send_waiting(self, *names: str) -> list[Request]:
        """Send requests one after the other, each when the one before is queued or running."""
        requests = []
        for name in names:
            before = self._arrived()
            requests.append(self.send(name))
            await until(lambda before=before: self._arrived() > before)  # type: ignore[misc]
        return requests

    def _arrived(self) -> int:
        stats = self.gate.stats()
        return stats.waiting + stats.granted + stats.disconnected + sum(stats.refused.values())

    async def started(self, *names: str) -> None:
        """Wait until exactly these requests have been started, in this order."""
        await until(lambda: len(self.stage.started) >= len(names))
        assert self.stage.started == list(names)

    async def drained(self) -> None:
        """Release all requests, and wait until none is left."""
        self.stage.open()
        await until(lambda: self.gate.stats().in_flight == 0 and self.gate.stats().waiting == 0)
