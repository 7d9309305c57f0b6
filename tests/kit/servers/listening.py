"""A server in this process that listens on loopback, for tests that send bytes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from fairlane.assembly import AsyncBroker, open_async_broker
from fairlane.gateway.caller import Caller
from fairlane.gateway.local import LocalGateway
from fairlane.server.api_keys import ApiKeys
from fairlane.server.context import ServerContext
from fairlane.server.http_server import HttpServer
from fairlane.server.limits import CallLimits
from fairlane.server.listener import listen
from fairlane.server.settings import ServerSettings
from fairlane.verbs.keys import CreateKey, Grant
from tests.kit.waiting import PATIENCE_S, until

_ADMIN = CreateKey(name="tester", grants=(Grant(right="admin"),))


@dataclass
class Answered:
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = msgspec.json.decode(self.body)["error"]["code"]
        return code


@dataclass
class Wire:
    """The client's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def rest(self) -> bytes:
        """Return everything until the server closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionError:
            return b""

    async def answer(self) -> Answered:
        """Return the next answer, which has a length."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        first, *lines = head.decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answered(int(first.split()[1]), headers, body)

    async def ask(self, path: str, body: object = None, *, key: str | None = None) -> Answered:
        """Return the answer to a request of a verb, or of a page if there is no body."""
        self.send(request_of(path, body, key=key))
        return await self.answer()


def request_of(path: str, body: object = None, *, key: str | None = None, headers: str = "") -> bytes:
    """Return the bytes of a request."""
    data = b"" if body is None else msgspec.json.encode(body)
    method = "GET" if body is None else "POST"
    lines = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{headers}"
    lines += "" if body is None else "Content-Type: application/json\r\n"
    lines += "" if key is None else f"Authorization: Bearer {key}\r\n"
    return lines.encode() + b"\r\n" + data


class Listening:
    """A server that listens."""

    def __init__(self, context: ServerContext, broker: AsyncBroker, port: int) -> None:
        self.context = context
        self.broker = broker
        self.port = port
        self._wires: list[Wire] = []

    async def connect(self) -> Wire:
        """Return a new connection."""
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port))
        self._wires.append(wire)
        return wire

    async def key(self, name: str = "tester") -> str:
        """Return a new API key with all rights."""
        request = msgspec.structs.replace(_ADMIN, name=name)
        return (await self.context.api_keys.create(request, Caller())).key

    def hang_up(self) -> None:
        """Close all connections of the client."""
        for wire in self._wires:
            wire.writer.transport.abort()


@asynccontextmanager
async def listening(
    limits: CallLimits | None = None, *, requires_auth: bool = False, settings: ServerSettings | None = None
) -> AsyncIterator[Listening]:
    """Serve a broker in memory with one queue, ``orders``, while the context lasts."""
    settings = replace(settings or ServerSettings(), port=0, limits=limits or CallLimits())
    async with await open_async_broker() as broker:
        await broker.create_queue("orders")
        keys = ApiKeys(broker, is_required=requires_auth)
        context = ServerContext(LocalGateway(broker), api_keys=keys, limits=settings.limits)
        listener = listen(settings)
        server = HttpServer(context, settings, listener)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started, "the server listens")
        opened = Listening(context, broker, listener.getsockname()[1])
        try:
            yield opened
        finally:
            opened.hang_up()
            server.should_exit = True
            await serving
