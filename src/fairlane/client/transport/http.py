"""The transport over plain HTTP: a request for each call, for networks that let no WebSocket through.

It costs several times as much as a WebSocket, and a stream of deliveries is one of long polls (see ``polling``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from fairlane.client.retrying import Retries
from fairlane.client.tracing import current_trace
from fairlane.client.transport.key_order import Order
from fairlane.client.transport.polling import PollingChannel
from fairlane.client.transport.protocol import Reply, Sink
from fairlane.client.transport.websocket import FRAME_BYTES_MAX
from fairlane.errors import (
    Closed,
    Disconnected,
    FairlaneError,
    Forbidden,
    InvalidArgument,
    PayloadTooLarge,
    RouteNotFound,
    Unauthenticated,
)
from fairlane.model.message import Receipt
from fairlane.verbs.errors import error_of
from fairlane.verbs.leases import Lease, LeasedMessages, Nack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape
from fairlane.wire.errors import ErrorAnswer
from fairlane.wire.frames import Consume

try:
    import httpx
except ImportError as error:
    raise ImportError("Plain HTTP needs httpx: install fairlane[http].") from error

POLL_MS: Final = 1_000
_KIND: Final = "application/msgpack"
_SCHEMES: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_REFUSALS: Final[dict[int, type[FairlaneError]]] = {401: Unauthenticated, 403: Forbidden, 413: PayloadTooLarge}
"""What a status means that comes without an error of ours, from somebody in between."""
_encode = msgspec.msgpack.Encoder().encode
_error = msgspec.msgpack.Decoder(ErrorAnswer).decode
_ANSWERS: Final = {name: msgspec.msgpack.Decoder(verb.answer).decode for name, verb in VERBS.items()}


class HttpTransport:
    """Calls as requests over HTTP to a server; see ``Transport``."""

    is_cluster = True
    """Whether there may be other nodes behind the server; it is not told."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: Retries | None = None,
        tls: ssl.SSLContext | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        poll_ms: int = POLL_MS,
    ) -> None:
        """Prepare, without connecting yet. Arguments are those of ``AsyncClient``.

        Args:
            url: the server's address such as ``https://queue.example``.
            api_key: who we are.
            timeout: how many seconds to wait for an answer, beside the time a call waits by its own will.
            retries: how long a stream goes on asking a server that does not answer.
            tls: how to verify a server at an address with ``https``, and who we are.
            frame_bytes_max: bytes in one request; not above the server's ``body_bytes_max``.
            poll_ms: how long a stream's question for messages waits at the server. It ends when the first comes, so
                this is only how often one asks in vain, and how long leaving a stream may take.
        """
        self._url = _base_url(url)
        self._headers = {"content-type": _KIND, "accept": _KIND}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout = timeout
        self._retries = retries or Retries()
        self._tls = tls
        self._frame_bytes_max = frame_bytes_max
        self._poll_ms = poll_ms
        self._http: httpx.AsyncClient | None = None
        self._is_closed = False
        self._order = Order()
        self._channels: set[PollingChannel] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._server_ahead_s = 0.0

    async def connect(self) -> None:
        """See whether the server answers, and to us; see ``Transport``."""
        with suppress(RouteNotFound):  # it knows us, and that there is nothing at this path
            await self._send("GET", "/v1", b"", 0)

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see Transport
        """Return the answer to a request; see ``Transport``."""
        if isinstance(request, Enqueue):
            async with self._order.turn(request):
                return await self._ask(verb, request, wait_ms)
        answer = await (self._lease(request) if isinstance(request, Lease) else self._ask(verb, request, wait_ms))
        for channel in self._channels:
            channel.notice(request, answer)
        return answer

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:  # noqa: ARG002
        """See ``Transport``: a request of its own can't be sent without waiting."""
        return False

    async def open(self, request: Consume, sink: Sink) -> PollingChannel:
        """Open a channel; see ``Transport``."""
        channel = PollingChannel(
            request, sink, ask=self._ask_for, lasts_s=self._lasts_s, poll_ms=self._poll_ms, retries=self._retries
        )
        await channel.begin()
        self._channels.add(channel)
        return channel

    async def close(self) -> None:
        """Give back what streams hold, and let go of all connections."""
        for channel in list(self._channels):
            await channel.stop(())
        self._is_closed = True
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    # ---------------------------------------------------------------------------------------------------------- asking

    async def _ask_for(self, verb: str, request: Shape, wait_ms: int) -> Any:  # noqa: ANN401 - depends on the verb
        return await self.call(verb, request, wait_ms=wait_ms)

    async def _ask(self, verb: str, request: Shape, wait_ms: int) -> Any:  # noqa: ANN401 - depends on the verb
        try:
            body = _encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"This can't be sent: {error}.") from error
        if len(body) > self._frame_bytes_max:
            most = self._frame_bytes_max
            raise PayloadTooLarge(f"A request has at most {most} bytes, not {len(body)}: send less.")
        return _ANSWERS[verb](await self._send("POST", f"/v1/{VERBS[verb].path}", body, wait_ms))

    async def _lease(self, request: Lease) -> LeasedMessages:
        """Lease messages. What comes when nobody waits any more goes back, as if it had never been leased."""
        asking = asyncio.ensure_future(self._ask("lease", request, request.wait_ms))
        try:
            leased: LeasedMessages = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._keep(self._give_back(request.queue, asking))
            raise
        return leased

    async def _give_back(self, queue: str, asking: asyncio.Future[LeasedMessages]) -> None:
        with suppress(FairlaneError):
            leased = await asking
            receipts = [Receipt(id=delivery.id, token=delivery.token) for delivery in leased.deliveries]
            if receipts:
                await self._ask("nack", Nack(queue=queue, receipts=receipts, intent="defer"), 0)

    def _keep(self, giving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(giving)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _send(self, method: str, path: str, body: bytes, wait_ms: int) -> bytes:
        if self._is_closed:
            raise Closed("The client has been closed.")
        if self._http is None:
            verify = self._tls if self._tls is not None else self._url.startswith("https:")
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._http = httpx.AsyncClient(headers=self._headers, verify=verify, limits=limits)
        trace = current_trace()
        headers = {} if trace is None else trace.headers()
        try:
            async with asyncio.timeout(self._timeout + wait_ms / 1000):
                response = await self._http.request(
                    method, self._url + path, content=body, headers=headers, timeout=None
                )
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise Disconnected(f"{self._url} did not answer: {error or 'it took too long'}.") from error
        self._note_time(response.headers.get("date"))
        if response.status_code != httpx.codes.OK:
            raise _refusal(response)
        return response.content

    def _note_time(self, date: str | None) -> None:
        """Note how far the server's clock is ahead of the loop's; its dates are cut to seconds, so not too far."""
        if date is not None:
            with suppress(ValueError):
                self._server_ahead_s = parsedate_to_datetime(date).timestamp() - asyncio.get_running_loop().time()

    def _lasts_s(self, instant_ms: int) -> float:
        return instant_ms / 1000 - self._server_ahead_s - asyncio.get_running_loop().time()


def _refusal(response: httpx.Response) -> FairlaneError:
    try:
        error = error_of(_error(response.content).error)
    except msgspec.DecodeError:
        kind = _REFUSALS.get(response.status_code, Disconnected)
        return kind(f"{response.url} answered with HTTP status {response.status_code}.")
    return Disconnected(error.cause) if isinstance(error, Closed) else error


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise InvalidArgument(
            f"A server's address is such as http://127.0.0.1:7420 or https://queue.example, not {url!r}."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
