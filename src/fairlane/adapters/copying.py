"""Copies the pages and bodies of one store to another through the port alone, so from any kind to any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Commit, Extent, Store, StoredPage

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
_BODIES: Final = 64
_UNSYNCED_BYTES_MAX: Final = 8 << 20


UNFINISHED: Final = 0
"""The number of a body that a store has only while it is being filled. Numbers of others begin with 1."""


def copy_contents(
    source: Store, target: Store, extent: Extent, bodies: Sequence[int], progress: Progress, *, start: int = 1
) -> None:
    """Copy the pages of an extent and some bodies to a new, empty store, and sync it.

    The bodies come first: a body that no page mentions is harmless, and a page whose body is missing is not.

    Args:
        source: an open store.
        target: an open, empty store.
        extent: what to copy; the target has the same extent then.
        bodies: the numbers of the bodies to copy.
        progress: called after each part.
        start: the number that the sequences of both begin with.
    """
    first = extent.first
    # Sequences before the first page were trimmed. One commit stands for them, and trims itself.
    target.write(Commit(sequence=start, next_sequence=first, page=b"", base=first, trim=first))
    _copy_bodies(source, target, first, bodies, progress)
    _copy_pages(source, target, extent)
    if extent.first == extent.next_sequence:  # no page says where the base is
        end = extent.next_sequence
        target.write(Commit(sequence=end, next_sequence=end, page=b"", base=extent.base))
    target.sync()


def mark_unfinished(store: Store, extent: Extent, *, is_unfinished: bool) -> None:
    """Note in an open store with an extent that it is being filled, or that it is complete, and sync that."""
    store.write(
        Commit(
            sequence=extent.next_sequence,
            next_sequence=extent.next_sequence,
            page=b"",
            bodies=[(UNFINISHED, b"unfinished copy")] if is_unfinished else (),
            dropped=() if is_unfinished else [UNFINISHED],
            base=extent.base,
        )
    )
    store.sync()


def is_unfinished(store: Store) -> bool:
    """Return whether an open store was being filled when that was interrupted."""
    return store.bodies([UNFINISHED]) != [None]


def check_finished(store: Store) -> None:
    """Raise StoreCorrupt if an open store is an unfinished copy."""
    if is_unfinished(store):
        raise StoreCorrupt("The store is an unfinished copy. Delete it, and copy again.")


def _copy_bodies(source: Store, target: Store, at: int, numbers: Sequence[int], progress: Progress) -> None:
    unsynced = 0
    for begin in range(0, len(numbers), _BODIES):
        some = numbers[begin : begin + _BODIES]
        found = [(number, body) for number, body in zip(some, source.bodies(some), strict=True) if body is not None]
        target.write(Commit(sequence=at, next_sequence=at, page=b"", bodies=found, base=at))
        unsynced += sum(len(body) for _, body in found)
        if unsynced > _UNSYNCED_BYTES_MAX:
            target.sync()
            unsynced = 0
        progress(begin + len(some), len(numbers))


def _copy_pages(source: Store, target: Store, extent: Extent) -> None:
    unsynced = 0
    for stored in pages_within(source, extent):
        end = stored.next_sequence
        base = max(extent.first, min(extent.base, end))
        target.write(Commit(sequence=stored.sequence, next_sequence=end, page=stored.page, base=base))
        unsynced += len(stored.page)
        if unsynced > _UNSYNCED_BYTES_MAX:
            target.sync()
            unsynced = 0


def pages_within(store: Store, extent: Extent) -> Iterator[StoredPage]:
    """Yield the pages of a store that an extent covers. The page after them may be one that can't be read."""
    if extent.first >= extent.next_sequence:
        return
    for stored in store.pages(extent.first - 1):
        yield stored
        if stored.next_sequence >= extent.next_sequence:
            return
