"""A board: a few named values that all nodes of a cluster read, changed only by compare-and-set.

A board says which node *should* own what. Safety comes from the stores, which fence owners by epoch; a stale board
costs time, and nothing else.

A board may also know which processes are connected to it. A process that ends loses its connection at once, so others
learn of its end long before they miss its heartbeats. Boards that can't tell ignore ``attend`` and report no process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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

    def attend(self, process: str, on_lost: Callable[[], None]) -> None:
        """Show to others from now on that this process is connected, under a name that is used for one connection.

        When the connection is lost, ``on_lost`` is called in any thread. A process that lives goes on by attending
        under a new name.
        """

    def ended(self, processes: Collection[str]) -> frozenset[str]:
        """Return those of the processes that were connected, and are no longer, for good. It does not block.

        A process that lives may be among them, if it has lost its connection and goes on under a new name.
        """

    def is_attending(self) -> bool:
        """Return whether no other process can have reported this one as ended. It does not block."""

    def close(self) -> None:
        """Release all resources."""
