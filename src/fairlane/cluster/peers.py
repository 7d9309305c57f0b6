"""The other nodes of a cluster, as this one asks them.

A request goes over the stream, as a client would send it: many share one connection, and nothing waits for a request
before it. A connection belongs to one caller, because the other node checks the caller's API key again. Where many
requests of a caller wait at once, they get further connections, so that they stay below the other node's limits.

A lease whose caller leaves while it waits is withdrawn on the same connection, so the other node either ends the wait
or has answered before. What it had leased then is given back.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

try:
    import httpx
except ImportError as error:
    raise ImportError("The server needs httpx: install fairlane[server].") from error

from fairlane.client.retries import Retries
from fairlane.client.transport.websocket import FRAME_BYTES_MAX, WebSocketTransport
from fairlane.errors import Disconnected, NodeInsecure, QueueMoving
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import CallContext
from fairlane.gateway.protocol import Answer, RemoteAnswer
from fairlane.model.message import Delivery
from fairlane.verbs.verb import Request
from fairlane.wire.headers import FORWARDED

_ANSWER_S: Final = 10.0
"""How long an answer may take, besides what the request itself may wait."""
_CONNECT_S: Final = 2.0
_PING_S: Final = 5.0
"""How often a connection is checked, so that a node that is cut off is noticed within its heartbeat timeout."""
_SHARED_MAX: Final = 128
"""Requests in flight on one connection before another is opened."""
_KEPT_MAX: Final = 64
"""Connections that are kept while they are idle."""
_RETRY_AFTER_MS: Final = 250


class _Line:
    """A connection to another node for one caller."""

    __slots__ = ("in_flight", "transport")

    def __init__(self, transport: WebSocketTransport) -> None:
        self.transport = transport
        self.in_flight = 0


class Peers:
    """Connections to other nodes."""

    def __init__(
        self,
        prove: Callable[[str], str],
        *,
        tls: ssl.SSLContext | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Connect to no node yet.

        Args:
            prove: returns what proves to the node at an address that this one asks; see ``node_proofs``.
            tls: verifies nodes at ``https``, and identifies this one; by default the system's authorities verify them.
            frame_bytes_max: bytes in one request.
        """
        self._prove = prove
        self._tls = tls
        self._frame_bytes_max = frame_bytes_max
        self._lines: dict[tuple[str, str | None], list[_Line]] = {}
        self._http: httpx.AsyncClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_late: Callable[[str, list[Delivery], Caller], None] = lambda _queue, _deliveries, _caller: None
        """Called with messages that another node leased for a caller who is gone."""

    def renew_tls(self, tls: ssl.SSLContext | None) -> None:
        """Use another TLS context for new connections; those that are open stay."""
        self._tls = tls
        self._http = None  # it keeps no idle connections, and what is under way ends by itself
        for (address, _), lines in self._lines.items():
            for line in lines:
                line.transport.renew_tls(self._tls_for(address))

    def _tls_for(self, address: str) -> ssl.SSLContext | None:
        return self._tls if address.startswith("https") else None

    async def ask(self, address: str, request: Request[Any], caller: Caller, context: CallContext) -> Answer:
        """Return the answer of the node at an address.

        Raises:
            QueueMoving: the node can't be reached; nothing was done.
            Disconnected: the node did not answer; the request may or may not have been carried out.
            FairlaneError: the node refused the request.
        """
        line = self._line(address, caller)
        line.in_flight += 1
        try:
            if not line.transport.is_live:
                await _connected(line.transport)
            wait_ms = getattr(request, "wait_ms", 0)
            verb = request.verb
            answer: Answer = await line.transport.call(verb.name, request, wait_ms=wait_ms, trace=context.trace)
            return answer
        finally:
            line.in_flight -= 1

    def _line(self, address: str, caller: Caller) -> _Line:
        """Return the connection to use: the least busy, or another one if all are busy."""
        lines = self._lines.setdefault((address, caller.authorization), [])
        line = min(lines, key=lambda line: line.in_flight, default=None)
        if line is None or line.in_flight >= _SHARED_MAX:
            self._close_idle()
            line = _Line(self._transport(address, caller))
            lines.append(line)
        return line

    def _transport(self, address: str, caller: Caller) -> WebSocketTransport:
        self._check_secure(address)
        headers = {FORWARDED.decode(): self._prove(address)}
        if caller.authorization is not None:
            headers["authorization"] = caller.authorization

        def on_late(deliveries: list[Delivery]) -> None:
            self.on_late(deliveries[0].queue, deliveries, caller)

        transport = WebSocketTransport(
            address,
            timeout=_ANSWER_S,
            retries=Retries(patience_s=0.0),
            tls=self._tls_for(address),
            frame_bytes_max=self._frame_bytes_max,
            headers=headers,
            on_late=on_late,
        )
        transport.hasten(connect_s=_CONNECT_S, ping_s=_PING_S)
        return transport

    def _check_secure(self, address: str) -> None:
        """Refuse to send the API key of a caller in clear text if this node speaks TLS."""
        if self._tls is not None and not address.startswith("https://"):
            raise NodeInsecure(f"The node at {address} does not use TLS, but this one does.")

    def _close_idle(self) -> None:
        """Close the connections that are idle, if there are too many: every API key that was ever used has one."""
        if sum(map(len, self._lines.values())) < _KEPT_MAX:
            return
        for key, lines in list(self._lines.items()):
            for line in [line for line in lines if not line.in_flight]:
                lines.remove(line)
                self.start(line.transport.close())
            if not lines:
                del self._lines[key]

    @asynccontextmanager
    async def listen(self, address: str, target: str, headers: Mapping[str, str]) -> AsyncIterator[RemoteAnswer]:
        """Return the answer of the node at an address to a GET, in pieces.

        Args:
            address: the address of the node.
            target: the path and the query.
            headers: what it needs to know about the caller.

        Raises:
            QueueMoving: the node can't be reached.
            Disconnected: the answer broke off.
        """
        self._check_secure(address)
        sent = {**headers, FORWARDED.decode(): self._prove(address)}
        client = self._client()
        request = client.build_request("GET", address + target, headers=sent)
        try:
            async with asyncio.timeout(_ANSWER_S):
                response = await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _unreachable(address, error) from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise _unanswered(address, error) from error
        try:
            yield RemoteAnswer(response.status_code, response.headers, response.aiter_raw())
        except httpx.HTTPError as error:
            raise _unanswered(address, error) from error
        finally:
            await response.aclose()

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            timeout = httpx.Timeout(None, connect=_CONNECT_S)
            limits = httpx.Limits(max_keepalive_connections=0)  # answers last long; few connections would be used again
            self._http = httpx.AsyncClient(verify=self._tls or True, timeout=timeout, limits=limits, trust_env=False)
        return self._http

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that no caller waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what no caller waits for, and close all connections."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lines = [line for lines in self._lines.values() for line in lines]
        self._lines.clear()
        await asyncio.gather(*(line.transport.close() for line in lines), return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()


async def _connected(transport: WebSocketTransport) -> None:
    """Connect to a node, or say that nothing was done."""
    try:
        await transport.ready()
    except Disconnected as error:
        raise _unreachable(transport.address, error) from error


def _unreachable(address: str, error: BaseException) -> QueueMoving:
    return QueueMoving(f"The node at {address} can't be reached: {error}", retry_after_ms=_RETRY_AFTER_MS)


def _unanswered(address: str, error: BaseException) -> Disconnected:
    return Disconnected(f"The node at {address} did not answer: {type(error).__name__}.")
