"""The checks and the arithmetic of consecutive commits that every store shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

EMPTY = Extent(first=1, base=1, next_sequence=1)


def check_follows(commit: Commit, extent: Extent) -> None:
    """Raise if a commit does not begin where the last one ended, or moves the base or the trim backwards.

    A wrong beginning means that there is a second writer, or that the caller's memory no longer agrees with the store.
    Reading again repairs both, so it is a failure of the store. The other faults are bugs of the caller.
    """
    if commit.sequence != extent.next_sequence:
        raise StoreFailed(
            f"A commit begins at {commit.sequence} but the store ends at {extent.next_sequence}: "
            "another process wrote to it, or it was not recovered after a failure."
        )
    if commit.next_sequence < commit.sequence:
        raise InvalidArgument(f"A commit that begins at {commit.sequence} cannot end at {commit.next_sequence}.")
    if not extent.base <= commit.base <= commit.next_sequence:
        raise InvalidArgument(f"The base {commit.base} must be from {extent.base} to {commit.next_sequence}.")
    if commit.trim > commit.base:
        raise InvalidArgument(f"Pages up to {commit.trim} cannot be trimmed: recovery begins at {commit.base}.")


def extent_after(commit: Commit, extent: Extent, *, page_start: Callable[[int], int]) -> Extent:
    """Return the extent of a store after a commit.

    Args:
        commit: the commit to add.
        extent: the extent before.
        page_start: returns the start of the stored page that holds a sequence.
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
    """Return whether the page of a commit is kept: it holds records, and its own commit does not trim it."""
    return commit.next_sequence > commit.sequence >= after.first


def check_unbroken(pages: Sequence[StoredPage], sequence: int) -> None:
    """Raise unless pages are consecutive and the first holds a sequence. A gap would lose messages silently."""
    expected = pages[0].sequence if pages else 0
    if not pages or not expected <= sequence < pages[0].next_sequence:
        raise StoreCorrupt(f"The page that holds sequence {sequence} is missing from the store.")
    for page in pages:
        if page.sequence != expected:
            raise StoreCorrupt(f"The page that begins at sequence {expected} is missing from the store.")
        expected = page.next_sequence
