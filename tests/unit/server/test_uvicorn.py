"""What our server overrides in uvicorn is called: a renamed method would turn a limit off without an error."""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import Server

from fairlane.server.http_server import HttpServer
from fairlane.server.interfaces.http_connection import HttpConnection
from fairlane.server.interfaces.request_head import HEAD_BYTES_MAX, BoundedHeadProtocol
from fairlane.server.interfaces.websocket import QuickSocket
from fairlane.server.limits import CallLimits
from tests.kit.servers.listening import Listening, Wire, listening, request_of
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.local_server import run

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]
OURS: tuple[tuple[type, type], ...] = (
    (HttpConnection, HttpToolsProtocol),
    (BoundedHeadProtocol, HttpToolsProtocol),
    (QuickSocket, WebSocketsSansIOProtocol),
    (HttpServer, Server),
)
"""Our classes, and the classes of uvicorn whose methods they override."""
LARGE = 12 * 1024 * 1024
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE += "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
STREAM = UPGRADE + "Sec-WebSocket-Protocol: fairlane.v1\r\n"


def overrides(ours: type, theirs: type) -> set[str]:
    """Return the methods of uvicorn that a class of ours overrides."""
    return {name for name, value in vars(ours).items() if inspect.isfunction(value) and hasattr(theirs, name)}


def hooks(ours: type) -> set[str]:
    """Return all methods of a class that only uvicorn, asyncio or the parser calls."""
    return {name for name in vars(ours) if name.startswith(("on_", "handle_", "connection_", "data_", "timeout_"))}


def test_uvicorn_is_pinned_to_the_version_that_was_read() -> None:
    """The package asks for one minor version, the one that the tests run with."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [line for line in extras["server"] if line.startswith("uvicorn")] == ["uvicorn>=0.54,<0.55"]
    assert version("uvicorn").startswith("0.54.")


def frame(opcode: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """Return a masked WebSocket frame, with a mask of zeros."""
    return bytes([(0x80 if is_last else 0) | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


async def upgraded(server: Listening, head: str) -> tuple[Wire, bytes]:
    """Return a connection after a WebSocket handshake, and the status line of the answer."""
    wire = await server.connect()
    wire.send(request_of("/v1/stream", headers=head))
    return wire, (await wire.reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]


async def talk(server: Listening) -> None:
    """Send everything that leads to an override."""
    wire = await server.connect()
    assert (await wire.ask("/v1/queue/stats", {"queue": "orders"})).status == 200
    wire.send(b"\r\n")
    assert (await wire.ask("/healthz")).status == 200
    wire.send(b"no request\r\n\r\n")
    assert b"400" in await wire.rest()
    long = await server.connect()
    long.send(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEAD_BYTES_MAX // 5))
    assert b"431" in await long.rest()
    _, refused = await upgraded(server, UPGRADE)  # without our subprotocol
    assert b"400" in refused
    stream, accepted = await upgraded(server, STREAM)
    assert b"101" in accepted
    stream.send(frame(2, b"\x94\x00\x01", is_last=False))
    stream.send(frame(0, b"\xa5stats\x81\xa5queue\xa6orders"))
    assert (await stream.reader.readexactly(2))[0] == 0x82
    await server.broker.enqueue("orders", bytes(LARGE))
    stream.send(frame(2, b"\x94\x00\x02\xa5lease\x81\xa5queue\xa6orders"))
    await asyncio.wait_for(stream.reader.readexactly(LARGE), PATIENCE_S)  # more than the network's buffers hold
    stream.send(frame(3, b""))  # there is no such opcode
    await stream.rest()
    idle = await server.connect()
    assert (await idle.ask("/healthz")).status == 200
    await idle.rest()


def test_every_override_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation over real sockets reaches each method that we override; and each hook of ours is an override."""
    called: set[tuple[str, str]] = set()

    def noted(ours: type, name: str) -> Callable[..., Any]:
        method = vars(ours)[name]

        def note(*args: Any, **kwargs: Any) -> Any:
            called.add((ours.__name__, name))
            return method(*args, **kwargs)

        return note

    expected = set()
    for ours, theirs in OURS:
        names = overrides(ours, theirs) - {"__init__"}
        assert hooks(ours) <= names | {"on_stray_data"}, f"uvicorn no longer has a hook of {ours.__name__}"
        for name in names:
            expected.add((ours.__name__, name))
            monkeypatch.setattr(ours, name, noted(ours, name))

    async def main() -> None:
        async with listening(CallLimits(idle_timeout_ms=2_000)) as server:
            await talk(server)

    run(main())
    assert expected - called == set()
