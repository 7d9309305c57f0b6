"""The clock of a broker."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A wall clock. It may jump in both directions; the broker derives a time that never goes backwards."""

    def now_ms(self) -> int:
        """Return UTC in milliseconds."""
