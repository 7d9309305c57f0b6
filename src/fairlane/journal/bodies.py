"""Bodies: the headers and payload of a message, packed into chunks that are stored as one value.

One value for each message would cost more in the store than the message itself; one value for a whole batch would be
read whole to hand out one message. A chunk of some tens of kilobytes is cheap either way.

A chunk is a table of lengths, then for each body its head (headers and correlation id, as msgpack) and its payload.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add

import msgspec

CHUNK_BYTES_MAX = 32 * 1024
CHUNK_COUNT_MAX = 256
_EMPTY_HEAD = b""
_DECODED_BYTES = 200
_BOUND_BYTES = 40


class Head(msgspec.Struct, array_like=True, gc=False):
    """What travels with a payload."""

    headers: dict[str, str]
    correlation_id: str | None = None


Body = tuple[dict[str, str], str | None, bytes]
"""Headers, correlation id and payload."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def encode_head(headers: Mapping[str, str], correlation_id: str | None) -> bytes:
    """Encode headers and correlation id; without any, return no bytes."""
    if not headers and correlation_id is None:
        return _EMPTY_HEAD
    return _encoder.encode((headers, correlation_id))


def chunk_starts(sizes: Sequence[int]) -> list[int]:
    """Return the index of the first body of each chunk, by the sizes of consecutive bodies."""
    ends = list(accumulate(sizes))
    starts = [0]
    while True:
        start = starts[-1]
        most = CHUNK_BYTES_MAX + (ends[start - 1] if start else 0)
        after = max(start + 1, bisect_right(ends, most, start, min(start + CHUNK_COUNT_MAX, len(ends))))
        if after >= len(ends):
            return starts
        starts.append(after)


def pack(heads: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
    """Encode bodies as a chunk."""
    table = struct.pack(f"<{1 + 2 * len(heads)}I", len(heads), *map(len, heads), *map(len, payloads))
    if not any(heads):
        return b"".join((table, *payloads))
    parts = [table]
    for head, payload in zip(heads, payloads, strict=True):
        parts.append(head)
        parts.append(payload)
    return b"".join(parts)


def pack_plain(sizes: Sequence[int], payloads: memoryview | bytes) -> bytes:
    """Encode bodies without heads, whose payloads lie one after the other, as a chunk."""
    count = len(sizes)
    return b"".join((struct.pack(f"<{1 + 2 * count}I", count, *bytes(count), *sizes), payloads))


class Chunk:
    """A decoded chunk, from which single bodies can be read.

    Attributes:
        memory_bytes: how much memory it takes: its bytes, and its bounds as numbers.
    """

    __slots__ = ("_bounds", "_data", "_splits", "memory_bytes")

    def __init__(self, data: bytes) -> None:
        self._data = data
        count = int.from_bytes(data[:4], "little")
        lengths = struct.unpack_from(f"<{2 * count}I", data, 4)
        heads, payloads = lengths[:count], lengths[count:]
        has_heads = any(heads)
        sizes = map(add, heads, payloads) if has_heads else payloads
        self._bounds = [*accumulate(sizes, initial=4 + 8 * count)]
        self._splits = [*map(add, self._bounds, heads)] if has_heads else None
        tables = 2 if has_heads else 1
        self.memory_bytes = len(data) + _DECODED_BYTES + tables * _BOUND_BYTES * len(self._bounds)

    def body(self, at: int) -> Body:
        """Return headers, correlation id and payload of one body."""
        bounds = self._bounds
        begin, end = bounds[at], bounds[at + 1]
        if self._splits is None:
            return {}, None, self._data[begin:end]
        split = self._splits[at]
        if begin == split:
            return {}, None, self._data[begin:end]
        head = _decoder.decode(self._data[begin:split])
        return head.headers, head.correlation_id, self._data[split:end]
