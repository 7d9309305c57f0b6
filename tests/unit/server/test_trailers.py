"""What follows the head of a request without being its body is bounded: trailers, and extensions of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn.server import ServerState

from fairlane.server.interfaces.http_connection import HttpConnection
from fairlane.server.interfaces.request_head import HEAD_BYTES_MAX
from tests.kit.servers.listening import listening, request_of
from tests.kit.waiting import PATIENCE_S, pass_loop
from tests.unit.server.local_server import run
from tests.unit.server.test_timeouts import Ends

CHUNKED = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
UNANSWERED, ANSWERED = CHUNKED.format("/v1/queue/stats"), CHUNKED.format("/healthz").replace("POST", "GET")
BODY = b'12\r\n{"queue":"orders"}\r\n'
SENT_BYTES_MAX = 64 * HEAD_BYTES_MAX
"""What a test sends at most; the buffers of the network hold less."""
FLOODS = {
    "many trailers": (b"0\r\n", b"a:\r\n"),
    "a long trailer": (b"0\r\na: ", b"x" * 100),
    "a long extension of a chunk": (b"5;a=", b"x" * 100),
}


async def flooded(port: int, start: bytes, flood: bytes, *, after_answer: bool) -> tuple[bytes, int]:
    """Send the same piece again and again until the connection ends; return what came back, and the bytes sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(start)
    received = await reader.readuntil(b"\r\n\r\n") if after_answer else b""
    sent, piece = 0, flood * (HEAD_BYTES_MAX // 4 // len(flood))
    try:
        while sent < SENT_BYTES_MAX and not reader.at_eof():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        received += await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionError:
        pass
    writer.transport.abort()
    return received, sent


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("head", [UNANSWERED, ANSWERED], ids=["before the answer", "after the answer"])
def test_a_flood_behind_the_head_ends_the_connection(head: str, flood: str) -> None:
    """Without an API key or with one, a client can't send more than a head's worth of bytes that are no body."""

    async def main() -> None:
        async with listening() as server:
            first, more = FLOODS[flood]
            start, is_answered = head.encode() + BODY + first, head == ANSWERED
            _, sent = await flooded(server.port, start, more, after_answer=is_answered)
            assert sent < SENT_BYTES_MAX
            assert dict(server.context.connections.closed) == {"malformed": 1}

    run(main())


def connected(app: Callable[..., Awaitable[None]]) -> tuple[HttpConnection, Ends]:
    """Return a connection of an application, and its transport."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    loop = asyncio.get_running_loop()
    given: Any = {"config": config, "server_state": ServerState(), "app_state": {}, "_loop": loop}
    connection, transport = HttpConnection(**given), Ends()
    connection.connection_made(transport)
    return connection, transport


async def waits(_scope: object, receive: Callable[[], Awaitable[dict[str, Any]]], _send: object) -> None:
    """Wait until the connection ends."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def begins(_scope: object, receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Begin an answer, and wait until the connection ends."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await waits(None, receive, None)  # type: ignore[arg-type] # as it was given


def test_a_client_learns_why_unless_its_answer_has_begun() -> None:
    """A refusal in the middle of an answer would be read as a part of it."""

    async def main() -> None:
        for app, status in ((waits, b"HTTP/1.1 431"), (begins, b"")):
            connection, transport = connected(app)
            connection.data_received(UNANSWERED.encode())
            await pass_loop(3)
            begun = transport.written
            connection.data_received(b"0\r\na: " + b"x" * (HEAD_BYTES_MAX + 1))
            assert transport.is_closed
            refusal = transport.written[len(begun) :]
            assert refusal.startswith(status)
            assert bool(refusal) == bool(status)
            connection.connection_lost(None)
            await pass_loop(3)

    run(main())


def test_trailers_are_not_headers() -> None:
    """Neither the request nor the next one of the connection gets headers from behind its body."""

    async def main() -> None:
        async with listening(requires_auth=True) as server:
            wire, key = await server.connect(), await server.key()
            head = UNANSWERED.replace("\r\n\r\n", f"\r\nAuthorization: Bearer {key}\r\n\r\n").encode()
            wire.send(head + BODY + f"0\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            assert (await wire.answer()).status == 200
            wire.send(request_of("/v1/queue/stats", {"queue": "orders"}))
            assert (await wire.answer()).status == 401

        connection, _ = connected(waits)
        connection.data_received(UNANSWERED.encode() + BODY + b"0\r\n" + b"a: b\r\n" * 1_000)
        assert len(connection.headers) == UNANSWERED.count(": ")
        connection.connection_lost(None)
        await pass_loop(3)

    run(main())


def test_a_body_in_tiny_chunks_is_no_flood() -> None:
    """However much the chunks of a body add to it, each of them is progress."""

    async def main() -> None:
        async with listening() as server:
            wire = await server.connect()
            wire.send(UNANSWERED.encode() + b"1;a=b\r\n \r\n" * HEAD_BYTES_MAX + BODY + b"0\r\n\r\n")
            assert (await wire.answer()).status == 200

    run(main())


def test_the_parser_reports_trailers_as_headers() -> None:
    """The parser calls ``on_header`` for trailers too, which is why our connection has to drop them."""
    seen = []

    class Noted:
        def on_header(self, name: bytes, value: bytes) -> None:
            seen.append((name, value))

    httptools.HttpRequestParser(Noted()).feed_data(UNANSWERED.encode() + BODY + b"0\r\na: b\r\n\r\n")
    assert seen[-1] == (b"a", b"b")
