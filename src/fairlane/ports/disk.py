"""The disk of a store."""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """The disk that a store writes to."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written. Raises OSError if that is unknown."""

    def total_bytes(self) -> int:
        """Return the size of the disk. Raises OSError if that is unknown."""

    def reclaim(self) -> None:
        """Begin to return the space of deleted messages to the disk. The store does the rest in the background.

        For a while that takes as much space as the messages that are left.

        Raises:
            StoreFailed, StoreCorrupt: the store can't.
        """
