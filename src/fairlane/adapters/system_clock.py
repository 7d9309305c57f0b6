"""The clock of the machine."""

from __future__ import annotations

import time

_MS_NS = 1_000_000


class SystemClock:
    """A ``Clock`` that reads the time of day from the operating system."""

    def now_ms(self) -> int:
        """Return UTC in whole milliseconds."""
        return time.time_ns() // _MS_NS
