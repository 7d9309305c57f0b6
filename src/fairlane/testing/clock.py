"""A clock and a source of randomness that a test controls."""

from __future__ import annotations

import random


class FakeClock:
    """A clock that a test moves: time passes with ``advance``, and ``jump`` sets the wall clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Return the current time of the wall clock."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return how much time has passed."""
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward, as time does.

        Raises:
            ValueError: ``ms`` is negative; use ``jump`` to set the wall clock back.
        """
        if ms < 0:
            raise ValueError(f"Time can't pass backwards by {ms} ms. Use jump() to set the wall clock back.")
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forward, or back by a negative number, without time passing."""
        self._now_ms += ms


class SeededEntropy:
    """Randomness that a seed determines."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        """Return an integer from 0 up to, but not including, the bound."""
        return self._random.randrange(bound)
