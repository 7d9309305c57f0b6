"""When a consumer that failed begins again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How a consumer begins again after it could not begin or was ended; whatever comes to it makes it begin afresh.

    Attributes:
        immediate: how many times at once.
        first_s: the wait before the next time.
        factor: what the wait is multiplied with each time.
        longest_s: the longest it becomes.
        jitter: which part of a wait is left to chance, from 0 to 1.
        failures_max: after how many failures in a row it gives up; None for never.
    """

    immediate: int = 3
    first_s: float = 0.25
    factor: float = 2.0
    longest_s: float = 300.0
    jitter: float = 0.25
    failures_max: int | None = None

    def waits_s(self) -> Iterator[float]:
        """Return how long to wait after each failure, as many times as it may fail."""
        failures, wait_s = 0, self.first_s
        while self.failures_max is None or failures + 1 < self.failures_max:
            if failures < self.immediate:
                yield 0.0
            else:
                yield wait_s * (1 - self.jitter * random.random())  # noqa: S311 - nothing secret about a pause
                wait_s = min(wait_s * self.factor, self.longest_s)
            failures += 1
