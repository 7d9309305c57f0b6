"""What it takes to repair a folder: reading what is left of a database, writing a new one, and changing places.

A repair never changes the damaged database. It copies what is readable to a new one beside it, which gets its final
name, ``rocksdb.repaired``, once it is complete and durable. Then the damaged database is moved to a folder
``damaged-N``, and the new one takes its place. A repair that is interrupted is begun again, or finished if the new
database was complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import Rdict, WriteBatch

from fairlane.adapters.rocksdb.database import (
    EXTENT_KEY,
    create_database,
    database_options,
    open_read_only,
    opening_failure,
)
from fairlane.adapters.rocksdb.folder import DATABASE, MARK, write_mark
from fairlane.adapters.rocksdb.high_water import FILE_NAME, HighWater, boot_id, write_high_water
from fairlane.adapters.rocksdb.layout import EXTENT, NUMBER, OpenDatabase, read_extent
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.rocksdb.survey import LogSurvey, Progress
from fairlane.errors import FairlaneError, StoreCorrupt, StoreFailed
from fairlane.files import sync_folder
from fairlane.ports.store import Commit, Extent, StoredPage

UNKNOWN_SKIP = 1 << 36
"""How many sequences are skipped if no high-water mark tells how many may have been issued."""
_REPAIRING, _REPAIRED, _SALVAGED = "rocksdb.repairing", "rocksdb.repaired", "rocksdb.salvaged"
_UNNEEDED = ("LOCK", "LOG")
_SLICE = 64


class ReadOnlyStore(RocksDbStore):
    """A store that is only read: opening it changes nothing.

    Attributes:
        fault: why the database itself cannot be opened, if this is what RocksDB could salvage of it.
    """

    def __init__(self, database: Path, *, fault: str = "") -> None:
        super().__init__(database.parent)
        self._database = database
        self.fault = fault

    def recover(self) -> Extent:
        """Open the database, and return the extent of the store.

        Raises:
            StoreDamaged, StoreCorrupt: RocksDB cannot open it, or it does not say what it holds.
        """
        self.close()
        try:
            opened = OpenDatabase(open_read_only(self._database), HighWater())
        except Exception as error:
            raise opening_failure(error, self._database) from error
        self._open = opened
        self._extent = read_extent(opened)
        return self._extent

    def write(self, commit: Commit) -> None:
        """Refuse: the store is only read."""
        raise StoreFailed(f"The store was opened for reading only; commit {commit.sequence} cannot be written.")

    def _slice(self, sequence: int, *, count_max: int = _SLICE) -> list[StoredPage]:
        """Return some pages; those before a damaged one are read one by one."""
        try:
            return super()._slice(sequence, count_max=count_max)
        except StoreCorrupt:
            return super()._slice(sequence, count_max=1)

    def close(self) -> None:
        """Close without writing anything."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


@contextmanager
def readable_part(folder: Path, survey: LogSurvey) -> Iterator[ReadOnlyStore | None]:
    """Open what can be read of the database in a folder; None if it is gone.

    If RocksDB cannot open the database as it is, its own repair is tried on a copy, which shares the tables.

    Raises:
        StoreDamaged, StoreCorrupt: nothing can be read.
    """
    database, salvaged = folder / DATABASE, folder / _SALVAGED
    if not any(any(database.glob(pattern)) for pattern in ("*.sst", "*.log")):
        yield None
        return
    store = ReadOnlyStore(database)
    try:
        try:
            store.recover()
        except FairlaneError as error:
            store.close()
            _salvage(database, salvaged, survey)
            store = ReadOnlyStore(salvaged, fault=error.cause)
            store.recover()
        yield store
    finally:
        store.close()
        shutil.rmtree(salvaged, ignore_errors=True)


def _salvage(database: Path, salvaged: Path, survey: LogSurvey) -> None:
    """Rebuild a copy of a database from its tables and the readable part of its logs, by RocksDB's own repair."""
    shutil.rmtree(salvaged, ignore_errors=True)
    salvaged.mkdir()
    for file in database.iterdir():
        if file.name.startswith(_UNNEEDED) or file.name.startswith("MANIFEST") or file.name == "CURRENT":
            continue
        if file.suffix == ".sst":
            os.link(file, salvaged / file.name)
        else:
            shutil.copyfile(file, salvaged / file.name)
    for log, end in survey.ends.items():
        os.truncate(salvaged / log.name, end)
    try:
        Rdict.repair(str(salvaged), database_options())
        create_database(salvaged).close()  # a family whose tables are all lost is empty
    except Exception as error:
        raise opening_failure(error, database) from error


def build(folder: Path, source: RocksDbStore | None, extent: Extent, bodies: Sequence[int], progress: Progress) -> None:
    """Write a new database with the pages of an extent and some bodies, and make it durable."""
    target = folder / _REPAIRING
    shutil.rmtree(target, ignore_errors=True)
    opened = OpenDatabase(create_database(target), HighWater())
    try:
        if source is not None:
            _copy_pages(opened, source, extent)
            _copy_bodies(opened, source, bodies, progress)
            opened.db.put(EXTENT_KEY, EXTENT.pack(extent.first, extent.base, extent.next_sequence))
        opened.db.flush_wal(sync=True)
    finally:
        opened.close()
    shutil.rmtree(folder / _REPAIRED, ignore_errors=True)
    target.rename(folder / _REPAIRED)
    sync_folder(folder)


def _copy_pages(opened: OpenDatabase, source: RocksDbStore, extent: Extent) -> None:
    if extent.first >= extent.next_sequence:
        return
    for stored in source.pages(extent.first - 1):
        batch = WriteBatch(raw_mode=True)
        page = NUMBER.pack(stored.next_sequence) + stored.page
        batch.put(NUMBER.pack(stored.sequence), page, opened.page_handle)
        opened.db.write(batch)
        if stored.next_sequence >= extent.next_sequence:
            return  # the next page may be the one that can't be read


def _copy_bodies(opened: OpenDatabase, source: RocksDbStore, bodies: Sequence[int], progress: Progress) -> None:
    for at in range(0, len(bodies), _SLICE):
        some = bodies[at : at + _SLICE]
        batch = WriteBatch(raw_mode=True)
        for number, body in zip(some, source.bodies(some), strict=True):
            if body is not None:
                batch.put(NUMBER.pack(number), body, opened.body_handle)
        opened.db.write(batch)
        progress(at + len(some), len(bodies))


def is_unfinished(folder: Path) -> bool:
    """Return whether a repair was interrupted after it had moved the damaged database aside."""
    return (folder / _REPAIRED).exists() and not (folder / DATABASE).exists()


def unfinished_end(folder: Path) -> int:
    """Return the next sequence of the new database of an interrupted repair."""
    store = ReadOnlyStore(folder / _REPAIRED)
    try:
        return store.recover().next_sequence
    finally:
        store.close()


def move_aside(folder: Path, *, with_database: bool) -> Path:
    """Keep the marks and the damaged database in a new folder, and return that."""
    number = 1
    while (folder / f"damaged-{number}").exists():
        number += 1
    aside = folder / f"damaged-{number}"
    aside.mkdir(mode=0o700)
    for name in (MARK, FILE_NAME):
        if (folder / name).exists():
            shutil.copyfile(folder / name, aside / name)
    if with_database and (folder / DATABASE).exists():
        (folder / DATABASE).rename(aside / DATABASE)
    sync_folder(aside)
    sync_folder(folder)
    return aside


def finish(folder: Path, *, end: int, reserved: int) -> None:
    """Put the new database in its place, if there is one, and write the marks.

    Args:
        folder: the folder of the store.
        end: the next sequence of the database.
        reserved: sequences before it may have been issued, and are skipped.
    """
    write_high_water(folder, HighWater(answered=end, synced=end, reserved=reserved, boot=boot_id()))
    if is_unfinished(folder):
        (folder / _REPAIRED).rename(folder / DATABASE)
    else:  # what an earlier repair may have left behind is older than the database
        shutil.rmtree(folder / _REPAIRED, ignore_errors=True)
    write_mark(folder, is_made=True)
