"""HTTP connections whose requests are bounded outside their bodies: heads, trailers, and what chunks add."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 256
"""Headers of one request."""
_TOO_LARGE: Final = (
    "HTTP/1.1 431 Request Header Fields Too Large\r\n"
    "content-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}"
)
_HEAD_TEXT: Final = "The head of the request is too large."
_BARE_TEXT: Final = f"More than {HEAD_BYTES_MAX} bytes arrived without body data; send fewer trailers."
_AROUND_HEADER: Final = len(b": \r\n")


class HeadTooLarge(Exception):
    """The request line and headers are too large, or the headers are too many."""


class BoundedHeadProtocol(HttpToolsProtocol):
    """A connection that is closed when too much arrives that is no body.

    A head that comes in pieces is refused once the pieces are too large. A head that is complete is measured before the
    application is called, because one read may hold all of it, and other requests besides.

    Behind the head, trailers are dropped: the parser reports them like headers, at any time until the request ends, and
    nothing may change the headers of a request that was admitted. The parser keeps a trailer until it has come as a
    whole, so reads that bring no body data are bounded like a head.
    """

    _bare_bytes = 0
    """What was read since the request began, or since the last read that brought body data or the end of a request."""
    _is_in_head = True
    _has_progress = False
    _is_refused = False

    def on_message_begin(self) -> None:
        """Start to count."""
        self._bare_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and drop a trailer."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Measure the head. A body follows, which the application bounds."""
        headers = self.headers
        if len(headers) > HEADERS_MAX or len(self.url) + _size_of(headers) > HEAD_BYTES_MAX:
            self._is_refused = True
            raise HeadTooLarge  # it ends the parsing, and uvicorn calls send_400_response
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._has_progress = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that can't be parsed, or that is too large outside its body."""
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        """Take data, unless too much of it is no body."""
        if self.transport.is_closing():
            return
        self._has_progress = False
        super().data_received(data)
        self._bare_bytes = 0 if self._has_progress else self._bare_bytes + len(data)
        if self._bare_bytes > HEAD_BYTES_MAX and not self._is_refused:
            self._is_refused = True
            self.send_400_response("")

    def _refuse(self) -> None:
        """Close the connection, and say why unless an answer has begun, which the reason would become a part of."""
        if self.transport.is_closing():
            return
        if self._is_in_head or not self.cycle.response_started:
            text = _HEAD_TEXT if self._is_in_head else _BARE_TEXT
            self.transport.write(_TOO_LARGE.format(len(text), text).encode())
        self.transport.close()


def _size_of(headers: list[tuple[bytes, bytes]]) -> int:
    """Return about how many bytes headers took on the wire."""
    return sum([len(name) + len(value) + _AROUND_HEADER for name, value in headers])
