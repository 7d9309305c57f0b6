"""The layout of a store in RocksDB: its column families, their keys and values.

Pages are stored under their first sequence, and their value begins with the sequence after their last; bodies under
their number. The extent is one value in the default family. Numbers are eight bytes, big-endian, so that RocksDB orders
them numerically.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import cast

from rocksdict import ColumnFamily, Rdict, WriteBatch

from fairlane.adapters.folder.high_water import HighWater
from fairlane.adapters.rocksdb.database import BODIES, EXTENT_KEY, PAGES, failure
from fairlane.adapters.succession import EMPTY, keeps_page
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Commit, Extent, StoredPage

NUMBER = struct.Struct(">Q")
EXTENT = struct.Struct(">QQQ")
_SLICE_BYTES_MAX = 1 << 20
_SINGLE_DELETES_MAX = 256


class OpenDatabase:
    """An open database with its column families, and the high-water mark that was found beside it.

    RocksDB stays locked while any of its objects is alive, and the traceback of an exception keeps local variables
    alive. So no RocksDB object is ever kept in a local variable: they are reached through this object, which releases
    them.
    """

    def __init__(self, db: Rdict, found: HighWater) -> None:
        self.db = db
        self.found = found
        self.pages: Rdict = db.get_column_family(PAGES)
        self.bodies: Rdict = db.get_column_family(BODIES)
        self.page_handle: ColumnFamily = db.get_column_family_handle(PAGES)
        self.body_handle: ColumnFamily = db.get_column_family_handle(BODIES)

    def close(self) -> None:
        """Release the column families, then close."""
        del self.page_handle, self.body_handle, self.pages, self.bodies
        try:
            self.db.close()
        finally:
            del self.db


def read_extent(opened: OpenDatabase) -> Extent:
    """Return the extent of a database; a database without any data is new."""
    try:
        value = opened.db.get(EXTENT_KEY)
        is_new = value is None and _is_empty(opened)
    except Exception as error:
        raise failure(error, "read the extent") from error
    if is_new:
        return EMPTY
    if value is None or len(value) != EXTENT.size:
        raise StoreCorrupt("The extent of the store is missing or unreadable.")
    first, base, next_sequence = EXTENT.unpack(value)
    return Extent(first=first, base=base, next_sequence=next_sequence)


def _is_empty(opened: OpenDatabase) -> bool:
    return next(opened.pages.keys(), None) is None and next(opened.bodies.keys(), None) is None


def batch_of(opened: OpenDatabase, commit: Commit, *, before: Extent, after: Extent) -> WriteBatch:
    """Return all changes of a commit as one atomic batch."""
    batch = WriteBatch(raw_mode=True)
    if after.first > before.first:
        _delete_pages(opened, batch, first=before.first, end=after.first)
    if keeps_page(commit, after):
        batch.put(NUMBER.pack(commit.sequence), NUMBER.pack(commit.next_sequence) + commit.page, opened.page_handle)
    for number, body in commit.bodies:
        batch.put(NUMBER.pack(number), body, opened.body_handle)
    for number in commit.dropped:
        batch.delete(NUMBER.pack(number), opened.body_handle)
    batch.put(EXTENT_KEY, EXTENT.pack(after.first, after.base, after.next_sequence))
    return batch


def _delete_pages(opened: OpenDatabase, batch: WriteBatch, *, first: int, end: int) -> None:
    """Delete the pages before an end. A few are deleted one by one, since a deleted range makes the next read slow."""
    keys: list[bytes] = []
    end_key = NUMBER.pack(end)
    for key in cast("Iterator[bytes]", opened.pages.keys(from_key=NUMBER.pack(first))):
        if key >= end_key:
            break
        keys.append(key)
        if len(keys) > _SINGLE_DELETES_MAX:
            batch.delete_range(keys[0], end_key, opened.page_handle)
            return
    for key in keys:
        batch.delete(key, opened.page_handle)


def read_slice(opened: OpenDatabase, sequence: int, *, count_max: int) -> list[StoredPage]:
    """Return some pages, beginning with the last one that starts at or before a sequence."""
    pages: list[StoredPage] = []
    size = 0
    iterator = opened.pages.iter()
    try:
        iterator.seek_for_prev(NUMBER.pack(sequence))
        while iterator.valid():
            page = _page(iterator.key(), iterator.value())
            pages.append(page)
            size += len(page.page)
            if len(pages) >= count_max or size >= _SLICE_BYTES_MAX:
                return pages
            iterator.next()
        iterator.status()
    finally:
        del iterator  # see OpenDatabase
    return pages


def _page(key: bytes, value: bytes) -> StoredPage:
    (sequence,) = NUMBER.unpack(key)
    (next_sequence,) = NUMBER.unpack_from(value)
    return StoredPage(sequence, next_sequence, value[NUMBER.size :])
