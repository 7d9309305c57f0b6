"""HTTP connections with a bounded request head, which arrives before the application is called."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 37\r\nconnection: close\r\n\r\n"
    b"The head of the request is too large."
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """A connection that is closed when the request line and headers are too large."""

    _head_bytes = 0
    _is_in_head = True

    def on_message_begin(self) -> None:
        """Start to count."""
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop counting: the body follows, which the application bounds."""
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take data, unless the head is too large."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self._is_in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
