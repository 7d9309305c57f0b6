"""The clock and the randomness of the machine."""

from __future__ import annotations

import random
import time

_MS_NS = 1_000_000


class SystemClock:
    """A ``Clock`` that reads the time of day from the operating system."""

    def now_ms(self) -> int:
        """Return UTC in whole milliseconds."""
        return time.time_ns() // _MS_NS


class SystemEntropy:
    """An ``Entropy`` seeded by the operating system. It spreads retries; it is not fit for secrets."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - it spreads retries; nothing secret depends on it

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to, but excluding, ``bound``."""
        return self._random.randrange(bound)
