"""Chance, as the shell is handed it."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    """Throws dice, to spread retries. Nothing secret depends on it."""

    def below(self, bound: int) -> int:
        """Return a whole number from 0 up to, and without, the bound."""
