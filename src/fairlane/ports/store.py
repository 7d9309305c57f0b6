"""The store: what makes commits durable.

A store is a log of *pages* and a table of *bodies*. A page holds the journal's records of one commit; a body is a chunk
of payloads, kept out of memory until leased. The store understands neither: it keeps bytes under numbers. All state of
the broker is a fold over the pages from the *base* on, so a store has no tables to keep consistent, and any technology
that can append a batch atomically can be one.

One process writes. A commit is atomic, and durable when ``sync`` has returned. After any failure of ``write`` or
``sync`` its outcome is unknown; the broker discards its memory, calls ``recover``, and reads the pages again.

A store that several processes can reach has one *owner* at a time, under an epoch that grows with each. A write of an
owner of an earlier epoch is refused with ``StoreFenced``, and so is every later call of that owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An atomic change of a store.

    Attributes:
        sequence: the sequence of the first record of the page.
        next_sequence: the sequence after the last record; the next commit begins there.
        page: the encoded records.
        bodies: new bodies, each under a number that was never used before.
        dropped: numbers of bodies that are no longer needed. A commit may drop a body that it adds.
        base: where recovery begins; pages that end before it are needed only by readers. It never goes back.
        trim: pages that end at or before this sequence may be deleted. It never exceeds the base.
    """

    sequence: int
    next_sequence: int
    page: bytes
    bodies: Sequence[tuple[int, bytes]] = ()
    dropped: Sequence[int] = ()
    base: int
    trim: int = 0


class StoredPage(msgspec.Struct, frozen=True, gc=False):
    """One page of the log: the sequences from ``sequence`` up to, but excluding, ``next_sequence``."""

    sequence: int
    next_sequence: int
    page: bytes


class Extent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The range of sequences that a store holds.

    Attributes:
        first: the sequence of the first page that is kept; ``next_sequence`` if none is.
        base: where recovery begins, according to the last commit; 1 in a new store.
        next_sequence: where the next commit begins; 1 in a new store.
        reserved: sequences before it may have been issued, though the store does not hold them, and must not be issued
            again: the store was not closed, or has lost its end. 0 if there are none such.
    """

    first: int
    base: int
    next_sequence: int
    reserved: int = 0


class Store(Protocol):
    """A durable log of pages and a table of bodies. Not thread-safe, but ``sync`` may run concurrently with reads.

    Every method may raise ``StoreFailed``, and ``StoreFenced`` when another process has taken over.
    """

    def recover(self) -> Extent:
        """Open, or reopen after a failure, and return the extent of the store.

        Commits that were not durable may have survived or not, but each survives completely or not at all, and none
        without all commits before it.
        """

    def check_owned(self) -> None:
        """Make sure that this process still owns the store, without a request if possible.

        A process that was silent long enough for another to take over asks the store. A store that only one
        process can reach has nothing to check.

        Raises:
            StoreFenced: another process has taken over.
        """

    def write(self, commit: Commit) -> None:
        """Add a commit. It is visible to reads, but may be lost until ``sync`` returns."""

    def sync(self) -> None:
        """Make everything written so far durable, at the configured level."""

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given; None for one that is missing."""

    def size(self) -> int:
        """Return the approximate size of the store in bytes."""

    def close(self) -> None:
        """Close durably. Only ``recover`` may be called afterwards."""


@runtime_checkable
class RemoteStore(Protocol):
    """A store whose reads of bodies are requests that take long, so that they are made beside everything else."""

    def fetch(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies as ``bodies`` does. May run in any thread and at any time; other calls do not wait for it.

        A body that is dropped meanwhile is returned, or missing, or the store is reported to be corrupt.
        """
