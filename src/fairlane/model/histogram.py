"""Histograms: counts of values by bucket. For one thread at a time.

There are two kinds. ``Histogram`` counts by fixed upper bounds, as Prometheus wants them. ``LogHistogram`` counts whole
numbers on a logarithmic scale, on which each power of two is split into ``2 ** bits`` buckets: a bucket tells a value
to one part in ``2 ** bits``, values below ``2 ** (bits + 1)`` have a bucket of their own, and two histograms merge
without loss by adding counts. The scheduler's statistics, the pipeline's tables and the report all use this scale;
Spark computes it in SQL (``spark/tables/histogram.py``), and a test compares the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600)
"""From a millisecond to an hour."""
TABLE_BITS: Final = 5
"""The precision of the pipeline's tables: one part in 32."""


class Histogram:
    """Counts of values by upper bound, and their sum.

    Attributes:
        bounds: ascending upper bounds; values above all of them are counted too.
        counts: how many values lie between a bound and the one before; one more entry than bounds.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def note(self, value: float, count: int = 1) -> None:
        """Count a value ``count`` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram with the same bounds."""
        if self.bounds != other.bounds:
            raise ValueError("Histograms with different bounds cannot be added.")
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


def bucket_of(value: int, bits: int = TABLE_BITS) -> int:
    """Return the bucket of a whole number on the logarithmic scale."""
    shift = max(0, value.bit_length() - bits - 1)
    return (shift << bits) + (value >> shift)


def greatest_in(bucket: int, bits: int = TABLE_BITS) -> int:
    """Return the greatest value in a bucket of the logarithmic scale."""
    shift = max(0, (bucket >> bits) - 1)
    return ((bucket - (shift << bits) + 1) << shift) - 1


class LogHistogram:
    """Whole numbers, counted on the logarithmic scale of the pipeline's tables.

    Attributes:
        most: the greatest value, exactly.
    """

    __slots__ = ("_counts", "most")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.most = 0

    def add(self, entries: Iterable[Mapping[str, int]] | None, *, most: int | None) -> None:
        """Add the entries of a table's row, each with ``bucket`` and ``count``, and the row's greatest value."""
        for entry in entries or ():
            self._counts[entry["bucket"]] += entry["count"]
        self.most = max(self.most, most or 0)

    def count_bucket(self, bucket: int, count: int) -> None:
        """Count ``count`` values in a bucket."""
        self._counts[bucket] += count

    @property
    def count(self) -> int:
        """How many values there are."""
        return self._counts.total()

    def percentile(self, part: float) -> int | None:
        """Return the least value that a part of all values does not exceed, to one part in 32; None without values."""
        wanted, passed = ceil(self.count * part), 0
        for bucket, count in sorted(self._counts.items()):
            passed += count
            if passed >= wanted:
                return min(greatest_in(bucket), self.most)
        return None
