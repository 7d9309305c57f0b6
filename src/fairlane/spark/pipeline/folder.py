"""The folder of tables: staged beside them, swapped in by one rename, carried out by whoever comes next.

A run writes what it makes under ``.staged/RUN`` and touches nothing else. Then the manifest is replaced, by which the
run is decided; only then files are moved to their places, and those they replace removed. A run that is killed before
leaves the tables as they were; one that is killed after is finished by the next run. Moving can be repeated.

One process writes at a time, under a lock that ends with it. The folder is a file system's, with renames and locks.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Protocol

import msgspec

from fairlane.errors import StoreFailed, StoreLocked
from fairlane.files import sync_folder
from fairlane.spark.pipeline.manifest import Manifest, Swap, read_manifest, write_manifest
from fairlane.spark.tables import TABLES

CARRIED = ".carried"
STAGED = ".staged"
_LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who writes in a folder; it is made if it is not there.

    Raises:
        StoreLocked: another process does.
        StoreFailed: the folder can't be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("w")
    except OSError as error:
        raise StoreFailed(f"{folder} is no folder that tables could be written to: {error}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(f"Another process makes the tables in {folder}.") from error
        yield


def partitions(root: Path, depth: int) -> Iterator[Path]:
    """Yield the folders of a table's partitions that are there."""
    pattern = "/".join(["*=*"] * depth)
    yield from sorted(path for path in root.glob(pattern) if path.is_dir())


def day_in(partition: Path) -> date:
    """Return the day of a partition's folder."""
    return date.fromisoformat(partition.name.removeprefix("day="))


def depth_of(table: str) -> int:
    """Return how many folders deep a table's partitions are."""
    return len(TABLES[table].partitions) if table in TABLES else 1


def staged(folder: Path, run: int) -> Path:
    """Return where a run writes."""
    return folder / STAGED / f"{run:06}"


def clear_staged(folder: Path) -> None:
    """Remove what runs that were killed have staged."""
    shutil.rmtree(folder / STAGED, ignore_errors=True)


def decide(folder: Path, manifest: Manifest, swap: Swap) -> None:
    """Let a run be true: from here on its tables are the tables."""
    write_manifest(folder, msgspec.structs.replace(manifest, swap=swap))


def carry_out(folder: Path, shelf: Shelf) -> Manifest | None:
    """Carry out what a run has decided, if anything is left of it, and return the manifest."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.swap is None:
        return manifest
    try:
        shelf.place(manifest.swap)
        done = msgspec.structs.replace(manifest, swap=None)
        write_manifest(folder, done)
        clear_staged(folder)
    except OSError as error:
        raise StoreFailed(f"The tables in {folder} could not be put in place: {error}.") from error
    return done


class Shelf(Protocol):
    """How tables are kept in a folder."""

    def events(self, day: date) -> list[Path]:
        """Return the files with the events of a day."""
        ...

    def place(self, swap: Swap) -> None:
        """Let what a run staged be the tables. It may be repeated."""
        ...


class PlainTables:
    """Tables as plain files: what is in a table's folders is the table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self, day: date) -> list[Path]:
        """Return the files with the events of a day."""
        return sorted((self._folder / "events" / f"day={day}").glob("[!._]*.parquet"))

    def place(self, swap: Swap) -> None:
        """Move staged files to their places, and remove those they replace."""
        move_files(self._folder, swap, (*TABLES, CARRIED))


def move_files(folder: Path, swap: Swap, tables: Iterable[str]) -> None:
    """Move the staged files of tables to their places, and remove those they replace. It may be repeated."""
    for table in tables:
        depth, root = depth_of(table), staged(folder, swap.run) / table
        prefix = f"{swap.run:06}-"
        for partition in partitions(root, depth):
            target = folder / table / partition.relative_to(root)
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(partition.glob("[!._]*.parquet")):
                file.replace(target / (prefix + file.name))
            sync_folder(target)
        for partition in partitions(folder / table, depth):
            if is_replaced(table, partition, swap):
                _keep_only(partition, prefix)


def is_replaced(table: str, partition: Path, swap: Swap) -> bool:
    """Tell whether a run replaces a partition. Open messages are in one place only: that of the newest day."""
    if table == "events":
        return day_in(partition) in swap.compacted
    return day_in(partition) >= swap.first_day or partition.parent.name == "is_open=true"


def _keep_only(partition: Path, prefix: str) -> None:
    kept = 0
    for file in sorted(partition.iterdir()):
        if file.name.startswith(prefix):
            kept += 1
        else:
            file.unlink()
    if not kept:
        partition.rmdir()
