"""The clock of a broker."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A wall clock, which may jump in both directions, and a monotonic clock, which measures durations.

    ``fairlane.broker.steady_time`` derives the broker's time from both.
    """

    def now_ms(self) -> int:
        """Return UTC in milliseconds."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since some fixed instant; never fewer than before, and no jump changes them."""
