"""The randomness of a broker."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    """A source of random numbers that spreads retries. Nothing secret depends on it."""

    def below(self, bound: int) -> int:
        """Return an integer from 0 up to, but excluding, ``bound``."""
