"""The WebSocket transport: one connection for all calls and channels, which reconnects when it is lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

try:
    from websockets.exceptions import InvalidStatus, WebSocketException
except ImportError as missing:
    raise ImportError("The client needs the package websockets: install fairlane[client].") from missing

from fairlane.client.retries import Retries
from fairlane.client.tracing import current_trace
from fairlane.client.transport.blocking import BlockingSocket
from fairlane.client.transport.connection import Connection
from fairlane.client.transport.protocol import OnLate, Sink
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
from fairlane.model.trace import TraceContext
from fairlane.verbs.leases import Lease
from fairlane.verbs.status import WATCHING
from fairlane.verbs.verb import AnyAnswer, Reply, Shape
from fairlane.wire.frames import COLUMNS, SUBPROTOCOL, Consume

PATH: Final = "/v1/stream"
FOLLOWS: Final = "x-fairlane-follows"
"""The handshake header of clients that find the node of a queue themselves."""
_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
FRAME_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (8 << 20)
"""The largest request in bytes that a server accepts by default."""
_UNAUTHENTICATED, _FORBIDDEN = 401, 403
_LOST: Final = (OSError, TimeoutError, WebSocketException)


class WebSocketChannel:
    """A channel on one connection."""

    def __init__(self, connection: Connection, number: int, *, timeout_s: float) -> None:
        self._connection = connection
        self._number = number
        self.timeout_s_s = timeout_s

    async def stop(self, unseen: Sequence[Delivery]) -> None:
        """Close the channel; see ``Channel``."""
        await self._connection.stop(self._number, [delivery.id for delivery in unseen], timeout_s=self.timeout_s_s)

    async def widen(self, handlers: int) -> None:
        """Change the number of handlers; see ``Channel``."""
        self._connection.widen(self._number, handlers)


class WebSocketTransport:
    """Sends calls over a WebSocket, and reconnects when necessary; see ``Transport``.

    Attributes:
        address: the server's address, as it was given.
        is_plain: whether the connection is without TLS.
        frame_bytes_max: largest request in bytes.
        timeout_s: seconds to wait for an answer.
    """

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
        """Create a transport without connecting yet.

        Args:
            url: the server's address.
            api_key: the API key.
            timeout: seconds to wait for a connection or an answer.
            retries: how long to retry a connection.
            tls: the TLS context for a ``wss`` or ``https`` address.
            frame_bytes_max: largest request in bytes.
            follows: whether a node should answer with the owner of a queue instead of forwarding the request.
            on_late: called with messages that were leased for a caller that is gone. By default they are returned.
            headers: additional headers of the handshake.
        """
        self.address = url
        self._url = stream_url(url)
        self.frame_bytes_max = frame_bytes_max
        self.timeout_s = timeout
        self.is_plain = self._url.startswith("ws:")
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._headers |= headers or {}
        if follows:
            self._headers[FOLLOWS] = "1"
        self._retries = retries or Retries()
        self._tls = tls
        self._on_late = on_late
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self._ping_s = PING_S
        self._connect_s = timeout

    def hasten(self, *, connect_s: float, ping_s: float) -> None:
        """Detect an unresponsive server sooner, because there are other nodes to try."""
        self._connect_s = min(connect_s, self.timeout_s)
        self._ping_s = ping_s

    def renew_tls(self, tls: ssl.SSLContext | None) -> None:
        """Use another TLS context when the connection is opened again."""
        self._tls = tls

    @property
    def is_live(self) -> bool:
        """Whether the transport is connected."""
        return self._connection is not None and self._connection.is_live

    def connect_blocking(self) -> BlockingSocket:
        """Return another connection to the same server, for threads. Errors of the network are raised as they are."""
        return BlockingSocket(
            self._url,
            headers=self._headers,
            subprotocols=(COLUMNS, SUBPROTOCOL),
            timeout_s=self._connect_s,
            ping_s=self._ping_s,
        )

    async def ready(self) -> None:
        """Connect, unless the transport is connected.

        Raises Disconnected if no server answers. Raises Unauthenticated or Forbidden if the server refuses the API key.
        """
        await self._connected()

    async def connect(self) -> None:
        """Connect without retries; see ``Transport``."""
        if self._is_closed:
            raise Closed("The client is closed.")
        self._connection = await self._connect()

    async def call(
        self, verb: str, request: Shape, *, wait_ms: int = 0, trace: TraceContext | None = None
    ) -> AnyAnswer:
        """Return the answer to a request; see ``Transport``."""
        connection = self._connection
        if connection is None or not connection.is_live:
            connection = await self._connected()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        timeout_s = self.timeout_s + wait_ms / 1000
        connection.call(
            verb, request, reply, timeout_s=timeout_s, trace=trace if trace is not None else current_trace()
        )
        try:
            return await reply
        except asyncio.CancelledError:
            if isinstance(request, (Lease, *WATCHING)):
                connection.withdraw(reply)
            raise

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        """Send a request now, if connected; see ``Transport``. It may combine several calls, so it carries no trace."""
        connection = self._connection
        if connection is None or not connection.is_live:
            return False
        connection.call(verb, request, reply, timeout_s=self.timeout_s + wait_ms / 1000, at_once=True)
        return True

    async def open(self, request: Consume, sink: Sink) -> WebSocketChannel:
        """Open a channel; see ``Transport``."""
        connection = await self._connected()
        number = await connection.open(request, sink, timeout_s=self.timeout_s)
        return WebSocketChannel(connection, number, timeout_s=self.timeout_s)

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError, FairlaneError):
                await self._connecting
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> Connection:
        if self._is_closed:
            raise Closed("The client is closed.")
        if self._connection is not None and self._connection.is_live:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._reconnect())
        return await asyncio.shield(self._connecting)

    async def _reconnect(self) -> Connection:
        # It is set here, since all callers may have been cancelled meanwhile.
        self._connection = await self._retries.until_answered(self._connect)
        return self._connection

    async def _connect(self) -> Connection:
        connection = Connection(frame_bytes_max=self.frame_bytes_max, on_late=self._on_late)
        try:
            async with asyncio.timeout(self._connect_s):
                await connection.connect(self._url, headers=self._headers, tls=self._tls, ping_s=self._ping_s)
        except InvalidStatus as error:
            raise _refusal(error, self._url) from error
        except _LOST as error:
            raise Disconnected(f"Cannot connect to {self._url}: {error or 'timed out'}.") from error
        return connection


def stream_url(url: str) -> str:
    """Return the URL of a server's stream. Raises InvalidArgument if the address is not valid."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise InvalidArgument(
            f"Invalid server address {url!r}; expected a URL such as ws://127.0.0.1:7420 or https://queue.example."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))


def _refusal(error: InvalidStatus, url: str) -> FairlaneError:
    status = error.response.status_code
    if status == _UNAUTHENTICATED:
        return Unauthenticated(f"{url} requires a valid API key.")
    if status == _FORBIDDEN:
        return Forbidden(f"{url} refuses this caller.")
    return Disconnected(f"{url} answered with HTTP status {status}.")
