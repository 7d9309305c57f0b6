"""The clock, the disk and the randomness of the machine."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MS_NS = 1_000_000
_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The monotonic clock that also counts while the machine sleeps: leases end during that time as during any other.

On Linux that is CLOCK_BOOTTIME; on macOS CLOCK_MONOTONIC does it, unlike ``time.monotonic``.
"""


class SystemClock:
    """A ``Clock`` that reads the time of day and the time since the start from the operating system."""

    def now_ms(self) -> int:
        """Return UTC in whole milliseconds."""
        return time.time_ns() // _MS_NS

    def monotonic_ms(self) -> int:
        """Return the time since the machine was started in whole milliseconds, sleep included."""
        return time.clock_gettime_ns(_MONOTONIC) // _MS_NS


class SystemDisk:
    """A ``Disk``: the file system that the folder of a store is on."""

    def __init__(self, folder: Path, *, reclaim: Callable[[], None]) -> None:
        self._folder = folder
        self.reclaim = reclaim

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""
        return shutil.disk_usage(self._folder).free

    def total_bytes(self) -> int:
        """Return the size of the file system."""
        return shutil.disk_usage(self._folder).total


class SystemEntropy:
    """An ``Entropy`` seeded by the operating system. It spreads retries; it is not fit for secrets."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - it spreads retries; nothing secret depends on it

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to, but excluding, ``bound``."""
        return self._random.randrange(bound)
