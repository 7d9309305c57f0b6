"""How a store lies in RocksDB: its column families, their keys and values.

Pages are kept by the sequence they begin with, and begin with the sequence they end before; bodies by their number. How
far the store reaches is one value in the default family. Numbers are eight bytes, highest first, so that RocksDB orders
them as numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import cast

from rocksdict import ColumnFamily, Rdict, WriteBatch

from fairlane.adapters.rocksdb.database import BODIES, PAGES, failure
from fairlane.adapters.succession import EMPTY, keeps_page
from fairlane.errors import StoreCorrupt
from fairlane.ports.store import Commit, Extent, StoredPage

NUMBER = struct.Struct(">Q")
_EXTENT_KEY = b"extent"
_EXTENT = struct.Struct(">QQQ")
_SLICE_BYTES_MAX = 1 << 20
_SINGLE_DELETES_MAX = 256


class OpenDatabase:
    """An open database with its column families.

    RocksDB stays locked while anything of it lives, and the traceback of an error keeps what was in local variables. So
    nothing here is ever put in one, but reached through this object, which lets go of it.
    """

    def __init__(self, db: Rdict) -> None:
        self.db = db
        self.pages: Rdict = db.get_column_family(PAGES)
        self.bodies: Rdict = db.get_column_family(BODIES)
        self.page_handle: ColumnFamily = db.get_column_family_handle(PAGES)
        self.body_handle: ColumnFamily = db.get_column_family_handle(BODIES)

    def close(self) -> None:
        """Let go of the families, then close."""
        del self.page_handle, self.body_handle, self.pages, self.bodies
        try:
            self.db.close()
        finally:
            del self.db


def read_extent(opened: OpenDatabase) -> Extent:
    """Return how far a database reaches; one that has nothing at all is new."""
    try:
        value = opened.db.get(_EXTENT_KEY)
        is_new = value is None and _is_empty(opened)
    except Exception as error:
        raise failure(error, "read the extent") from error
    if is_new:
        return EMPTY
    if value is None or len(value) != _EXTENT.size:
        raise StoreCorrupt("The store does not say, or not in a way that can be read, how far it reaches.")
    first, base, next_sequence = _EXTENT.unpack(value)
    return Extent(first=first, base=base, next_sequence=next_sequence)


def _is_empty(opened: OpenDatabase) -> bool:
    return next(opened.pages.keys(), None) is None and next(opened.bodies.keys(), None) is None


def batch_of(opened: OpenDatabase, commit: Commit, *, before: Extent, after: Extent) -> WriteBatch:
    """Return all that a commit changes, to be written in one."""
    batch = WriteBatch(raw_mode=True)
    if after.first > before.first:
        _delete_pages(opened, batch, first=before.first, end=after.first)
    if keeps_page(commit, after):
        batch.put(NUMBER.pack(commit.sequence), NUMBER.pack(commit.next_sequence) + commit.page, opened.page_handle)
    for number, body in commit.bodies:
        batch.put(NUMBER.pack(number), body, opened.body_handle)
    for number in commit.dropped:
        batch.delete(NUMBER.pack(number), opened.body_handle)
    batch.put(_EXTENT_KEY, _EXTENT.pack(after.first, after.base, after.next_sequence))
    return batch


def _delete_pages(opened: OpenDatabase, batch: WriteBatch, *, first: int, end: int) -> None:
    """Delete the pages before an end. Few are deleted one by one: after a deleted range, the next read is dear."""
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
    """Return some pages, beginning with the last that begins at or before a sequence."""
    pages: list[StoredPage] = []
    size = 0
    iterator = opened.pages.iter()
    try:
        iterator.seek_for_prev(NUMBER.pack(sequence))
        while iterator.valid() and len(pages) < count_max and size < _SLICE_BYTES_MAX:
            page = _page(iterator.key(), iterator.value())
            pages.append(page)
            size += len(page.page)
            iterator.next()
        iterator.status()
    finally:
        del iterator  # see OpenDatabase
    return pages


def _page(key: bytes, value: bytes) -> StoredPage:
    (sequence,) = NUMBER.unpack(key)
    (next_sequence,) = NUMBER.unpack_from(value)
    return StoredPage(sequence, next_sequence, value[NUMBER.size :])
