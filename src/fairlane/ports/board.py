"""A board: a few named values that all nodes of a cluster read, changed by compare-and-set only.

A board says who *should* own what. What keeps messages safe is the store, which fences owners by their epochs; a board
that is read late costs time, and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One value on a board, and which version of it.

    Attributes:
        version: changes with every change of the value; nothing else about it means anything.
    """

    value: bytes
    version: str


class Board(Protocol):
    """A shared table of small values, for any number of threads.

    Every method may block, and may raise ``StoreFailed``; a change may then have been made or not, or be made yet.
    """

    def read(self) -> dict[str, Entry]:
        """Return everything on the board, as it was at one moment of the call for each entry."""

    def put(self, name: str, value: bytes, *, version: str | None) -> Entry | None:
        """Change an entry whose version is given, or with None make one that is not there yet.

        Returns the new entry, durable; or None if it has another version by now, and then nothing was changed.
        """

    def remove(self, name: str, *, version: str) -> bool:
        """Remove an entry of a version; return False if it has another by now, and then nothing was changed."""

    def wait(self, timeout_s: float) -> None:
        """Return when something may have changed since this thread has read, or after this time at the latest."""

    def close(self) -> None:
        """Let go of everything."""
