"""Where the pages are: runs of consecutive pages, each found by reading records from an offset on.

A run covers a range of sequences, and the runs cover all that are kept, without gap or overlap. A run of a few hundred
kilobytes takes one entry, however many commits it has. A run is *carried* if its pages were moved from an older
segment: they are all in one record then. Otherwise they are the pages of consecutive commits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final

from fairlane.adapters.log.segment import LogSegment

RUN_BYTES: Final = 256 * 1024
_begin = attrgetter("sequence")


class PageRun:
    """Some consecutive pages.

    Attributes:
        sequence: of the first page.
        next_sequence: after the last page.
        segment: the number of the segment they are in.
        offset: of a record at or before the one that holds the first page.
        page_bytes: roughly how much they take.
        is_carried: whether they are carried pages of that one record.
    """

    __slots__ = ("is_carried", "next_sequence", "offset", "page_bytes", "segment", "sequence")

    def __init__(
        self, sequence: int, next_sequence: int, *, segment: int, offset: int, page_bytes: int, is_carried: bool
    ) -> None:
        self.sequence, self.next_sequence = sequence, next_sequence
        self.segment, self.offset = segment, offset
        self.page_bytes = page_bytes
        self.is_carried = is_carried

    def cut(self, sequence: int, next_sequence: int) -> PageRun | None:
        """Return the part of the run within a range of sequences; None if there is none."""
        begin, end = max(sequence, self.sequence), min(next_sequence, self.next_sequence)
        if begin >= end:
            return None
        share = self.page_bytes * (end - begin) // (self.next_sequence - self.sequence)
        return PageRun(
            begin, end, segment=self.segment, offset=self.offset, page_bytes=share, is_carried=self.is_carried
        )


class PageIndex:
    """The runs of a log, in the order of their sequences."""

    def __init__(self, segments: Mapping[int, LogSegment]) -> None:
        self._segments = segments
        self._runs: list[PageRun] = []

    def __iter__(self) -> Iterator[PageRun]:
        """Yield all runs."""
        return iter(self._runs)

    def find(self, sequence: int) -> PageRun | None:
        """Return the run that holds a sequence, or else the first one after it."""
        at = bisect_right(self._runs, sequence, key=_begin) - 1
        if at < 0 or self._runs[at].next_sequence <= sequence:
            at += 1
        return self._runs[at] if at < len(self._runs) else None

    def append(self, sequence: int, next_sequence: int, *, segment: int, offset: int, page_bytes: int) -> None:
        """Add the page of a commit, which follows on all others."""
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.segment == segment
            and not last.is_carried
            and last.next_sequence == sequence
            and offset - last.offset < RUN_BYTES
        ):
            last.next_sequence = next_sequence
            last.page_bytes += page_bytes
            self._segments[segment].page_bytes += page_bytes
            return
        run = PageRun(sequence, next_sequence, segment=segment, offset=offset, page_bytes=page_bytes, is_carried=False)
        self._count(run)
        self._runs.append(run)

    def assign(self, run: PageRun) -> None:
        """Read the sequences of a run from there, and no longer from where they were."""
        runs, begin, end = self._runs, run.sequence, run.next_sequence
        low = max(bisect_right(runs, begin, key=_begin) - 1, 0)
        high = low
        kept: list[PageRun] = []
        while high < len(runs) and runs[high].sequence < end:
            old = runs[high]
            self._discount(old)
            kept += [part for part in (old.cut(0, begin), old.cut(end, old.next_sequence)) if part is not None]
            high += 1
        kept.append(run)
        kept.sort(key=_begin)
        for each in kept:
            self._count(each)
        runs[low:high] = kept

    def trim(self, first: int) -> int:
        """Forget the pages before a sequence, and return roughly how much they took."""
        gone = page_bytes = 0
        for run in self._runs:
            if run.next_sequence > first:
                break
            self._discount(run)
            gone += 1
            page_bytes += run.page_bytes
        del self._runs[:gone]
        return page_bytes

    def _count(self, run: PageRun) -> None:
        segment = self._segments[run.segment]
        segment.runs += 1
        segment.page_bytes += run.page_bytes

    def _discount(self, run: PageRun) -> None:
        segment = self._segments[run.segment]
        segment.runs -= 1
        segment.page_bytes -= run.page_bytes
