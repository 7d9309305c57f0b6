"""The transport over a WebSocket: one connection for all calls and channels, made anew when it is lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from fairlead.client.protocol import FRAMES_MAX, Conversation, Sink, message_of
from fairlead.client.retrying import Retries
from fairlead.errors import Closed, Disconnected, FairleadError, Forbidden, InvalidArgument, Unauthenticated
from fairlead.model.message import Delivery
from fairlead.wire.frames import SUBPROTOCOL, Consume
from fairlead.wire.verbs import Shape

PATH: Final = "/v1/stream"
_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_QUEUE_MAX: Final = 256
_SWEEP_S: Final = 0.5
_UNAUTHENTICATED, _FORBIDDEN = 401, 403
T = TypeVar("T")
_LOST: Final = (OSError, TimeoutError, ConnectionClosed, InvalidHandshake)


class Link:
    """One live connection. Frames of one pass of the event loop go in one message."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation()
        self._frames: list[bytes] = []
        self._arrived = asyncio.Event()
        self.is_live = True
        self._sweep = self._loop.call_later(_SWEEP_S, self._expire)
        self._reader = self._loop.create_task(self._read())
        self._writer = self._loop.create_task(self._write())

    def call(self, verb: str, request: Shape, *, timeout_s: float) -> asyncio.Future[Any]:
        """Send a request, and return its future answer."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        due = self._loop.time() + timeout_s
        self._put(_made(lambda: self._conversation.call(verb, request, reply, due=due)))
        return reply

    async def open(self, request: Consume, sink: Sink, *, timeout_s: float) -> int:
        """Open a channel, and return its number."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        due = self._loop.time() + timeout_s
        number, frame = _made(lambda: self._conversation.open(request, reply, sink, due=due))
        self._put(frame)
        await reply
        return number

    async def stop(self, channel: int, unseen: Sequence[str], *, timeout_s: float) -> None:
        """Close a channel."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        frame = self._conversation.stop(channel, unseen, reply, due=self._loop.time() + timeout_s)
        if frame is not None:
            self._put(frame)
            await reply

    async def close(self) -> None:
        """Send what is left, and say goodbye."""
        if self.is_live and self._frames:
            await self._flush()
        await self._socket.close()
        await self._reader

    def _put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._arrived.set()

    async def _write(self) -> None:
        with suppress(ConnectionClosed):  # the reader tells everybody
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._frames:
                    await self._flush()

    async def _flush(self) -> None:
        frames = self._frames[:FRAMES_MAX]
        del self._frames[:FRAMES_MAX]
        await self._socket.send(message_of(frames))

    async def _read(self) -> None:
        cause = "The connection to the server was closed."
        try:
            async for data in self._socket:
                for frame in self._conversation.receive(data):  # type: ignore[arg-type] # text is no msgpack
                    self._put(frame)
        except ConnectionClosed as error:
            cause = f"The connection to the server was lost: {error}."
        except (msgspec.DecodeError, TypeError) as error:
            cause = f"The server sent what this client does not understand: {error}."
            self._socket.transport.abort()
        finally:
            self.is_live = False
            self._sweep.cancel()
            self._writer.cancel()
            self._conversation.lose(Disconnected(cause))

    def _expire(self) -> None:
        self._conversation.expire(self._loop.time())
        self._sweep = self._loop.call_later(_SWEEP_S, self._expire)


class WebSocketChannel:
    """A channel of one connection."""

    def __init__(self, link: Link, number: int, *, timeout_s: float) -> None:
        self._link = link
        self._number = number
        self._timeout_s = timeout_s

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close it; see ``Channel``."""
        await self._link.stop(self._number, [delivery.id for delivery in unseen], timeout_s=self._timeout_s)


class WebSocketTransport:
    """Calls over a WebSocket to a server. It connects anew whenever it has to."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: Retries | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = stream_url(url)
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout = timeout
        self._retries = retries or Retries()
        self._tls = tls
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._is_closed = False

    async def connect(self) -> None:
        """Connect at once or not at all; see ``Transport``."""
        self._link = await self._connect()

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see Transport
        """Return the answer to a request; see ``Transport``."""
        link = self._link
        if link is None or not link.is_live:
            link = await self._linked()
        return await link.call(verb, request, timeout_s=self._timeout + wait_ms / 1000)

    async def open(self, request: Consume, sink: Sink) -> WebSocketChannel:
        """Open a channel; see ``Transport``."""
        link = await self._linked()
        number = await link.open(request, sink, timeout_s=self._timeout)
        return WebSocketChannel(link, number, timeout_s=self._timeout)

    async def close(self) -> None:
        """Let go of the connection."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError, FairleadError):
                await self._connecting
        if self._link is not None:
            await self._link.close()

    async def _linked(self) -> Link:
        if self._is_closed:
            raise Closed("The client has been closed.")
        if self._link is not None and self._link.is_live:
            return self._link
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._reconnect())
        self._link = await asyncio.shield(self._connecting)
        return self._link

    async def _reconnect(self) -> Link:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retries.patience_s
        for wait_s in self._retries.waits_s():
            try:
                return await self._connect()
            except Disconnected:
                if loop.time() + wait_s > until:
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("waits never end")

    async def _connect(self) -> Link:
        try:
            socket = await connect(
                self._url,
                additional_headers=self._headers,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                max_size=None,
                max_queue=_QUEUE_MAX,
                open_timeout=self._timeout,
                ssl=self._tls,
                proxy=None,
            )
        except InvalidStatus as error:
            raise _refusal(error, self._url) from error
        except _LOST as error:
            raise Disconnected(f"There is no connection to {self._url}: {error}.") from error
        return Link(socket)


def stream_url(url: str) -> str:
    """Return the address of the stream of a server whose address is given.

    Raises:
        InvalidArgument: it is no address.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise InvalidArgument(
            f"A server's address is such as ws://127.0.0.1:7420 or https://queue.example, not {url!r}."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))


def _refusal(error: InvalidStatus, url: str) -> FairleadError:
    status = error.response.status_code
    if status == _UNAUTHENTICATED:
        return Unauthenticated(f"{url} does not know this API key.")
    if status == _FORBIDDEN:
        return Forbidden(f"{url} does not let this caller in.")
    return Disconnected(f"{url} answered with HTTP status {status}.")


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"This can't be sent: {error}.") from error
