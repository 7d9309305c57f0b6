"""A server without a network: the interfaces on a broker in memory, called in the same process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import msgspec

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.assembly import AsyncBroker, open_async_broker
from fairlane.broker.engine.engine import Engine
from fairlane.broker.settings import Settings
from fairlane.gateway.caller import Caller
from fairlane.gateway.local import LocalGateway
from fairlane.server.api_keys import ApiKeys
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.asgi import DIRECT_SOCKET
from fairlane.server.interfaces.http import HttpInterface
from fairlane.server.limits import CallLimits
from fairlane.server.live.history import QUEUES_MAX
from fairlane.server.receiving.arrivals import Reservation
from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.verbs.keys import CreateKey, Grant
from fairlane.wire.frames import (
    COLUMNS,
    SUBPROTOCOL,
    Answer,
    Call,
    Deliver,
    Ended,
    FromServer,
    Refused,
    frames_of,
    message_of,
)

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine."""
    return asyncio.run(main)


class LocalServer:
    """The server, and an HTTP client in front of it."""

    def __init__(self, context: ServerContext, broker: AsyncBroker, http: httpx.AsyncClient) -> None:
        self.context = context
        self.broker = broker
        self.http = http

    async def post(self, path: str, body: object = None, *, key: str | None = None, **headers: str) -> httpx.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            fields["authorization"] = f"Bearer {key}"
        return await self.http.post(f"/v1/{path}", json={} if body is None else body, headers=fields)

    async def key(self, *grants: Grant, expires_ms: int | None = None) -> str:
        request = CreateKey(name="tester", grants=grants, expires_ms=expires_ms)
        return (await self.context.api_keys.create(request, Caller())).key


async def _broker(clock: FakeClock | None, settings: Settings) -> AsyncBroker:
    if clock is None:
        return await open_async_broker(settings=settings)
    hooks = LuaHooks(lambda _queue, _key: None)
    engine = Engine(MemoryStore(), hooks=hooks, clock=clock, entropy=SeededEntropy(), settings=settings)
    engine.open()
    return AsyncBroker(engine)


@asynccontextmanager
async def opened(
    *,
    requires_auth: bool = False,
    limits: CallLimits | None = None,
    hosts: frozenset[str] | None = None,
    clock: FakeClock | None = None,
    settings: Settings | None = None,
    metrics_queues_max: int = QUEUES_MAX,
) -> AsyncIterator[LocalServer]:
    """Open a server with one queue, ``orders``; its time is the machine's unless a clock is given."""
    async with await _broker(clock, settings or Settings()) as broker:
        keys = ApiKeys(broker, is_required=requires_auth)
        context = ServerContext(
            LocalGateway(broker), api_keys=keys, limits=limits, hosts=hosts, metrics_queues_max=metrics_queues_max
        )
        await broker.create_queue("orders")
        transport = httpx.ASGITransport(app=HttpInterface(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield LocalServer(context, broker, http)


class WatchedEvent(asyncio.Event):
    """An event that also calls a function when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.on_set: Callable[[], None] = lambda: None

    def set(self) -> None:
        super().set()
        self.on_set()


@dataclass
class Socket:
    """The client's end of a WebSocket without a network."""

    incoming: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    outgoing: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    may_write: WatchedEvent = field(default_factory=WatchedEvent)
    is_broken: bool = False
    _last: int = 0
    _ready: deque[FromServer] = field(default_factory=deque)

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send(self, event: Any) -> None:
        await self.may_write.wait()
        if self.is_broken:
            raise ConnectionError("the client has gone")
        self.outgoing.put_nowait(event)

    def call(self, verb: str, request: object) -> int:
        self._last += 1
        self.give(message_of([Call(self._last, verb, msgspec.Raw(msgspec.msgpack.encode(request)))]))
        return self._last

    def give(self, data: bytes) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "bytes": data})

    async def frames(self) -> list[FromServer]:
        """Return the frames of the next message."""
        event = await self.outgoing.get()
        assert event["type"] == "websocket.send", event
        return frames_of(event["bytes"])

    async def frame(self) -> FromServer:
        """Return the next frame."""
        while not self._ready:
            self._ready.extend(await self.frames())
        return self._ready.popleft()

    async def next(self, kind: type[T]) -> T:
        """Return the next frame of a kind; others before it are passed over."""
        while True:
            frame = await self.frame()
            if isinstance(frame, kind):
                return frame

    async def answer(self, verb: str, request: object, kind: type[T]) -> T:
        """Call a verb and return its answer; what comes before it is kept for later."""
        number = self.call(verb, request)
        others: list[FromServer] = []
        while True:
            frame = await self.frame()
            if isinstance(frame, Answer) and frame.number == number:
                self._ready.extendleft(reversed(others))
                return msgspec.msgpack.decode(frame.answer, type=kind)
            assert not isinstance(frame, (Refused, Ended)), frame
            others.append(frame)

    async def deliveries(self, count: int) -> list[Any]:
        """Return a number of deliveries."""
        found: list[Any] = []
        while len(found) < count:
            found += (await self.next(Deliver)).deliveries
        return found


class FakeDirectSocket:
    """The ``DirectSocket`` of a socket: messages by plain calls; other events go to the application's ``receive``."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._rest: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._on_message: Callable[[bytes], None] | None = None
        self.reading = asyncio.create_task(self._read())

    @property
    def has_capacity(self) -> bool:
        return self._socket.may_write.is_set()

    @property
    def is_sending(self) -> bool:
        return False

    @property
    def is_open(self) -> bool:
        if self._socket.is_broken:
            self._rest.put_nowait({"type": "websocket.disconnect", "code": 1006})
        return not self._socket.is_broken

    def take(self, on_message: Callable[[bytes], None], on_capacity: Callable[[], None], _arrival: Reservation) -> None:
        self._on_message = on_message
        self._socket.may_write.on_set = on_capacity

    def write(self, message: bytes) -> None:
        self._socket.outgoing.put_nowait({"type": "websocket.send", "bytes": message})

    def hold(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    async def receive(self) -> dict[str, Any]:
        return await self._rest.get()

    async def _read(self) -> None:
        while True:
            event = await self._socket.incoming.get()
            if self._on_message is None or event.get("bytes") is None:
                self._rest.put_nowait(event)
            else:
                self._on_message(event["bytes"])
            await self._may_read.wait()


@asynccontextmanager
async def connected(
    server: LocalServer, *, key: str | None = None, is_direct: bool = False, has_columns: bool = False
) -> AsyncIterator[Socket]:
    """Open a connection of the stream, with a direct socket if asked for, and hang up at the end."""
    socket = Socket()
    socket.may_write.set()
    headers = [(b"host", b"localhost")]
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    scope = {
        "type": "websocket",
        "path": "/v1/stream",
        "headers": headers,
        "subprotocols": [COLUMNS, SUBPROTOCOL] if has_columns else [SUBPROTOCOL],
        "extensions": {"websocket.http.response": {}},
    }
    receive = socket.receive
    if is_direct:
        direct = scope["extensions"][DIRECT_SOCKET] = FakeDirectSocket(socket)  # type: ignore[index] # it is a dict
        receive = direct.receive
    socket.incoming.put_nowait({"type": "websocket.connect"})
    serving = asyncio.create_task(HttpInterface(server.context)(scope, receive, socket.send))
    assert (await socket.outgoing.get())["type"] == "websocket.accept"
    try:
        yield socket
    finally:
        socket.may_write.on_set = lambda: None
        if is_direct:
            direct.resume()
        socket.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await serving
        if is_direct:
            direct.reading.cancel()
