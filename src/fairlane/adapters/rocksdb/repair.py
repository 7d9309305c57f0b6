"""What it takes to repair a folder: reading what is left of a database, and writing a new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import Rdict, WriteBatch

from fairlane.adapters.folder.examination import Examination
from fairlane.adapters.folder.high_water import HighWater
from fairlane.adapters.folder.mark import ROCKSDB
from fairlane.adapters.folder.replacement import building, complete, repaired
from fairlane.adapters.rocksdb.database import (
    EXTENT_KEY,
    create_database,
    database_options,
    open_read_only,
    opening_failure,
    probe_reach,
)
from fairlane.adapters.rocksdb.folder import DATABASE, locked_folder
from fairlane.adapters.rocksdb.folder import examine as folder_examination
from fairlane.adapters.rocksdb.layout import EXTENT, NUMBER, OpenDatabase, read_extent
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.rocksdb.survey import LogSurvey, Progress, survey_logs
from fairlane.errors import FairlaneError, StoreCorrupt, StoreFailed
from fairlane.ports.store import Commit, Extent, StoredPage

_SALVAGED = "rocksdb.salvaged"
_UNNEEDED = ("LOCK", "LOG")
_SLICE = 64
locked = locked_folder


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


def examine(folder: Path, progress: Progress) -> Examination:
    """Find out whether a store is whole, without changing anything."""
    found = folder_examination(folder, probe=_probe, progress=progress)
    mark = found.high_water if found.high_water is not None else HighWater()
    damage = found.survey.damage
    return Examination(
        high_water=found.high_water,
        expected_end=max(mark.required(), found.survey.reach, damage.after_reach if damage is not None else 1),
        is_damaged=damage is not None,
        faults=found.faults,
    )


def _probe(database: Path) -> int:
    """Return the next sequence of a database; 1 if it can't be opened, which the inspection reports."""
    try:
        return probe_reach(database)
    except FairlaneError:
        return 1


@contextmanager
def reading(folder: Path) -> Iterator[ReadOnlyStore | None]:
    """Provide the store as it is, to be read only; None if it is gone."""
    store = ReadOnlyStore(folder / DATABASE)
    try:
        yield store if (folder / DATABASE).exists() else None
    finally:
        store.close()


@contextmanager
def readable_part(folder: Path) -> Iterator[ReadOnlyStore | None]:
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
            _salvage(database, salvaged, survey_logs(database))
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
    target = building(folder, ROCKSDB)
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
    complete(folder, ROCKSDB, target)


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


def unfinished_end(folder: Path) -> int:
    """Return the next sequence of the new database of an interrupted repair."""
    store = ReadOnlyStore(repaired(folder, ROCKSDB))
    try:
        return store.recover().next_sequence
    finally:
        store.close()
