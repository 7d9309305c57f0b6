"""Time and chance that a test commands."""

from __future__ import annotations

import random


class FakeClock:
    """A clock that moves only when told to, either way."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time it was last set to."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let so many milliseconds pass; with a negative number set the clock back."""
        self._now_ms += ms


class SeededEntropy:
    """Chance that is the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to, and without, the bound."""
        return self._random.randrange(bound)
