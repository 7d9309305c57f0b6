"""The HTTP transport: one request for each call, for networks that block WebSockets.

It costs several times as much as a WebSocket. Streams of deliveries use long polling (see ``polling``).
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

from fairlane.client.retries import Retries
from fairlane.client.tracing import current_trace
from fairlane.client.transport.key_order import KeyOrder
from fairlane.client.transport.polling import PollingChannel
from fairlane.client.transport.protocol import Sink
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
from fairlane.verbs.verb import Reply, Shape
from fairlane.wire.additions import answer_decoder
from fairlane.wire.errors import ErrorAnswer
from fairlane.wire.frames import Consume

try:
    import httpx
except ImportError as error:
    raise ImportError("The HTTP transport needs httpx; install fairlane[http].") from error

POLL_MS: Final = 1_000
_KIND: Final = "application/msgpack"
_SCHEMES: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_REFUSALS: Final[dict[int, type[FairlaneError]]] = {401: Unauthenticated, 403: Forbidden, 413: PayloadTooLarge}
"""Errors for statuses without a Fairlane error in the body, which come from a proxy."""
_ANSWERED: Final = frozenset((httpx.codes.OK, httpx.codes.MULTI_STATUS))
"""The statuses of answers; a batch of which some items were refused has the second."""
_encode = msgspec.msgpack.Encoder().encode
_decode_refusal = msgspec.msgpack.Decoder(ErrorAnswer).decode
_ANSWERS: Final = {name: answer_decoder(verb.answer) for name, verb in VERBS.items()}


class HttpTransport:
    """Sends each call as an HTTP request; see ``Transport``."""

    is_cluster = True
    """Whether the server may be a node of a cluster. This transport cannot know, so it assumes so."""

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
        """Create a transport without connecting yet.

        Args:
            url: the server's address, such as ``https://queue.example``.
            api_key: the API key.
            timeout: seconds to wait for an answer, in addition to the time that a call may wait at the server.
            retries: how long a stream retries when the server does not answer.
            tls: the TLS context for an ``https`` address, with a client certificate if the server requires one.
            frame_bytes_max: largest request in bytes; at most the server's ``body_bytes_max``.
            poll_ms: how long a poll of a stream waits at the server. It ends with the first message, so this sets only
                how often an idle stream polls, and how long closing one may take.
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
        self._order = KeyOrder()
        self._channels: set[PollingChannel] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._server_ahead_s = 0.0

    async def connect(self) -> None:
        """Check that the server answers and accepts the API key; see ``Transport``."""
        with suppress(RouteNotFound):  # the server accepts us; only the path does not exist
            _check(await self._send("GET", "/v1", b"", 0))

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
        """Return False: an HTTP request cannot be sent without waiting; see ``Transport``."""
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
        """Return the messages that streams hold, and close all connections."""
        for channel in list(self._channels):
            await channel.stop(())
        self._is_closed = True
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    # -------------------------------------------------------------------------------------------------------- requests

    async def _ask_for(self, verb: str, request: Shape, wait_ms: int) -> Any:  # noqa: ANN401 - depends on the verb
        return await self.call(verb, request, wait_ms=wait_ms)

    async def _ask(self, verb: str, request: Shape, wait_ms: int) -> Any:  # noqa: ANN401 - depends on the verb
        try:
            body = _encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"Cannot encode the request: {error}.") from error
        if len(body) > self._frame_bytes_max:
            most = self._frame_bytes_max
            raise PayloadTooLarge(f"The request has {len(body)} bytes; the limit is {most}.")
        return _answer(verb, await self._send("POST", f"/v1/{VERBS[verb].path}", body, wait_ms))

    async def _lease(self, request: Lease) -> LeasedMessages:
        """Lease messages. If the caller is cancelled, messages that arrive later are returned."""
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

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _send(self, method: str, path: str, body: bytes, wait_ms: int) -> httpx.Response:
        if self._is_closed:
            raise Closed("The client is closed.")
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
            raise Disconnected(f"No answer from {self._url}: {error or 'timed out'}.") from error
        self._note_time(response.headers.get("date"))
        return response

    def _note_time(self, date: str | None) -> None:
        """Note how far the server's clock is ahead of the loop's. Dates are cut to seconds, so this errs low."""
        if date is not None:
            with suppress(ValueError):
                self._server_ahead_s = parsedate_to_datetime(date).timestamp() - asyncio.get_running_loop().time()

    def _lasts_s(self, instant_ms: int) -> float:
        return instant_ms / 1000 - self._server_ahead_s - asyncio.get_running_loop().time()


def _answer(verb: str, response: httpx.Response) -> Any:  # noqa: ANN401 - depends on the verb
    """Return the answer of a verb. Where all items were refused, that is the error of each."""
    if response.status_code in _ANSWERED:
        return _ANSWERS[verb](response.content)
    refusal = _refusal(response)
    if refusal.results:
        return msgspec.convert(refusal, VERBS[verb].answer, from_attributes=True)
    raise _error_of(refusal)


def _check(response: httpx.Response) -> None:
    if response.status_code not in _ANSWERED:
        raise _error_of(_refusal(response))


def _refusal(response: httpx.Response) -> ErrorAnswer:
    """Return what a refusal says. Raises an error if it does not come from a server of ours."""
    try:
        return _decode_refusal(response.content)
    except msgspec.DecodeError as error:
        kind = _REFUSALS.get(response.status_code, Disconnected)
        raise kind(f"{response.url} answered with HTTP status {response.status_code}.") from error


def _error_of(refusal: ErrorAnswer) -> FairlaneError:
    error = error_of(refusal.error)
    return Disconnected(error.cause) if isinstance(error, Closed) else error


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise InvalidArgument(
            f"Invalid server address {url!r}; expected a URL such as http://127.0.0.1:7420 or https://queue.example."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
