"""The time of day, as the shell is handed it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time. It may jump either way; the broker makes of it a time that only goes forward."""

    def now_ms(self) -> int:
        """Return UTC in whole milliseconds."""
