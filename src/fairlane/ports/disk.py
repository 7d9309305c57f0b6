"""The disk of a store."""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """What is known about the disk that a store writes to. Both may raise ``OSError``."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""

    def total_bytes(self) -> int:
        """Return the size of the disk."""
