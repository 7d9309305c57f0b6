"""One HTTP request and its answer: bounded bodies, JSON or msgpack, one form of errors, correlation ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from operator import attrgetter
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from fairlane.broker.waiting.room import ALWAYS_BYTES, Room
from fairlane.errors import FairlaneError, InvalidArgument, RequestTooLarge, TooMuchUnread, UnavailableError
from fairlane.gateway.caller import ANYBODY, Caller
from fairlane.gateway.context import CallContext
from fairlane.model.trace import trace_of
from fairlane.server.access_log import OK
from fairlane.server.addresses import block_of
from fairlane.server.dispatch import decoded
from fairlane.server.interfaces.asgi import Receive, Scope, Send, address_of
from fairlane.server.interfaces.correlation import FAULT, REPLACED, CallCorrelation
from fairlane.server.interfaces.counting import JSON_FROM_BYTES, MSGPACK_FROM_BYTES, check_json, check_msgpack
from fairlane.server.interfaces.json_messages import JSON_FORMS, MARK, plain_request
from fairlane.server.limits import CallLimits
from fairlane.server.receiving.arrivals import FREE_BYTES, Arrivals, Reservation
from fairlane.verbs.errors import ErrorBody, body_of, error_of
from fairlane.verbs.messages import EnqueueResults, Results
from fairlane.wire.errors import HTTP_STATUS, ErrorAnswer, RefusedItem
from fairlane.wire.headers import FOLLOWS, FORWARDED

T = TypeVar("T")
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
RAW: Final = "application/octet-stream"
_KINDS: Final = {
    JSON: JSON,
    MSGPACK: MSGPACK,
    "application/x-msgpack": MSGPACK,
    "application/vnd.msgpack": MSGPACK,
}
_EMPTY: Final = {JSON: b"{}", MSGPACK: b"\x80"}
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
"""Browsers must not take an answer for another content type than it says."""
_DISCARDED_BYTES: Final = 64 * 1024
"""A body of a refused request that is not longer is read and discarded, so that the connection can go on."""
_json, _msgpack = msgspec.json.Encoder(), msgspec.msgpack.Encoder()
_decoders: Final[dict[tuple[str, type], Callable[[Any], Any]]] = {}


def _decoder(kind: str, shape: type[T]) -> Callable[[Any], T]:
    """Return a decoder for a shape. Building one takes longer than decoding, so all are kept; there are few shapes."""
    decode = _decoders.get((kind, shape))
    if decode is None:
        decode = msgspec.json.Decoder(shape).decode if kind is JSON else msgspec.msgpack.Decoder(shape).decode
        _decoders[kind, shape] = decode
    return decode


def headers_of(scope: Scope) -> dict[bytes, str]:
    """Return the headers of a request. Of several with the same name, the first counts."""
    return {name: value.decode("latin-1").strip() for name, value in reversed(scope["headers"])}


class Gone(Exception):
    """The caller has disconnected."""


_error_in: Final = attrgetter("error")


class Exchange:
    """A request that is being answered."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limits: CallLimits,
        arrivals: Arrivals,
        new_room: Callable[[Caller], Room],
    ) -> None:
        self.scope = scope
        self.headers = headers_of(scope)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._receive, self._send = receive, send
        self._limits, self._arrivals = limits, arrivals
        self._new_room = new_room
        self._is_read = False
        self._accept = self.headers.get(b"accept", "").lower()
        given = self.headers.get(b"content-type")
        self.content_type = None if given is None else given.partition(";")[0].strip().lower()
        """The content type of the request, in lower case and without parameters."""
        self._kind = JSON
        self.is_begun = False
        self._refused_items: list[ErrorBody] = []
        self.caller = ANYBODY
        """The caller, once it is authenticated."""
        self.verb = ""
        """The name of the verb, once it is known."""
        self.asked: object = None
        """The request, once it is read."""
        self.status = OK
        """What came of it, for the access log: that it was answered, or the code of the error."""
        self.correlation = CallCorrelation(self.headers.get(b"x-correlation-id"))
        """Names the request in the answer and in logs."""

    def context(self) -> CallContext:
        """Return the context of the call. Only a correlation id that the caller gave is put on its messages."""
        headers = self.headers
        traceparent = headers.get(b"traceparent")
        return CallContext(
            self.correlation.id if self.correlation.is_given else None,
            None if traceparent is None else trace_of(traceparent, headers.get(b"tracestate")),
            FOLLOWS in headers,
            FORWARDED in headers,
        )

    @property
    def holder(self) -> str | None:
        """Whom a wait counts against; None for a node that asks on behalf of a caller, which has counted it."""
        return None if FORWARDED in self.headers else self.caller.id or block_of(address_of(self.scope))

    # --------------------------------------------------------------------------------------------------------- request

    def query(self, *names: str) -> dict[str, str]:
        """Return the query parameters. Raises InvalidArgument if there is one that is not named here."""
        given = dict(parse_qsl(self.query_string, keep_blank_values=True))
        for name in given:
            if name not in names:
                known = ", ".join(names) or "none"
                raise InvalidArgument(f"Unknown parameter {name!r:.100}; expected {known}.")
        return given

    @property
    def query_string(self) -> str:
        """The query string as it was sent."""
        text: str = self.scope.get("query_string", b"").decode("latin-1")
        return text

    def accepts(self, kind: str) -> bool:
        """Return whether the caller asks for a content type by name."""
        return kind in self._accept

    @property
    def wants_raw(self) -> bool:
        """Whether the caller accepts the bytes of a payload, and no structured answer."""
        accept = self._accept
        return RAW in accept and JSON not in accept and MSGPACK not in accept

    async def request(self, shape: type[T], name: str) -> T:
        """Return the body of the request, decoded.

        Raises:
            InvalidArgument, RequestTooLarge: it is malformed or too large.
            Gone: the caller has disconnected.
        """
        self.verb, given = name, self.content_type
        kind = _KINDS.get(given or "")
        data = await self.body(is_json=kind is JSON)
        if kind is None:
            if data or given is not None:  # forms are what a page of another site can send without asking
                raise InvalidArgument(f"Content-Type must be {JSON} or {MSGPACK}, not {given!r:.100}.")
            kind = JSON
        self._kind = kind
        if kind is JSON and len(data) > JSON_FROM_BYTES:
            check_json(data)
        elif kind is MSGPACK and len(data) > MSGPACK_FROM_BYTES:
            check_msgpack(name, data)
        form = JSON_FORMS.get(shape) if kind is JSON and MARK in data else None
        if form is None:
            request = decoded(_decoder(kind, shape), data or _EMPTY[kind], name)
        else:
            request = cast("T", plain_request(decoded(_decoder(kind, form), data, name), cast("Any", shape)))
        self.asked = request
        return request

    async def body(self, *, is_json: bool = False) -> bytes | bytearray:
        """Return the body of the request as it is.

        A body that arrives in parts is written into one buffer: a list of parts and their sum would hold it twice.

        Raises:
            RequestTooLarge: it is too large; the rest of it is not read.
            TooMuchArriving: it is large, and too many others are being received; the rest of it is not read.
            Gone: the caller has disconnected.
        """
        limits = self._limits
        most = min(limits.body_bytes_max, limits.json_body_bytes_max) if is_json else limits.body_bytes_max
        length = self.headers.get(b"content-length", "")
        expected = int(length[:19]) if length.isdigit() else most
        if expected > most:
            raise _too_large(limits, most)
        body = bytearray()
        with ExitStack() as until_read:
            while True:
                event = await self._receive()
                if event["type"] == "http.disconnect":
                    raise Gone
                part, has_more = event.get("body", b""), event.get("more_body", False)
                if len(body) + len(part) > most:
                    raise _too_large(limits, most)
                self._is_read = not has_more
                if self._is_read and not body:
                    return cast("bytes", part)
                if has_more and len(body) <= FREE_BYTES < len(body) + len(part):
                    until_read.callback((await self.admitted(expected)).end)
                body += part
                if self._is_read:
                    return body

    async def admitted(self, size: int) -> Reservation:
        """Return a reservation for a body as soon as there is capacity; end it when the body has arrived.

        Raises:
            TooMuchArriving: there was none in time.
        """
        return await self._arrivals.admitted(self.holder, size)

    @property
    def content_length(self) -> int | None:
        """The length of the body, if the caller has said so."""
        length = self.headers.get(b"content-length", "")
        return int(length[:19]) if length.isdigit() and b"transfer-encoding" not in self.headers else None

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body of the request as it arrives. What is not asked for is not read from the connection.

        Raises:
            Gone: the caller has disconnected before the end.
        """
        while not self._is_read:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise Gone
            self._is_read = not event.get("more_body", False)
            if part := event.get("body", b""):
                yield part

    def _is_large(self) -> bool:
        """Return whether a body has to be expected that is larger than what one read takes anyway."""
        length = self.headers.get(b"content-length", "")
        return b"transfer-encoding" in self.headers or int(length[:19] if length.isdigit() else 0) > _DISCARDED_BYTES

    async def hung_up(self) -> None:
        """Return when the caller disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # ---------------------------------------------------------------------------------------------------------- answer

    @property
    def kind(self) -> str:
        """The content type of the answer: what the caller accepts, or else what it sent."""
        if "msgpack" in self._accept:
            return MSGPACK
        return JSON if JSON in self._accept else self._kind

    async def answer(self, answer: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer with a value."""
        kind = self.kind
        body = _json.encode(answer) if kind is JSON else _msgpack.encode(answer)
        await self.answer_bytes(body, kind, status=status, headers=headers)

    async def answer_items(self, answer: EnqueueResults | Results) -> None:
        """Answer with a result for each item, under the status that all of them share, or else 207.

        Raises:
            FairlaneError: all items were refused with the same status. ``refuse`` adds the result for each.
        """
        refused: list[ErrorBody] = list(filter(None, map(_error_in, answer.results)))
        if not refused:
            await self.answer(answer)
            return
        statuses = {HTTP_STATUS.get(error.code, 500) for error in refused}
        if len(refused) < len(answer.results) or len(statuses) > 1:
            await self.answer(answer, status=207)
            return
        self._refused_items = refused
        raise error_of(refused[0])

    async def answer_bytes(
        self, body: bytes, kind: str, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with bytes.

        Raises:
            TooMuchUnread: the answer is large, and other connections have too much to read already.
        """
        length = {"content-length": str(len(body))}
        length = length if headers is None else {**length, **headers}
        if len(body) > ALWAYS_BYTES:
            await self._answer_in_pieces(body, kind, status, length)
            return
        await self.begin(kind, status=status, headers=length)
        await self._send({"type": "http.response.body", "body": body})

    async def _answer_in_pieces(self, body: bytes, kind: str, status: int, headers: dict[str, str]) -> None:
        """Answer with many bytes, which count as unread until the caller has taken the last piece."""
        room = self.room_for(len(body))
        try:
            await self.begin(kind, status=status, headers=headers)
            for at in range(0, len(body), ALWAYS_BYTES):
                await self.more(body[at : at + ALWAYS_BYTES])
            await self.end()
        finally:
            room.clear()

    def room_for(self, size: int) -> Room:
        """Return a room that counts this number of bytes as unread; clear it at the end.

        Raises:
            TooMuchUnread: the answer is large, and other connections have too much to read already.
        """
        room = self._new_room(self.caller)
        if not room.takes(size):
            raise self._limits.too_much_unread()
        room.add(size)
        return room

    async def begin(self, kind: str, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Begin an answer that is sent in pieces."""
        self.is_begun = True
        pairs = [
            (b"content-type", kind.encode()),
            _NO_SNIFFING,
            (b"x-correlation-id", self.correlation.id.encode("latin-1")),
        ]
        if self.correlation.is_replaced:
            pairs.append((REPLACED.encode(), FAULT.encode()))
        if headers is not None:
            pairs += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def more(self, data: bytes) -> None:
        """Send a piece of the answer. This waits for a slow reader."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End an answer that was sent in pieces."""
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: FairlaneError, *, status: int | None = None, **more: str) -> None:
        """Answer with an error."""
        headers = dict(more)
        if isinstance(error, UnavailableError) and error.retry_after_ms is not None:
            headers["retry-after"] = str(-(-error.retry_after_ms // 1000))
        if error.code == "unauthenticated":
            headers["www-authenticate"] = "Bearer"
        if not self._is_read and (error.code == "request_too_large" or self._is_large()):
            headers["connection"] = "close"  # the rest of the body is not worth reading
        answer = ErrorAnswer(error=body_of(error), results=[RefusedItem(item) for item in self._refused_items])
        self._refused_items = []
        try:
            await self.answer(answer, status=status or HTTP_STATUS.get(error.code, 500), headers=headers)
        except TooMuchUnread as unread:  # only a long list of results is large enough for that
            await self.refuse(unread)


def _too_large(limits: CallLimits, most: int) -> RequestTooLarge:
    if most < limits.body_bytes_max:
        return RequestTooLarge(f"A JSON request can have at most {most} bytes (json_body_bytes_max).")
    return RequestTooLarge(f"A request can have at most {most} bytes (body_bytes_max).")


def line_of(value: Any, kind: str) -> bytes:  # noqa: ANN401 - whatever can be encoded
    """Return a value as one piece of a stream: a line of JSON, or msgpack after its length in four bytes."""
    if kind is JSON:
        return _json.encode(value) + b"\n"
    data = _msgpack.encode(value)
    return len(data).to_bytes(4) + data
