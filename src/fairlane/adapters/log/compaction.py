"""Compaction: what is alive in segments that are mostly dead moves to other segments, a little with each commit.

A segment whose bodies and pages are all gone is free. One old message would keep all of its segment, so the segment
with the largest dead part is chosen as the *victim*, and its living bodies and pages are written again, to a segment
that holds only such (``moves``): what has lived long is likely to live on, and is not moved again soon. That begins
when a sixth of the log is dead.

A commit moves at most twice as much as it writes and drops, and a megabyte at most. So compaction keeps up with any
mix of both, costs nothing while nothing changes, and delays no commit for long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from fairlane.adapters.folder.file_system import FileSystem
from fairlane.adapters.log.contents import Contents
from fairlane.adapters.log.reader import FileWindow, Handles, body_of, checked
from fairlane.adapters.log.record import RecordHead
from fairlane.adapters.log.segment import RECORDS_AT, LogSegment, file_name
from fairlane.errors import StoreCorrupt

_PARTS: Final = 32
"""A commit moves at most that part of a segment, so that not much of one stays empty because a record does not fit."""
_CREDIT_RATIO: Final = 2
_DEAD_DIVISOR: Final = 6
"""Compaction begins when the log is dead by more than this part,"""
_VICTIM_DIVISOR: Final = 9
"""and a victim is dead by more than this part."""
_ENTRY_BYTES: Final = 24
_log = logging.getLogger("fairlane.store")


class MovedData(NamedTuple):
    """What is to be written again."""

    bodies: list[tuple[int, bytes]]
    pages: list[tuple[int, int, bytes]]


_NOTHING: Final = MovedData([], [])
_Item = tuple[int, int, bytes]
"""A page, or a body as its number, -1 and its bytes."""
_BODY: Final = -1


class Compactor:
    """Chooses victims and moves what is alive in them."""

    def __init__(self, contents: Contents, files: FileSystem, handles: Handles) -> None:
        self._contents = contents
        self._files = files
        self._handles = handles
        self._credit = 0
        self._looked = 0
        self._is_behind = False
        self._victim: LogSegment | None = None
        self._items: Iterator[_Item] = iter(())

    def is_due(self, written: int, segment_bytes: int) -> bool:
        """Note what a commit has written, and return whether something is to be moved now.

        Args:
            written: how much the commit has written.
            segment_bytes: the size of new segments.
        """
        changed = written + self._contents.freed_bytes
        self._contents.freed_bytes = 0
        self._credit += _CREDIT_RATIO * changed
        if self._credit > segment_bytes // _PARTS:
            self._credit = segment_bytes // _PARTS
        self._looked += changed
        return self._victim is not None or self._is_behind or self._looked >= segment_bytes // 4

    def take(self, segment_bytes: int) -> MovedData:
        """Return what is to be written again now."""
        if self._victim is None:
            self._looked = 0
            self._choose(segment_bytes)
        return self._collect() if self._victim is not None else _NOTHING

    def force(self, segment_bytes: int) -> MovedData:
        """Return what to write again because the disk is short of space."""
        self._credit = segment_bytes // _PARTS
        if self._victim is None:
            self._choose(segment_bytes, is_urgent=True)
        return self._collect() if self._victim is not None else _NOTHING

    def _choose(self, segment_bytes: int, *, is_urgent: bool = False) -> None:
        contents = self._contents
        segments = [each for each in contents.segments.values() if each.number not in contents.written]
        dead = sum(segment.dead_bytes for segment in segments)
        used = sum(segment.end for segment in segments)
        self._is_behind = dead * _DEAD_DIVISOR > used and dead > 2 * segment_bytes
        if not self._is_behind and not is_urgent:
            return
        sparse = [segment for segment in segments if not segment.is_pinned and not segment.is_dead]
        victim = max(sparse, key=lambda segment: segment.dead_bytes / segment.end, default=None)
        if victim is None or victim.dead_bytes * _VICTIM_DIVISOR < victim.end:
            return
        self._victim = victim
        self._items = self._walk(victim)

    def _collect(self) -> MovedData:
        moved = MovedData([], [])
        victim = self._victim
        if victim is None or victim.number not in self._contents.segments:
            self._victim = None
            return moved
        try:
            while self._credit > 0:
                item = next(self._items, None)
                if item is None:
                    self._victim = None
                    break
                begin, end, data = item
                self._credit -= len(data) + _ENTRY_BYTES
                if end == _BODY:
                    moved.bodies.append((begin, data))
                else:
                    moved.pages.append(item)
        except StoreCorrupt as error:
            _log.warning("%s It stays where it is; run `fairlane store check`.", error.cause)
            victim.is_pinned = True
            self._victim = None
        return moved

    def _walk(self, victim: LogSegment) -> Iterator[_Item]:
        """Yield what is alive in a segment, in the order of its records."""
        at, ordinal = RECORDS_AT, 0
        window = FileWindow(self._files, lambda: self._handles.get(victim.slot))
        while at < victim.end and not victim.is_dead:
            span = window.span(at, victim)
            if span is None:
                raise StoreCorrupt(f"{file_name(victim.slot)}: the record at offset {at} cannot be read.")
            if span.has_page and self._is_read_from(victim, span.sequence):
                offset = at + span.head_length
                page = checked(window.read(offset, span.page_length), span.page_check, victim, offset)
                yield span.sequence, span.next_sequence, page
            if span.carried:
                yield from self._carried(victim, at, window)
            if any(victim.alive[ordinal : ordinal + span.bodies]):
                yield from self._bodies(victim, at, ordinal, window)
            ordinal += span.bodies
            at += span.length

    def _bodies(self, victim: LogSegment, at: int, ordinal: int, window: FileWindow) -> Iterator[_Item]:
        head = _head(window, at, victim)
        for place, (number, _, _) in enumerate(head.bodies, ordinal):
            if victim.alive[place]:
                yield number, _BODY, body_of(self._files, self._handles.get(victim.slot), victim, place)

    def _carried(self, victim: LogSegment, at: int, window: FileWindow) -> Iterator[_Item]:
        head = _head(window, at, victim)
        offset = at + head.carried_at
        for begin, end, length, check in head.carried:
            if self._is_read_from(victim, begin):
                yield begin, end, checked(window.read(offset, length), check, victim, offset)
            offset += length

    def _is_read_from(self, victim: LogSegment, sequence: int) -> bool:
        run = self._contents.pages.find(sequence)
        return run is not None and run.sequence <= sequence and run.segment == victim.number


def _head(window: FileWindow, at: int, victim: LogSegment) -> RecordHead:
    head = window.head(at)
    if head is None:
        raise StoreCorrupt(f"{file_name(victim.slot)}: the record at offset {at} cannot be read.")
    return head
