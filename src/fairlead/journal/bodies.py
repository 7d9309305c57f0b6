"""Bodies: the headers and payload of a message, packed into chunks that are stored as one value.

One value for each message would cost more in the store than the message itself; one value for a whole batch would be
read whole to hand out one message. A chunk of some tens of kilobytes is cheap either way.

A chunk is a table of lengths, then for each body its head (headers and correlation id, as msgpack) and its payload.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgspec

CHUNK_BYTES_MAX = 32 * 1024
CHUNK_COUNT_MAX = 256
_EMPTY_HEAD = b""


class Head(msgspec.Struct, array_like=True, gc=False):
    """What travels with a payload."""

    headers: dict[str, str]
    correlation_id: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def encode_head(headers: Mapping[str, str], correlation_id: str | None) -> bytes:
    """Write down what travels with a payload; nothing at all is no bytes at all."""
    if not headers and correlation_id is None:
        return _EMPTY_HEAD
    return _encoder.encode((headers, correlation_id))


def chunk_starts(sizes: Sequence[int]) -> list[int]:
    """Return with which of consecutive bodies each chunk begins, by their sizes."""
    starts = [0]
    total = 0
    for at, size in enumerate(sizes):
        if at > starts[-1] and (total + size > CHUNK_BYTES_MAX or at - starts[-1] >= CHUNK_COUNT_MAX):
            starts.append(at)
            total = 0
        total += size
    return starts


def pack(heads: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
    """Make a chunk of bodies."""
    parts = [struct.pack(f"<{1 + 2 * len(heads)}I", len(heads), *map(len, heads), *map(len, payloads))]
    for head, payload in zip(heads, payloads, strict=True):
        parts.append(head)
        parts.append(payload)
    return b"".join(parts)


class Chunk:
    """A chunk, for reading single bodies of it."""

    __slots__ = ("_data", "_ends", "_heads", "_payloads")

    def __init__(self, data: bytes) -> None:
        self._data = data
        count = int.from_bytes(data[:4], "little")
        lengths = struct.unpack_from(f"<{2 * count}I", data, 4)
        self._heads, self._payloads = lengths[:count], lengths[count:]
        at = 4 + 8 * count
        ends: list[int] = []
        self._ends = ends
        for head, payload in zip(self._heads, self._payloads, strict=True):
            at += head + payload
            ends.append(at)

    def __len__(self) -> int:
        """Return how many bytes the chunk has."""
        return len(self._data)

    def body(self, at: int) -> tuple[Head | None, bytes]:
        """Return head and payload of one body; None for a head of nothing."""
        end = self._ends[at]
        split = end - self._payloads[at]
        size = self._heads[at]
        payload = self._data[split:end]
        return (_decoder.decode(self._data[split - size : split]) if size else None), payload
