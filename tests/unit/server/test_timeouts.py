"""Connections that send nothing, or too slowly, are closed; those that make progress are not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from fairlane.server.interfaces.http_connection import HttpConnection
from fairlane.server.limits import CallLimits
from tests.kit.servers.listening import listening, request_of
from tests.kit.waiting import pass_loop, until
from tests.unit.server.local_server import run

SOON_MS = 300
"""Longer than a busy machine takes from a connection to the bytes that a test sends at once."""
SOON = CallLimits(head_timeout_ms=SOON_MS, body_timeout_ms=SOON_MS, idle_timeout_ms=SOON_MS)
NEVER = 3_600_000
HEAD = "POST /v1/queue/stats HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("", "head_timeout"),
        ("POST /v1/que", "head_timeout"),
        (HEAD, "head_timeout"),
        (UPGRADE, "head_timeout"),
        ("\r\n", "head_timeout"),
        (HEAD + "Authorization: Bearer {key}\r\nContent-Length: 9\r\n\r\n", "body_timeout"),
        (HEAD + "Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{{", "body_timeout"),
        (HEAD + "Content-Length: 9\r\n\r\n", "body_timeout"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "idle_timeout"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n", "idle_timeout"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea", "head_timeout"),
    ],
    ids=[
        "nothing",
        "half a request line",
        "half the headers",
        "half a WebSocket handshake",
        "an empty line",
        "no body",
        "half a chunk",
        "no body, no key",
        "idle",
        "idle after an empty line",
        "half a second request",
    ],
)
def test_a_silent_connection_is_closed(sent: str, reason: str) -> None:
    """Wherever a client stops sending, the server closes the connection and counts why."""

    async def main() -> None:
        soon = {f"{name}_timeout_ms": NEVER for name in ("head", "body", "idle")} | {f"{reason}_ms": SOON_MS}
        async with listening(CallLimits(**soon), requires_auth=True) as server:
            wire = await server.connect()
            wire.send(sent.format(key=await server.key()).encode())
            await wire.rest()
            assert dict(server.context.connections.closed) == {reason: 1}
            await until(lambda: not len(server.context.connections), "the connection is no longer counted")

    run(main())


@pytest.mark.parametrize(
    ("sent", "setting"),
    [(HEAD, "head_timeout_ms, 300"), (HEAD + "Content-Length: 9\r\n\r\n{", "body_bytes_per_second_min, 1024")],
)
def test_a_late_request_is_answered(sent: str, setting: str) -> None:
    """A client that has begun a request learns with 408 which setting it exceeded."""

    async def main() -> None:
        async with listening(SOON) as server:
            wire = await server.connect()
            wire.send(sent.encode())
            answer = await wire.answer()
            assert answer.status == 408
            assert setting in answer.body.decode()
            assert await wire.rest() == b""

    run(main())


class VirtualLoop:
    """The running loop with timers of its own, which fire when the test says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now_s = 0.0
        self._timers: list[asyncio.TimerHandle] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._now_s + delay_s, callback, (), self._loop)
        self._timers.append(timer)
        return timer

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work)

    def advance(self, seconds: float) -> None:
        """Fire the timers of a time."""
        self._now_s += seconds
        due = [timer for timer in self._timers if timer.when() <= self._now_s]
        self._timers = [timer for timer in self._timers if timer.when() > self._now_s]
        for timer in due:
            if not timer.cancelled():
                timer._run()


class Ends(asyncio.Transport):
    """A transport that notes what is written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


def test_a_body_may_be_slow_but_not_too_slow() -> None:
    """A body lasts as long as each interval brings the least rate, and ends with the first that does not."""

    async def reads(_scope: object, receive: Callable[[], Awaitable[dict[str, Any]]], _send: object) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def main() -> None:
        loop, transport = VirtualLoop(), Ends()
        config = uvicorn.Config(reads, lifespan="off", log_config=None)
        given: Any = {"config": config, "server_state": ServerState(), "app_state": {}, "_loop": loop}
        connection = HttpConnection(**given)
        connection.connection_made(transport)
        connection.data_received(HEAD.encode() + b"Content-Length: 1000000\r\n\r\n")
        for _ in range(30):  # five minutes
            connection.data_received(b"x" * 10_240)
            await pass_loop(3)  # the application takes it
            loop.advance(10)
            assert not transport.is_closed
        connection.data_received(b"x" * 10_239)
        await pass_loop(3)
        loop.advance(10)
        assert transport.is_closed
        assert transport.written.startswith(b"HTTP/1.1 408")
        connection.connection_lost(None)
        await pass_loop(3)

    run(main())


def test_waiting_for_an_answer_is_not_silence() -> None:
    """A long poll outlives all timeouts, because the request has arrived as a whole."""

    async def main() -> None:
        async with listening(SOON) as server:
            wire = await server.connect()
            wire.send(request_of("/v1/queue/lease", {"queue": "orders", "wait_ms": 30_000}))
            other = await server.connect()
            await other.rest()  # it is closed for its silence, so the timeout has passed
            await server.broker.enqueue("orders", b"x")
            answer = await wire.answer()
            assert (answer.status, b'"deliveries":[{' in answer.body) == (200, True)

    run(main())


def test_requests_sent_ahead_are_not_late() -> None:
    """While a long poll keeps the server from reading, a half request behind it is not late; afterwards it is."""

    async def main() -> None:
        async with listening(replace(SOON, idle_timeout_ms=NEVER)) as server:
            wire = await server.connect()
            poll = request_of("/v1/queue/lease", {"queue": "orders", "wait_ms": 30_000})
            ahead = request_of("/healthz")
            wire.send(poll + ahead + ahead[:20])
            other = await server.connect()
            await other.rest()
            await server.broker.enqueue("orders", b"x")
            assert [(await wire.answer()).status for _ in range(3)] == [200, 200, 408]

    run(main())
