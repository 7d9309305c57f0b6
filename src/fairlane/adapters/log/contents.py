"""What a log holds: a fold over its records, the same while they are written and when they are read again.

A commit adds a page and bodies, and drops bodies. What compaction moved adds pages and bodies that are known already:
they count from their new place on.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.adapters.log.body_index import BodyIndex
from fairlane.adapters.log.page_index import PageIndex, PageRun
from fairlane.adapters.log.record import CHECKPOINT, MOVED, PageEntry, RecordHead
from fairlane.adapters.log.segment import LogSegment
from fairlane.adapters.succession import EMPTY
from fairlane.ports.store import Extent


class Contents:
    """Segments, and where each page and body is in them.

    Attributes:
        segments: by their numbers, in order.
        written: the numbers of those that are written to.
        last_number: the greatest number that was ever seen in a header. Numbers are not used again.
        freed_bytes: how much was dropped since this was last set to 0.
        has_died: whether a segment may have lost the last that it held, since this was last set to False.
    """

    def __init__(self) -> None:
        self.segments: dict[int, LogSegment] = {}
        self.written: set[int] = set()
        self.last_number = 0
        self.bodies = BodyIndex()
        self.pages = PageIndex(self.segments)
        self.extent = EMPTY
        self.freed_bytes = 0
        self.has_died = False

    @property
    def last(self) -> LogSegment | None:
        """Return the segment with the greatest number; None if there is none."""
        return self.segments[next(reversed(self.segments))] if self.segments else None

    def begin(self, segment: LogSegment) -> None:
        """Add a new segment, which is written to."""
        self.segments[segment.number] = segment
        self.written.add(segment.number)
        self.last_number = segment.number

    def dead(self) -> list[LogSegment]:
        """Return the segments that hold nothing that is needed, and are not written to."""
        return [each for each in self.segments.values() if each.is_dead and each.number not in self.written]

    def apply(self, segment: LogSegment, at: int, head: RecordHead) -> None:
        """Follow a record at an offset of a segment."""
        segment.end = at + head.length
        segment.last_check = head.check
        if head.kind == CHECKPOINT:
            return
        if head.carried:
            for run in carried_runs(head.carried, segment.number, at):
                segment.payload_bytes += run.page_bytes
                self.pages.assign(run)
        if head.bodies:
            self._add_bodies(segment, at, head)
        if head.kind == MOVED:
            return
        if head.next_sequence > head.sequence >= head.first:
            page_bytes = head.page_length
            segment.payload_bytes += page_bytes
            self.pages.append(
                head.sequence, head.next_sequence, segment=segment.number, offset=at, page_bytes=page_bytes
            )
        for number in head.dropped:
            self._drop(number)
        if head.first > self.extent.first:
            self.freed_bytes += self.pages.trim(head.first)
            self.has_died = True
        self.extent = Extent(first=head.first, base=head.base, next_sequence=head.next_sequence)

    def _add_bodies(self, segment: LogSegment, at: int, head: RecordHead) -> None:
        offset = at + head.bodies_at
        put, number_of_segment = self.bodies.put, segment.number
        for number, length, check in head.bodies:
            before = put(number, number_of_segment, segment.add(number, offset, length, check))
            if before is not None:
                self._kill(*before)
            offset += length

    def _drop(self, number: int) -> None:
        place = self.bodies.remove(number)
        if place is not None:
            self.freed_bytes += self._kill(*place)

    def _kill(self, number: int, ordinal: int) -> int:
        segment = self.segments[number]
        length = segment.kill(ordinal)
        if segment.is_dead:
            self.has_died = True
        return length


def carried_runs(carried: Sequence[PageEntry], segment: int, at: int) -> list[PageRun]:
    """Return the runs of consecutive pages that a record carries."""
    runs: list[PageRun] = []
    for begin, end, length, _ in carried:
        if runs and runs[-1].next_sequence == begin:
            runs[-1].next_sequence = end
            runs[-1].page_bytes += length
        else:
            runs.append(PageRun(begin, end, segment=segment, offset=at, page_bytes=length, is_carried=True))
    return runs
