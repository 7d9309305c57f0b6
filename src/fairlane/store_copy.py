"""Copies a store to another place and kind: from a folder to PostgreSQL, from RocksDB to the log, and back.

The copy has everything that the broker of the source would know: every page of the journal and every body. It is a
*new* journal from then on, with an id of its own and sequences far above, as a restored backup is: the source may live
on, and two stores must never issue the same ids. Ids and receipts that the source has issued are valid in both.

While it is being filled, the target is marked as unfinished, and no broker opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fairlane.adapters.copying import copy_contents, is_unfinished, mark_unfinished, pages_within
from fairlane.adapters.folder_store import check_there
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.assembly import open_store
from fairlane.broker.inspection import inspect_store
from fairlane.errors import InvalidArgument, StoreCorrupt, StoreDamaged
from fairlane.maintenance import counts_from, declare_restored
from fairlane.ports.store import Extent, Store

Progress = Callable[[int, int], None]
"""Called with how much was done, and how much there is."""
_SLICE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a copy has.

    Attributes:
        messages: how many messages are alive in it.
        last_sequence: of the last event of the journal that was copied.
        journal_id: the id of its journal from now on.
        next_sequence: the first sequence that it issues.
    """

    messages: int
    last_sequence: int
    journal_id: str
    next_sequence: int


def copy_store(source: str, target: str, progress: Progress = lambda _done, _all: None) -> CopyReport:
    """Copy a store that no broker has open to a new one, compare both, and give the copy a journal of its own.

    Args:
        source: a folder or a URL.
        target: a folder or a URL, where nothing is yet.
        progress: called while something is read or copied.

    Raises:
        StoreLocked: a broker has one of the stores open.
        StoreDamaged: the source is damaged; repair it first.
        StoreCorrupt: the copy does not equal the source.
        InvalidArgument: the target is not empty, or both are the same.
        StoreFailed: one of them cannot be read or written.
    """
    _check_places(source, target)
    first = counts_from(open_store(source))
    taken, given = numbered(open_store(source), first), None
    try:
        extent = taken.recover()
        given = begin_copy(target, first)
        inspected = inspect_store(taken, extent, progress)
        if not inspected.is_whole:
            raise StoreDamaged(f"The store at {source} is damaged: {inspected.fault or inspected.history_fault}")
        copy_contents(taken, given, extent, inspected.bodies, progress, start=first + 1)
        given.close()
        _compare(taken, given, extent, inspected.bodies)
    finally:
        if given is not None:
            given.close()
        taken.close()
    declared = declare_restored(target)
    finish_copy(target, first)
    return CopyReport(
        messages=inspected.messages,
        last_sequence=extent.next_sequence - 1,
        journal_id=declared.journal_id,
        next_sequence=declared.next_sequence,
    )


def _check_places(source: str, target: str) -> None:
    """Raise InvalidArgument if source and target are the same, and StoreDamaged if the source is gone."""
    if source == target:
        raise InvalidArgument("Source and target are the same. Choose another target.")
    check_there(source)


def numbered(store: Store, first: int) -> Store:
    """Return a store whose sequences begin after a number."""
    return NumberedStore(store, first=first) if first else store


def begin_copy(place: str, first: int) -> Store:
    """Open a new store that is to be filled, and mark it as unfinished, so that no broker opens it.

    Args:
        place: a folder or a URL, where nothing is yet.
        first: what its sequences begin after.

    Raises:
        InvalidArgument: it is not empty.
        StoreFailed, StoreLocked: it can't be opened.
    """
    target = numbered(open_store(place), first)
    try:
        mark_unfinished(target, _empty(target, first), is_unfinished=True)
    except BaseException:
        target.close()
        raise
    return target


def finish_copy(place: str, first: int) -> None:
    """Declare that a store which was filled, and is closed, is complete."""
    target = numbered(open_store(place), first)
    try:
        mark_unfinished(target, target.recover(), is_unfinished=False)
    finally:
        target.close()


def _empty(target: Store, first: int) -> Extent:
    """Open a target, and return its extent. Raises InvalidArgument if it is not empty."""
    extent = target.recover()
    if is_unfinished(target):
        raise InvalidArgument("An earlier copy to the target was interrupted. Delete the target or choose another.")
    if extent.next_sequence != first + 1:
        raise InvalidArgument("The target is not empty. Choose a new folder, namespace or prefix.")
    return extent


def _compare(source: Store, target: Store, extent: Extent, bodies: Sequence[int]) -> None:
    """Raise StoreCorrupt unless a copy, opened again, has the extent, the pages and the bodies of its source."""
    copied = target.recover()
    if (copied.first, copied.base, copied.next_sequence) != (extent.first, extent.base, extent.next_sequence):
        raise StoreCorrupt(f"The copy reaches from {copied.first} to {copied.next_sequence}, unlike its source.")
    for page, copy in zip_longest(pages_within(source, extent), pages_within(target, extent)):
        if page != copy:
            raise StoreCorrupt("A page of the copy differs from that of its source.")
    for at in range(0, len(bodies), _SLICE):
        some = bodies[at : at + _SLICE]
        if source.bodies(some) != target.bodies(some):
            raise StoreCorrupt("A body of the copy differs from that of its source.")
