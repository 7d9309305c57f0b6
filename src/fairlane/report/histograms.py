"""Reading the histograms of the tables: merged by adding up, and asked for percentiles.

A value below 64 has a bucket of its own; above, each power of two is split into 32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

_SPLIT = 32

Entries = Iterable[Mapping[str, int]]


def greatest_in(bucket: int) -> int:
    """Return the greatest value of a bucket."""
    shift = max(bucket // _SPLIT - 1, 0)
    return (bucket - shift * _SPLIT + 1 << shift) - 1


class Histogram:
    """Whole numbers of milliseconds, counted by bucket."""

    __slots__ = ("_counts", "most")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.most = 0

    def add(self, entries: Entries | None, *, most: int | None) -> None:
        """Add what a row of a table tells, with the greatest value it knows."""
        for entry in entries or ():
            self._counts[entry["bucket"]] += entry["count"]
        self.most = max(self.most, most or 0)

    @property
    def count(self) -> int:
        """How many values there are."""
        return self._counts.total()

    def percentile(self, part: float) -> int | None:
        """Return the least value that at least a part of all do not exceed, to one part in 32; None without values."""
        wanted, passed = ceil(self.count * part), 0
        for bucket, count in sorted(self._counts.items()):
            passed += count
            if passed >= wanted:
                return min(greatest_in(bucket), self.most)
        return None
