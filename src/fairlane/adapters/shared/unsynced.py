"""What was written but not synced, for stores that send nothing before they are told to sync.

Commits are merged as they come, so that whatever a store does at once (a transaction, an object) does it for all of
them. Reads look here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.adapters.succession import check_follows, extent_after, keeps_page
from fairlane.ports.store import Commit, Extent, StoredPage


class Unsynced:
    """Commits that follow each other, as the one change they make together.

    Attributes:
        before: how far the store reaches without them.
        after: how far it reaches with them.
        pages: the new pages that are kept.
        bodies: the new bodies that are kept.
        dropped: the bodies of the store that are no longer needed.
        count: how many commits there are.
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
            commit: must follow on what there is.
            page_start: tells where the page of the store begins that holds a sequence.

        Raises:
            StoreFailed, InvalidArgument: it does not follow.
        """

        def start_of(sequence: int) -> int:
            if sequence < self.before.next_sequence:
                return page_start(sequence)
            return next(page.sequence for page in self.pages if page.next_sequence > sequence)

        check_follows(commit, self.after)
        after = extent_after(commit, self.after, page_start=start_of)
        if after.first > self.after.first:
            self.pages = [page for page in self.pages if page.sequence >= after.first]
        if keeps_page(commit, after):
            self.pages.append(StoredPage(commit.sequence, commit.next_sequence, commit.page))
        self.bodies.update(commit.bodies)
        self.dropped.difference_update(number for number, _ in commit.bodies)  # dropped before it was ever there
        for number in commit.dropped:
            if self.bodies.pop(number, None) is None:
                self.dropped.add(number)
        self.after = after
        self.count += 1

    def pages_from(self, sequence: int) -> Iterator[StoredPage]:
        """Yield the new pages that hold a sequence or later ones."""
        return (page for page in list(self.pages) if page.next_sequence > sequence)

    def hides(self, number: int) -> bool:
        """Tell whether the store need not be asked for a body."""
        return number in self.bodies or number in self.dropped
