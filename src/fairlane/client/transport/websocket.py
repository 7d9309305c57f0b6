"""The transport over a WebSocket: one connection for all calls and channels, made anew when it is lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from websockets.exceptions import InvalidStatus, WebSocketException

from fairlane.client.retrying import Retries
from fairlane.client.tracing import current_trace
from fairlane.client.transport.connection import Link
from fairlane.client.transport.protocol import OnLate, Reply, Sink
from fairlane.client.transport.socket import PING_S
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    Forbidden,
    InvalidArgument,
    Unauthenticated,
)
from fairlane.model.limits import PAYLOAD_BYTES_MAX
from fairlane.model.message import Delivery
from fairlane.verbs.leases import Lease
from fairlane.verbs.verb import Shape
from fairlane.wire.frames import Consume
from fairlane.wire.trace import TraceContext

PATH: Final = "/v1/stream"
FOLLOWS: Final = "x-fairlane-follows"
"""The header of a handshake by which a client says that it goes itself to the node that owns a queue."""
_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
FRAME_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (8 << 20)
"""Bytes in one request: what a server takes by default."""
_UNAUTHENTICATED, _FORBIDDEN = 401, 403
_LOST: Final = (OSError, TimeoutError, WebSocketException)


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
        frame_bytes_max: int = FRAME_BYTES_MAX,
        follows: bool = False,
        on_late: OnLate | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare, without connecting yet. Arguments are those of ``AsyncClient``.

        Args:
            url: the server's address.
            api_key: who we are.
            timeout: how many seconds to wait for a connection or an answer.
            retries: how long to go on trying to connect.
            tls: how to verify a server at an address with ``wss`` or ``https``, and who we are.
            frame_bytes_max: bytes in one request.
            follows: whether a node of a cluster is to say who owns a queue, rather than to ask it for us.
            on_late: gets what was leased for somebody who does not wait for it any more. By default it is given back.
            headers: further headers of the handshake.
        """
        self.address = url
        self._url = stream_url(url)
        self._frame_bytes_max = frame_bytes_max
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._headers |= headers or {}
        if follows:
            self._headers[FOLLOWS] = "1"
        self._timeout = timeout
        self._retries = retries or Retries()
        self._tls = tls
        self._on_late = on_late
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._is_closed = False
        self._ping_s = PING_S
        self._connect_s = timeout

    def hasten(self, *, connect_s: float, ping_s: float) -> None:
        """Find out sooner from now on that this server does not answer, because there are others to ask."""
        self._connect_s = min(connect_s, self._timeout)
        self._ping_s = ping_s

    @property
    def is_live(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None and self._link.is_live

    async def ready(self) -> None:
        """Connect, unless there is a connection.

        Raises:
            Disconnected, Unauthenticated, Forbidden: there is nobody who answers, or not to us.
        """
        await self._linked()

    async def connect(self) -> None:
        """Connect at once or not at all; see ``Transport``."""
        if self._is_closed:
            raise Closed("The client has been closed.")
        self._link = await self._connect()

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0, trace: TraceContext | None = None) -> Any:  # noqa: ANN401 - see Transport
        """Return the answer to a request; see ``Transport``."""
        link = self._link
        if link is None or not link.is_live:
            link = await self._linked()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeout_s = self._timeout + wait_ms / 1000
        link.call(verb, request, reply, timeout_s=timeout_s, trace=trace if trace is not None else current_trace())
        try:
            return await reply
        except asyncio.CancelledError:
            if isinstance(request, Lease):
                link.withdraw(reply)
            raise

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        """Send a request at once, if that can be done; see ``Transport``. It may speak for many, so it has no trace."""
        link = self._link
        if link is None or not link.is_live:
            return False
        link.call(verb, request, reply, timeout_s=self._timeout + wait_ms / 1000, at_once=True)
        return True

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
            with suppress(asyncio.CancelledError, FairlaneError):
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
        return await asyncio.shield(self._connecting)

    async def _reconnect(self) -> Link:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retries.patience_s
        for wait_s in self._retries.waits_s():
            try:
                self._link = await self._connect()  # here, since whoever waits for it may have gone
            except Disconnected:
                if loop.time() + wait_s > until:
                    raise
            else:
                return self._link
            await asyncio.sleep(wait_s)
        raise AssertionError("waits never end")

    async def _connect(self) -> Link:
        link = Link(frame_bytes_max=self._frame_bytes_max, on_late=self._on_late)
        try:
            async with asyncio.timeout(self._connect_s):
                await link.connect(self._url, headers=self._headers, tls=self._tls, ping_s=self._ping_s)
        except InvalidStatus as error:
            raise _refusal(error, self._url) from error
        except _LOST as error:
            raise Disconnected(f"There is no connection to {self._url}: {error or 'it took too long'}.") from error
        return link


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


def _refusal(error: InvalidStatus, url: str) -> FairlaneError:
    status = error.response.status_code
    if status == _UNAUTHENTICATED:
        return Unauthenticated(f"{url} does not know this API key.")
    if status == _FORBIDDEN:
        return Forbidden(f"{url} does not let this caller in.")
    return Disconnected(f"{url} answered with HTTP status {status}.")
