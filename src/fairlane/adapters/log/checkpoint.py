"""Checkpoints and summaries: what makes opening a log take less than reading all of it.

The first record of each segment is a *checkpoint*: which older segments are needed, up to where, and which of their
bodies are alive. So what was dropped before need not be read again, and a segment that is missing is noticed.

When a segment is full, a *summary* of it is written to a file of its own: where its bodies and pages are. Summaries are
a cache: they are not synced, and where one is missing or cannot be read, the segment itself is read. They are bound to
their segment by its salt and the checksum of its last record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from fairlane.adapters.crc32c import crc32c
from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.page_index import PageRun
from fairlane.adapters.log.segment import LogSegment, unpack_alive

_CHECK_BYTES: Final = 4


class ListedSegment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A segment that a checkpoint lists.

    Attributes:
        alive: a bit for each body; empty if all are alive.
    """

    number: int
    slot: int
    salt: int
    size: int
    end: int
    last_check: int
    bodies: int
    alive: bytes


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """The state of a log when a segment was begun.

    Attributes:
        first, base, next_sequence: its extent.
        segments: the older segments that are needed.
    """

    first: int
    base: int
    next_sequence: int
    segments: list[ListedSegment]


class Summary(msgspec.Struct, array_like=True, frozen=True):
    """Where everything in a full segment is.

    Attributes:
        numbers, offsets, lengths, checks: of its bodies, as the bytes of arrays.
        runs: its pages: sequence, next sequence, offset, bytes, whether they are carried.
    """

    number: int
    salt: int
    end: int
    last_check: int
    numbers: bytes
    offsets: bytes
    lengths: bytes
    checks: bytes
    runs: list[tuple[int, int, int, int, bool]]


_encoder = msgspec.msgpack.Encoder()
_checkpoints = msgspec.msgpack.Decoder(Checkpoint)
_summaries = msgspec.msgpack.Decoder(Summary)


def listed(segment: LogSegment) -> ListedSegment:
    """Return the entry of a segment in a checkpoint."""
    return ListedSegment(
        segment.number,
        segment.slot,
        segment.salt,
        segment.size,
        segment.end,
        segment.last_check,
        len(segment.alive),
        segment.pack_alive(),
    )


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of a checkpoint."""
    return _encoder.encode(checkpoint)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return a checkpoint, whose checksum its record has verified. Raises msgspec.DecodeError if it is not one."""
    return _checkpoints.decode(data)


def encode_summary(segment: LogSegment, runs: list[PageRun]) -> bytes:
    """Return the bytes of the summary of a segment, given where its pages are."""
    data = _encoder.encode(
        Summary(
            segment.number,
            segment.salt,
            segment.end,
            segment.last_check,
            segment.numbers.tobytes(),
            segment.offsets.tobytes(),
            segment.lengths.tobytes(),
            segment.checks.tobytes(),
            [(run.sequence, run.next_sequence, run.offset, run.page_bytes, run.is_carried) for run in runs],
        )
    )
    return crc32c(data).to_bytes(_CHECK_BYTES, "little") + data


def write_summary(files: FileSystem, folder: Path, segment: LogSegment, pages: Iterable[PageRun]) -> None:
    """Write the summary of a full segment, which no longer needs the numbers of its bodies then."""
    runs = [run for run in pages if run.segment == segment.number]
    with suppress(OSError):  # it is a cache
        handle = files.create(folder / summary_name(segment.slot))
        try:
            files.write(handle, [encode_summary(segment, runs)], 0)
        finally:
            files.close(handle)
    segment.numbers = array("Q")


def summary_name(slot: int) -> str:
    """Return the name of the summary of the segment in a slot."""
    return f"{slot:06}.summary"


def decode_summary(data: bytes, entry: ListedSegment) -> Summary | None:
    """Return the summary of a listed segment; None if it is damaged, or of another one."""
    if crc32c(data[_CHECK_BYTES:]) != int.from_bytes(data[:_CHECK_BYTES], "little"):
        return None
    try:
        summary = _summaries.decode(data[_CHECK_BYTES:])
    except msgspec.DecodeError:
        return None
    bound = (summary.number, summary.salt, summary.end, summary.last_check, len(summary.offsets))
    return summary if bound == (entry.number, entry.salt, entry.end, entry.last_check, 4 * entry.bodies) else None


def restore(segment: LogSegment, summary: Summary) -> list[PageRun]:
    """Fill the columns of a segment from its summary, and return its runs of pages."""
    segment.numbers.frombytes(summary.numbers)
    segment.offsets.frombytes(summary.offsets)
    segment.lengths.frombytes(summary.lengths)
    segment.checks.frombytes(summary.checks)
    return [
        PageRun(begin, end, segment=segment.number, offset=offset, page_bytes=page_bytes, is_carried=is_carried)
        for begin, end, offset, page_bytes, is_carried in summary.runs
    ]


def set_alive(segment: LogSegment, entry: ListedSegment) -> None:
    """Mark the bodies of a segment that a checkpoint says are alive."""
    segment.alive = unpack_alive(entry.alive, entry.bodies)
    segment.live_count = sum(segment.alive)
    segment.live_bytes = sum(length for length, alive in zip(segment.lengths, segment.alive, strict=True) if alive)
    segment.end, segment.last_check = entry.end, entry.last_check
    segment.packed = entry.alive
    segment.numbers = array("Q")
