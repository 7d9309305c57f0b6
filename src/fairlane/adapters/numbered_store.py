"""A store whose sequences begin at a high number, so that ids of several stores never collide.

Partitions of a queue use it: ids and fencing tokens are journal sequences, so the range of a number names its
partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fairlane.ports.store import Commit, Extent, RemoteStore, Store, StoredPage


class NumberedStore:
    """A view of a store, which counts from 1, as one that counts from a higher number; see ``Store`` for the rest.

    Body numbers pass through unchanged: a store accepts any.
    """

    def __init__(self, store: Store, *, first: int) -> None:
        """Wrap a store.

        Args:
            store: the store that keeps everything.
            first: the offset added to each sequence. It must always be the same for the same store.
        """
        self._store = store
        self._first = first
        self.check_owned = store.check_owned
        self.sync = store.sync
        self.size = store.size
        self.close = store.close
        if isinstance(store, RemoteStore):
            self.fetch = store.fetch

    def recover(self) -> Extent:
        """Open or reopen, and return the extent of the store."""
        extent = self._store.recover()
        return Extent(
            first=extent.first + self._first,
            base=extent.base + self._first,
            next_sequence=extent.next_sequence + self._first,
            reserved=extent.reserved + self._first if extent.reserved else 0,
        )

    def write(self, commit: Commit) -> None:
        """Add a commit."""
        self._store.write(
            msgspec.structs.replace(
                commit,
                sequence=commit.sequence - self._first,
                next_sequence=commit.next_sequence - self._first,
                base=commit.base - self._first,
                trim=max(0, commit.trim - self._first),
            )
        )

    def pages(self, after: int) -> Iterator[StoredPage]:
        """Yield the pages that hold sequences greater than ``after``, in order."""
        for stored in self._store.pages(max(0, after - self._first)):
            yield StoredPage(stored.sequence + self._first, stored.next_sequence + self._first, stored.page)

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return bodies in the order of their numbers as given."""
        return self._store.bodies(numbers)
