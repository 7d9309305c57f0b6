"""A store whose sequences begin far above those of others, so that what is in several stores can be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fairlane.ports.store import Commit, Extent, Store, StoredPage


class NumberedStore:
    """Another store, which counts from 1, as one that counts from a greater number; see ``Store`` for the rest.

    Bodies have the numbers they are given: a store does not care which these are.
    """

    def __init__(self, store: Store, *, first: int) -> None:
        """Count from a number.

        Args:
            store: where everything is kept.
            first: what is added to each of its sequences. It must always be the same for the same store.
        """
        self._store = store
        self._first = first
        self.check_owned = store.check_owned
        self.sync = store.sync
        self.size = store.size
        self.close = store.close

    def recover(self) -> Extent:
        """Open, or open anew, and return how far the store reaches."""
        extent = self._store.recover()
        return Extent(
            first=extent.first + self._first,
            base=extent.base + self._first,
            next_sequence=extent.next_sequence + self._first,
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
        """Return bodies by number, in the order asked."""
        return self._store.bodies(numbers)
