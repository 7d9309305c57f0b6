"""Counts of values by upper bound. For one thread at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600)
"""From a millisecond to an hour."""


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
