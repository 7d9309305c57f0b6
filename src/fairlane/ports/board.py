"""A board: a few named values that all nodes of a cluster read, changed only by compare-and-set.

A board says which node *should* own what. Safety comes from the stores, which fence owners by epoch; a stale board
costs time, and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One value on a board, with its version.

    Attributes:
        version: an opaque string that changes with every change of the value.
    """

    value: bytes
    version: str


class Board(Protocol):
    """A shared table of small values, for any number of threads.

    Every method may block, and may raise ``StoreFailed``. A change may then have been made, or not, or still be made.
    """

    def read(self) -> dict[str, Entry]:
        """Return all entries, each as it was at some instant during the call."""

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry of a version, or with None create one that does not exist yet.

        Return the new entry, which is durable; or None, with nothing changed, if it has another version by now.
        """

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version. Return False, with nothing changed, if it has another version by now."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have changed since this thread last read, or the time is up."""

    def close(self) -> None:
        """Release all resources."""
