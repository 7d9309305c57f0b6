"""WebSocket frames, parsed and built in one step each, for connections that carry many.

A message of the stream is one binary frame, and that is all that is understood here. Every other frame, such as a ping,
a close or a part of a message, is handed on as it came, whole, to an implementation of the whole protocol, which also
makes the handshakes and judges what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it could not be compiled; masking then costs more than all the rest of a message
    from websockets.utils import apply_mask

_BINARY, _IS_LAST, _OPCODE = 0x82, 0x80, 0x0F
"""The first byte of a frame that is a binary message; its bits."""
_CONTINUATION, _FIRST_CONTROL = 0x0, 0x8
_KNOWN: Final = frozenset((0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8A))
"""What a frame may begin with: parts of messages, whole ones, and close, ping and pong, which come whole."""
_IS_MASKED, _LENGTH = 0x80, 0x7F
_LENGTH_16, _LENGTH_64 = 126, 127
MASK_BYTES: Final = 4
"""How long a mask is."""


def head_of(size: int) -> bytes:
    """Return what comes before a binary message of a server."""
    if size < _LENGTH_16:
        return bytes((_BINARY, size))
    if size < 1 << 16:
        return bytes((_BINARY, _LENGTH_16)) + size.to_bytes(2)
    return bytes((_BINARY, _LENGTH_64)) + size.to_bytes(8)


def masked_frame_of(message: bytes, mask: bytes) -> bytes:
    """Return a binary message of a client."""
    size = len(message)
    if size < _LENGTH_16:
        head = bytes((_BINARY, _IS_MASKED | size)) + mask
    elif size < 1 << 16:
        head = bytes((_BINARY, _IS_MASKED | _LENGTH_16)) + size.to_bytes(2) + mask
    else:
        head = bytes((_BINARY, _IS_MASKED | _LENGTH_64)) + size.to_bytes(8) + mask
    return head + apply_mask(message, mask)


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

    @property
    def unfinished(self) -> int:
        """How long the frame is of which a part has come; 0 if none has, or nothing is to be cut."""
        return self._wanted if self._kept else 0

    def receive(self, data: bytes) -> None:
        """Cut what came, together with what was kept."""
        buffer: bytes | bytearray = data
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted or self.is_held:
                return
            buffer, self._kept = self._kept, bytearray()
        view, at = memoryview(buffer), 0
        while not self.is_held and (end := self._cut(view, at)):
            at = end
        if self.is_held:
            self._wanted = 0
        if at < len(view):
            self._kept += view[at:]

    def go_on(self) -> None:
        """Cut what was kept while it was held."""
        self.is_held = False
        self.receive(b"")

    def _cut(self, data: memoryview, at: int) -> int:
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
        is_too_long = self._size_max is not None and length > self._size_max
        if is_too_long or first not in _KNOWN or second & _IS_MASKED != self._mark:
            self._on_other(bytes(data[at:]))  # it is judged by its head, and nothing comes after it
            return len(data)
        mask_at, start = start, start + (MASK_BYTES if second & _IS_MASKED else 0)
        end = start + length
        if len(data) < end:
            self._wanted = end - at
            return 0
        if first == _BINARY and not self._is_in_parts:
            body = data[start:end]
            self._on_message(apply_mask(body, bytes(data[mask_at:start])) if self._mark else bytes(body))
        else:
            if first & _OPCODE < _FIRST_CONTROL:
                self._is_in_parts = not first & _IS_LAST
            self._on_other(bytes(data[at:end]))
        return end
