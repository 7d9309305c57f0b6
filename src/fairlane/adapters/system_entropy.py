"""Chance, seeded by the machine."""

from __future__ import annotations

import random


class SystemEntropy:
    """An ``Entropy`` that nobody can foresee who does not see its throws; enough to spread retries."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311  it spreads retries, and nothing secret depends on it

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to, and without, the bound."""
        return self._random.randrange(bound)
