"""WebSocket frames, cut and made in one step each, for connections that carry many.

A message of the stream is one binary frame, and that is all that is understood here. Every other frame, such as a ping,
a close or a part of a message, is handed on as it came, whole, to an implementation of the whole protocol, which also
makes the handshakes and judges what is wrong.

What clients send is masked. A mask keeps bytes that an attacker chose from being taken for something else by whoever
is in between and can read them. Where nobody can, because of TLS or because the server is on the same machine, our
clients mask with zeros, which costs nothing, and whose removal costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from websockets.utils import apply_mask

_BINARY, _IS_LAST, _OPCODE = 0x82, 0x80, 0x0F
"""The first byte of a frame that is a binary message; its bits."""
_CONTINUATION, _FIRST_CONTROL = 0x0, 0x8
_IS_MASKED, _LENGTH = 0x80, 0x7F
_LENGTH_16, _LENGTH_64 = 126, 127
_MASK_BYTES: Final = 4
NO_MASK: Final = bytes(_MASK_BYTES)
"""A mask that changes nothing."""


def head_of(size: int) -> bytes:
    """Return what comes before a binary message of a server."""
    if size < _LENGTH_16:
        return bytes((_BINARY, size))
    if size < 1 << 16:
        return bytes((_BINARY, _LENGTH_16)) + size.to_bytes(2)
    return bytes((_BINARY, _LENGTH_64)) + size.to_bytes(8)


def masked_frame_of(message: bytes, mask: bytes) -> tuple[bytes, bytes]:
    """Return head and body of a binary message of a client."""
    size = len(message)
    if size < _LENGTH_16:
        head = bytes((_BINARY, _IS_MASKED | size)) + mask
    elif size < 1 << 16:
        head = bytes((_BINARY, _IS_MASKED | _LENGTH_16)) + size.to_bytes(2) + mask
    else:
        head = bytes((_BINARY, _IS_MASKED | _LENGTH_64)) + size.to_bytes(8) + mask
    return head, message if mask == NO_MASK else apply_mask(message, mask)


class FrameCutter:
    """Cuts what one side sends into frames.

    Attributes:
        is_held: whether nothing is to be cut for the time being; what comes is kept.
    """

    def __init__(
        self,
        *,
        is_masked: bool,
        size_max: int | None,
        on_message: Callable[[bytes], None],
        on_other: Callable[[bytes], None],
    ) -> None:
        """Prepare.

        Args:
            is_masked: whether it is clients who send.
            size_max: the longest message; a frame that says it is longer is handed on before all of it has come.
            on_message: gets each binary message that is one frame.
            on_other: gets each other frame, as it came.
        """
        self._mark = _IS_MASKED if is_masked else 0
        self._size_max = size_max
        self._on_message = on_message
        self._on_other = on_other
        self._kept = bytearray()
        self._wanted = 0
        self._is_in_parts = False
        self.is_held = False

    def receive(self, data: bytes) -> None:
        """Cut what came, together with what was kept."""
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted or self.is_held:
                return
            data = bytes(self._kept)
            self._kept.clear()
        at = 0
        while not self.is_held and (end := self._cut(data, at)):
            at = end
        if self.is_held:
            self._wanted = 0
        if at < len(data):
            self._kept += memoryview(data)[at:]

    def go_on(self) -> None:
        """Cut what was kept while it was held."""
        self.is_held = False
        self.receive(b"")

    def _cut(self, data: bytes, at: int) -> int:
        """Hand on the frame that begins here, and return where it ends; 0 if it has not come as a whole."""
        have = len(data) - at
        if have < 2:  # noqa: PLR2004 - the least that a frame has
            self._wanted = 2
            return 0
        first, second = data[at], data[at + 1]
        length, start = second & _LENGTH, at + 2
        if length >= _LENGTH_16:
            start += 2 if length == _LENGTH_16 else 8
            if len(data) < start:
                self._wanted = start - at
                return 0
            length = int.from_bytes(data[at + 2 : start])
        if self._size_max is not None and length > self._size_max:
            self._on_other(data[at:])
            return len(data)
        mask_at, start = start, start + (_MASK_BYTES if second & _IS_MASKED else 0)
        end = start + length
        if len(data) < end:
            self._wanted = end - at
            return 0
        if first == _BINARY and second & _IS_MASKED == self._mark and not self._is_in_parts:
            mask = data[mask_at:start]
            body = data[start:end]
            self._on_message(body if not mask or mask == NO_MASK else apply_mask(body, mask))
        else:
            if first & _OPCODE < _FIRST_CONTROL:
                self._is_in_parts = not first & _IS_LAST
            self._on_other(data[at:end])
        return end
