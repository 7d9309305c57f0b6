"""Reading records, pages and bodies of segments, each checked against its checksum."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fairlane.adapters.crc32c import crc32c
from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.page_index import PageRun
from fairlane.adapters.log.record import HEAD_BYTES, PageSpan, RecordHead, decode_head, head_length_at, page_span
from fairlane.adapters.log.segment import LogSegment, file_name
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import StoredPage

_WINDOW_BYTES: Final = 64 * 1024
_HANDLES_MAX: Final = 64


class Handles:
    """Open handles of segments: that of the active segment, and those that were used last."""

    def __init__(self, files: FileSystem, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._open: OrderedDict[int, int] = OrderedDict()

    def get(self, slot: int) -> int:
        """Return the handle of the file in a slot."""
        handle = self._open.get(slot)
        if handle is None:
            handle = self._open[slot] = self._files.open(self._folder / file_name(slot))
            if len(self._open) > _HANDLES_MAX:
                _, oldest = self._open.popitem(last=False)
                self._files.close(oldest)
        else:
            self._open.move_to_end(slot)
        return handle

    def drop(self, slot: int) -> None:
        """Close the handle of a slot."""
        handle = self._open.pop(slot, None)
        if handle is not None:
            self._files.close(handle)

    def close(self) -> None:
        """Close all handles."""
        while self._open:
            _, handle = self._open.popitem()
            self._files.close(handle)


class FileWindow:
    """Reads a file piece by piece, mostly forwards, with few calls of the operating system."""

    def __init__(self, files: FileSystem, handle: Callable[[], int]) -> None:
        """Open a window on a file. Each read calls ``handle`` again, since the file may have been closed meanwhile."""
        self._files = files
        self._handle = handle
        self._at = 0
        self._data = b""

    def read(self, at: int, count: int) -> bytes:
        """Return bytes at an offset; fewer if the file ends before."""
        begin = at - self._at
        if begin < 0 or begin + count > len(self._data):
            self._data = self._files.read(self._handle(), max(count, _WINDOW_BYTES), at)
            self._at, begin = at, 0
        return self._data[begin : begin + count]

    def span(self, at: int, segment: LogSegment) -> PageSpan | None:
        """Return the span of the record of a segment at an offset; None if it can't be read."""
        begin = at - self._at
        if 0 <= begin <= len(self._data) - HEAD_BYTES:
            span = page_span(self._data, begin, segment.number, segment.salt)
            if span is not None:
                return span
        head = self.head(at)  # it reaches beyond what was read, or is damaged
        return page_span(self._data, at - self._at, segment.number, segment.salt) if head is not None else None

    def head(self, at: int) -> RecordHead | None:
        """Return the head of the record at an offset; None if there is none."""
        data = self.read(at, HEAD_BYTES)
        length = head_length_at(data, 0)
        if length > _WINDOW_BYTES and at + length > self._files.size(self._handle()):
            return None  # it is damaged, and its counts may be anything
        return decode_head(data if length == HEAD_BYTES else self.read(at, length), 0) if length else None


def belongs(head: RecordHead | None, segment: LogSegment) -> bool:
    """Return whether a record was written to a segment, and not in an earlier use of its file."""
    return head is not None and head.stamp.salt == segment.salt and head.stamp.segment == segment.number


def pages_of(window: FileWindow, segment: LogSegment, run: PageRun, sequence: int) -> Iterator[StoredPage]:
    """Yield the pages of a run from the one that holds a sequence on.

    Raises:
        StoreCorrupt: one cannot be read.
    """
    if run.is_carried:
        yield from _carried(window, segment, run, sequence)
        return
    at = run.offset
    expected = -1
    while expected < run.next_sequence:
        head = window.head(at) if at < segment.end else None
        if head is None or not belongs(head, segment):
            raise StoreCorrupt(f"{file_name(segment.slot)}: the record at offset {at} cannot be read.")
        if head.has_page:
            expected = head.next_sequence
            if head.sequence >= run.sequence and head.next_sequence > sequence:
                page = checked(window.read(at + head.head_length, head.page_length), head.page_check, segment, at)
                yield StoredPage(head.sequence, head.next_sequence, page)
        at += head.length


def _carried(window: FileWindow, segment: LogSegment, run: PageRun, sequence: int) -> Iterator[StoredPage]:
    head = window.head(run.offset)
    if head is None or not belongs(head, segment):
        raise StoreCorrupt(f"{file_name(segment.slot)}: the record at offset {run.offset} cannot be read.")
    at = run.offset + head.carried_at
    for begin, end, length, check in head.carried:
        if run.sequence <= begin < run.next_sequence and end > sequence:
            yield StoredPage(begin, end, checked(window.read(at, length), check, segment, at))
        at += length


def checked(page: bytes, check: int, segment: LogSegment, at: int) -> bytes:
    """Return a page. Raises StoreCorrupt unless it has its checksum."""
    if crc32c(page) != check:
        raise StoreCorrupt(f"{file_name(segment.slot)}: the page at offset {at} is damaged.")
    return page


def body_of(files: FileSystem, handle: int, segment: LogSegment, ordinal: int) -> bytes:
    """Return a body of a segment.

    Raises:
        StoreCorrupt: it is damaged.
    """
    offset = segment.offsets[ordinal]
    body = files.read(handle, segment.lengths[ordinal], offset)
    if crc32c(body) != segment.checks[ordinal]:
        raise StoreCorrupt(f"{file_name(segment.slot)}: the body at offset {offset} is damaged.")
    return body
