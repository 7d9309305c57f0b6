"""HTTP connections with a bounded request head, which arrives before the application is called."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 256
"""Headers of one request."""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 37\r\nconnection: close\r\n\r\n"
    b"The head of the request is too large."
)
_AROUND_HEADER: Final = len(b": \r\n")


class HeadTooLarge(Exception):
    """The request line and headers are too large, or the headers are too many."""


class BoundedHeadProtocol(HttpToolsProtocol):
    """A connection that is closed when the request line and headers are too large.

    A head that comes in pieces is refused once the pieces are too large. A head that is complete is measured before the
    application is called, because one read may hold all of it, and other requests besides.
    """

    _head_bytes = 0
    _is_in_head = True
    _is_refused = False

    def on_message_begin(self) -> None:
        """Start to count."""
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Measure the head. A body follows, which the application bounds."""
        self._is_in_head = False
        headers = self.headers
        if len(headers) > HEADERS_MAX or len(self.url) + _size_of(headers) > HEAD_BYTES_MAX:
            self._is_refused = True
            raise HeadTooLarge  # it ends the parsing, and uvicorn calls send_400_response
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that can't be parsed, or whose head is too large."""
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        """Take data, unless the head is too large."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self._is_in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()


def _size_of(headers: list[tuple[bytes, bytes]]) -> int:
    """Return about how many bytes headers took on the wire."""
    return sum([len(name) + len(value) + _AROUND_HEADER for name, value in headers])
