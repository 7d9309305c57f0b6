"""A clock and a source of randomness that a test controls."""

from __future__ import annotations

import random


class FakeClock:
    """A clock that moves only when a test moves it, forwards or backwards."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the current time of the clock."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the clock by a number of milliseconds; a negative number sets it back."""
        self._now_ms += ms


class SeededEntropy:
    """Randomness that a seed determines."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        """Return an integer from 0 up to, but not including, the bound."""
        return self._random.randrange(bound)
