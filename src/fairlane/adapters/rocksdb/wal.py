"""RocksDB's write-ahead log, as far as it takes to tell damage from a torn end.

A log is a sequence of 32 KiB blocks. A block holds fragments: a masked CRC-32C, a length, a type, and data. A write
batch is one fragment, or a first, some middle and a last one. A batch begins with a sequence number of RocksDB's own
and a count; the next batch begins with the sum of both. Ours end with the extent of the store, so the last eight bytes
of a batch tell up to which sequence of the journal it reaches.

After a power loss, the end of a log may hold anything, but only the last commit can be affected, since each commit is
synced before the next is written. So whatever is unreadable is a torn end if no batch *begins* after it, and damage if
one does. Later fragments of the same batch mean nothing: the disk may have written them first.

RocksDB itself stops reading at the first fragment that it cannot read, and drops the rest without an error.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlane.adapters.crc32c import crc32c

BLOCK_BYTES = 32 * 1024
_HEADER = struct.Struct("<IHB")
_TYPE_AT = 6
_RECYCLED_NUMBER_BYTES = 4
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLED = 4
"""What is added to a type if its fragment also names its log, because the file was used before."""
_TYPES_MAX = _LAST + _RECYCLED
_IGNORED_TYPES = frozenset({9, 10, 11, 130, 131})
"""Fragments that are about the log itself: compression, sizes of timestamps, the log before."""
_KNOWN_TYPES = frozenset(range(_FULL, _TYPES_MAX + 1)) | _IGNORED_TYPES
_A_TYPE = re.compile(b"[\x01-\x08]")
_BATCH_HEADER = struct.Struct("<QI")
_EXTENT_END = b"\x01\x06extent\x18"
"""How the last operation of a batch begins: put, in the default family, the key, and 24 bytes of value."""
_EXTENT_BYTES = 24


class BatchRun(NamedTuple):
    """Consecutive write batches that are complete, have the right checksums and follow on each other.

    Attributes:
        offset: where the first begins in its log.
        end: where the last ends.
        sequence: RocksDB's number of the first operation.
        next_sequence: the number after the last.
        commits: how many batches there are.
        reach: the next sequence of the journal after the last; 0 if they do not say.
    """

    offset: int
    end: int
    sequence: int
    next_sequence: int
    commits: int
    reach: int


class Unreadable(NamedTuple):
    """A part of a log that holds no readable batch."""

    offset: int
    end: int


def read_log(path: Path) -> Iterator[BatchRun | Unreadable]:
    """Yield the batches of a log and the parts between them that cannot be read, in order."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _runs(data)


def _runs(data: mmap.mmap) -> Iterator[BatchRun | Unreadable]:
    # A log may hold half a million batches, so this loop does as little as possible for each: what a batch says about
    # the journal is looked up only in the last of a run.
    started = ended = sequence = expected = commits = 0
    last = b""
    for offset, end, content in _batches(data):
        if content is None:
            if commits:
                yield BatchRun(started, ended, sequence, expected, commits, _reach(last))
                commits = 0
            yield Unreadable(offset, end)
            continue
        number, operations = _BATCH_HEADER.unpack_from(content, 0)
        if commits and number == expected:
            commits += 1
        else:
            if commits:
                yield BatchRun(started, ended, sequence, expected, commits, _reach(last))
            started, sequence, commits, last = offset, number, 1, b""
        if operations:
            last = content
        ended, expected = end, number + operations
    if commits:
        yield BatchRun(started, ended, sequence, expected, commits, _reach(last))


def _reach(content: bytes) -> int:
    """Return the next sequence of the journal after a batch; 0 if it does not say."""
    if content[-_EXTENT_BYTES - len(_EXTENT_END) : -_EXTENT_BYTES] != _EXTENT_END:
        return 0
    return int.from_bytes(content[-8:], "big")


def _batches(data: mmap.mmap) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield offset, end and content of each batch; None for a part that cannot be read.

    The rest of a batch whose beginning is unreadable is no batch, and is left out.
    """
    started_at, parts = -1, list[bytes]()
    for offset, end, kind, content in _fragments(data):
        if kind == _FULL and len(content) >= _BATCH_HEADER.size:
            started_at = -1
            yield offset, end, content
        elif kind == 0:
            started_at = -1
            yield offset, end, None
        elif kind == _FIRST:
            started_at, parts = offset, [content]
        elif started_at >= 0:
            parts.append(content)
            if kind == _LAST:
                yield started_at, end, b"".join(parts)
                started_at = -1
    if started_at >= 0:
        yield started_at, len(data), None


def _fragments(data: mmap.mmap) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield offset, end, type and content of each fragment; type 0 for a part that cannot be read."""
    position, size = 0, len(data)
    while size - position >= _HEADER.size:
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < _HEADER.size:  # too little for a header: zeros fill the block
            position += left
            continue
        masked, length, kind = _HEADER.unpack_from(data, position)
        end = position + _HEADER.size + length
        if kind <= _LAST and length + _HEADER.size <= left and kind:
            checked = data[position + _TYPE_AT : end]
            if crc32c(checked) == _unmasked(masked) and end <= size:
                yield position, end, kind, checked[1:]
                position = end
                continue
        end = _valid_end(data, position)
        if not end:
            end = _next_valid(data, position)
            yield position, end, 0, b""
        elif kind <= _TYPES_MAX:
            skipped = _HEADER.size + _RECYCLED_NUMBER_BYTES
            yield position, end, kind - _RECYCLED, data[position + skipped : end]
        position = end
    if position < size:
        yield position, size, 0, b""


def _unmasked(masked: int) -> int:
    """Return a checksum as it was before RocksDB masked it, so that data with checksums in it can be checked too."""
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return rotated >> 17 | rotated << 15 & 0xFFFFFFFF


def _valid_end(data: mmap.mmap, position: int) -> int:
    """Return where the fragment at a position ends; 0 if there is none with the right checksum."""
    masked, length, kind = _HEADER.unpack_from(data, position)
    if kind not in _KNOWN_TYPES:
        return 0
    end = position + _HEADER.size + length
    if _RECYCLED < kind <= _TYPES_MAX or kind in (11, 131):
        end += _RECYCLED_NUMBER_BYTES
    if end > len(data) or end > position - position % BLOCK_BYTES + BLOCK_BYTES:
        return 0
    return end if crc32c(data[position + _TYPE_AT : end]) == _unmasked(masked) else 0


def _next_valid(data: mmap.mmap, position: int) -> int:
    """Return where the next valid fragment after an invalid one begins; the end of the log if there is none.

    The length in the invalid one cannot be trusted, so every byte that could be a type is tried. That takes seconds for
    a hundred megabytes of noise, and is needed only where something is wrong.
    """
    for match in _A_TYPE.finditer(data, position + _TYPE_AT + 1):
        start = match.start() - _TYPE_AT
        if BLOCK_BYTES - start % BLOCK_BYTES >= _HEADER.size and _valid_end(data, start):
            return start
    return len(data)
