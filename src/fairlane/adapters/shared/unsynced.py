"""Commits that were written but not synced, for stores that send nothing before ``sync``.

Commits are merged as they come, so that a store sends one change (a transaction, an object) for all of them. Reads look
here first. Merging also cancels work out: a body that is added and dropped between two syncs never leaves the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.adapters.succession import check_follows, extent_after, keeps_page
from fairlane.ports.store import Commit, Extent, StoredPage


class Unsynced:
    """Consecutive commits, merged into one change.

    Attributes:
        before: the extent of the store without them.
        after: the extent of the store with them.
        pages: the new pages to keep.
        bodies: the new bodies to keep.
        dropped: the bodies in the store that are no longer needed.
        count: the number of commits.
    """

    def __init__(self, extent: Extent) -> None:
        self.before = self.after = extent
        self.pages: list[StoredPage] = []
        self.bodies: dict[int, bytes] = {}
        self.dropped: set[int] = set()
        self.count = 0

    def add(self, commit: Commit, *, page_start: Callable[[int], int]) -> None:
        """Add a commit.

        Args:
            commit: must begin where the last one ended.
            page_start: returns the start of the stored page that holds a sequence.

        Raises:
                StoreFailed, InvalidArgument: the commit does not follow.
        """

        def start_of(sequence: int) -> int:
            if sequence < self.before.next_sequence:
                return page_start(sequence)
            return next(page.sequence for page in self.pages if page.next_sequence > sequence)

        check_follows(commit, self.after)
        after = extent_after(commit, self.after, page_start=start_of)
        if after.first > self.after.first:
            # A commit may trim pages that are themselves unsynced. They were never sent, so they are forgotten here.
            self.pages = [page for page in self.pages if page.sequence >= after.first]
        if keeps_page(commit, after):
            self.pages.append(StoredPage(commit.sequence, commit.next_sequence, commit.page))
        self.bodies.update(commit.bodies)
        # A body that is added after its number was dropped must not be deleted by the earlier drop.
        self.dropped.difference_update(number for number, _ in commit.bodies)
        for number in commit.dropped:
            # Only a body that the store has, or may have, needs a deletion there.
            if self.bodies.pop(number, None) is None:
                self.dropped.add(number)
        self.after = after
        self.count += 1

    def pages_from(self, sequence: int) -> Iterator[StoredPage]:
        """Yield the new pages that hold a sequence or a later one."""
        return (page for page in list(self.pages) if page.next_sequence > sequence)

    def hides(self, number: int) -> bool:
        """Return whether the store need not be asked for a body, because it is added or dropped here."""
        return number in self.bodies or number in self.dropped
