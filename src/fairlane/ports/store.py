"""Where the broker keeps what must not be lost.

A store is a log of *pages* with a shelf of *bodies* beside it. A page is the journal's records of one commit; a body is
a chunk of payloads, kept out of memory until leased. The store understands neither: it keeps bytes under numbers. All
that the broker knows is a fold over the pages from the *base* on, so a store has no tables to keep in step, and every
technology that can append a batch atomically can be one.

One process writes. A commit is all or nothing, and durable when ``sync`` has returned. After any failure of ``write``
or ``sync`` the broker does not know which; it throws its memory away, calls ``recover``, and reads what there is.

A store that several processes can reach has one *owner* at a time, under an epoch that grows with each. What an owner
of an earlier epoch writes is refused with ``StoreFenced``, and so is all it calls from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happens together or not at all.

    Attributes:
        sequence: the sequence of the first record of the page.
        next_sequence: the sequence after the last; the next commit begins there.
        page: the records, as bytes.
        bodies: new bodies, each under a number that was never used before.
        dropped: numbers of bodies that are no longer needed. One may be dropped by the very commit that adds it.
        base: where recovery begins: pages that end before it are needed by readers only. It never goes back.
        trim: the pages that end at or before this sequence may be deleted. It never exceeds the base.
    """

    sequence: int
    next_sequence: int
    page: bytes
    bodies: Sequence[tuple[int, bytes]] = ()
    dropped: Sequence[int] = ()
    base: int
    trim: int = 0


class StoredPage(msgspec.Struct, frozen=True, gc=False):
    """One page of the log: the sequences from ``sequence`` up to and without ``next_sequence``."""

    sequence: int
    next_sequence: int
    page: bytes


class Extent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a store reaches.

    Attributes:
        first: the sequence of the first page that is kept; ``next_sequence`` when none is.
        base: where recovery begins, as the last commit said; 1 in a new store.
        next_sequence: where the next commit begins; 1 in a new store.
    """

    first: int
    base: int
    next_sequence: int


class Store(Protocol):
    """A durable log of pages and a shelf of bodies. Not thread-safe, but ``sync`` may run beside reads.

    Every method may raise ``StoreFailed``, and ``StoreFenced`` when another process has taken over.
    """

    def recover(self) -> Extent:
        """Open, or open anew after a failure, and return how far the store reaches.

        What was not durable may be there or not, but each commit is there whole or not at all, and none without all
        that came before it.
        """

    def check_owned(self) -> None:
        """Make sure that the store is still this process's, as far as that can be told without asking it.

        A process that was paused for so long that another may have taken over does ask. One that is the only one who
        can reach its store has nothing to check.

        Raises:
            StoreFenced: another process has taken over.
        """

    def write(self, commit: Commit) -> None:
        """Add a commit. It is visible to reads, but may be lost until ``sync`` returns."""

    def sync(self) -> None:
        """Make everything written so far as durable as the store was told to be."""

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies by number, in the order asked; None for one that is not there."""

    def size(self) -> int:
        """Return about how many bytes the store takes."""

    def close(self) -> None:
        """Let go of everything, durably. Nothing may be called afterwards but ``recover``."""
