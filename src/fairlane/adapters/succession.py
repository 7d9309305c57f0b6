"""What may follow in a store: the checks and the arithmetic that every store shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

EMPTY = Extent(first=1, base=1, next_sequence=1)


def check_follows(commit: Commit, extent: Extent) -> None:
    """Refuse a commit that does not begin where the last ended, or that takes back what was said.

    The first is the mark of a second writer, or of a memory that no longer agrees with the store: reading anew mends
    both, so it is a failure of the store. The rest is never right.
    """
    if commit.sequence != extent.next_sequence:
        raise StoreFailed(
            f"A commit begins at {commit.sequence} but the store ends at {extent.next_sequence}; "
            "something else wrote to it, or it was not read after a failure."
        )
    if commit.next_sequence < commit.sequence:
        raise InvalidArgument(f"A commit can't end at {commit.next_sequence} when it begins at {commit.sequence}.")
    if not extent.base <= commit.base <= commit.next_sequence:
        raise InvalidArgument(f"The base {commit.base} must be from {extent.base} to {commit.next_sequence}.")
    if commit.trim > commit.base:
        raise InvalidArgument(f"Pages up to {commit.trim} can't be trimmed: recovery begins at {commit.base}.")


def extent_after(commit: Commit, extent: Extent, *, page_start: Callable[[int], int]) -> Extent:
    """Return how far a store reaches after a commit.

    Args:
        commit: what is to be added.
        extent: how far the store reaches before.
        page_start: tells where the stored page begins that holds a sequence.
    """
    first = extent.first if commit.trim <= extent.first else _first_after(commit, page_start)
    return Extent(first=first, base=commit.base, next_sequence=commit.next_sequence)


def _first_after(commit: Commit, page_start: Callable[[int], int]) -> int:
    trim = commit.trim
    if trim >= commit.next_sequence:
        return commit.next_sequence
    if trim >= commit.sequence:
        return commit.sequence
    return page_start(trim)


def keeps_page(commit: Commit, after: Extent) -> bool:
    """Return whether the page of a commit is there after it: it holds records, and is not trimmed by its own commit."""
    return commit.next_sequence > commit.sequence >= after.first


def check_unbroken(pages: Sequence[StoredPage], sequence: int) -> None:
    """Check that pages follow each other and that the first holds a sequence: a gap would lose messages unnoticed."""
    expected = pages[0].sequence if pages else 0
    if not pages or not expected <= sequence < pages[0].next_sequence:
        raise StoreCorrupt(f"The store lacks the page that holds {sequence}.")
    for page in pages:
        if page.sequence != expected:
            raise StoreCorrupt(f"The store lacks the page that begins at {expected}.")
        expected = page.next_sequence
