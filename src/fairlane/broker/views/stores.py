"""What a backup sees of a store: its pages in order, with those of their bodies that still exist.

A slice is read after a commit and before the next one, so pages and bodies are those of one instant: a body that a page
added and that is missing has been dropped by a later page, up to the end that the slice names. ``fairlane.backup`` has
the theory of why slices of different instants make a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fairlane.core.ledger import Ledger
from fairlane.errors import InvalidArgument
from fairlane.journal import codec
from fairlane.journal.records import Acked, Enqueued, PieceStored, Staged, StateSet
from fairlane.ports.store import Store, StoredPage
from fairlane.verbs.stores import StoreBody, StorePage, StoreSlice

_SLICE_BYTES: Final = 1 << 20
_BODIES: Final = 64
"""How many bodies are read at once; a chunk has 32 KiB, and a piece of an upload usually half a megabyte."""


def read_store(store: Store, ledger: Ledger, *, after: int, numbers: Sequence[int], now_ms: int) -> StoreSlice:
    """Return pages after a sequence with their bodies, or if numbers are given, these bodies.

    Raises:
        InvalidArgument: the store does not reach as far as that sequence.
    """
    if not 0 <= after < ledger.next_sequence:
        raise InvalidArgument(f"after must be from 0 to {ledger.next_sequence - 1}, got {after}.")
    pages = [] if numbers else _pages(store, max(after, ledger.counts_from))
    wanted = numbers or [number for page in pages for number in _added(page.page)]
    return StoreSlice(
        pages=[StorePage(sequence=page.sequence, next_sequence=page.next_sequence, page=page.page) for page in pages],
        bodies=_bodies(store, wanted),
        base=ledger.base,
        next_sequence=ledger.next_sequence,
        counts_from=ledger.counts_from,
        journal_id=ledger.journal_id,
        at_ms=now_ms,
    )


def _pages(store: Store, after: int) -> list[StoredPage]:
    pages, size = [], 0
    for page in store.pages(after):
        pages.append(page)
        size += len(page.page)
        if size >= _SLICE_BYTES:
            break
    return pages


def _added(page: bytes) -> Iterator[int]:
    """Yield the numbers of the bodies that a page added. One that this does not know is requested by its number."""
    for record in codec.decode(page).records:
        if isinstance(record, (Enqueued, Staged)):
            yield from (record.sequence + start for start in record.chunks)
        elif isinstance(record, (StateSet, PieceStored)):
            yield record.sequence
        elif isinstance(record, Acked) and record.finished is not None:
            yield from (image.body for image in record.finished if image.body)


def _bodies(store: Store, numbers: Sequence[int]) -> list[StoreBody]:
    """Return bodies up to a size. The caller asks for what is left out by its number."""
    bodies, size = [], 0
    for at in range(0, len(numbers), _BODIES):
        some = numbers[at : at + _BODIES]
        for number, data in zip(some, store.bodies(some), strict=True):
            if data is not None:
                bodies.append(StoreBody(number=number, data=data))
                size += len(data)
        if size >= _SLICE_BYTES:
            break
    return bodies
