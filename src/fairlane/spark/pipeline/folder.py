"""The folder of tables: a run stages its files, commits by one rename, and then moves the files into place.

A run writes under ``.staged/RUN`` and touches nothing else. Replacing the manifest commits the run; only then its files
are moved into place, and the files they replace are deleted. A run that is killed before the commit changes nothing;
one that is killed after it is finished by the next run. Moving can be repeated.

One process writes at a time, under a lock that ends with the process. The file system must support renames and locks.
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
from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import InvalidArgument, StoreFailed, StoreLocked
from fairlane.files import sync_folder
from fairlane.spark.pipeline.manifest import Manifest, Swap, read_manifest, write_manifest
from fairlane.spark.tables import TABLES

CARRIED = ".carried"
STAGED = ".staged"
_LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the write lock of a folder, which is created if missing.

    Raises StoreLocked if another process holds it. Raises StoreFailed if the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("w")
    except OSError as error:
        raise StoreFailed(f"Cannot write tables to {folder}: {error}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(f"Another process is updating the tables in {folder}.") from error
        yield


def partitions(root: Path, depth: int) -> Iterator[Path]:
    """Yield the existing folders of a table's partitions."""
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
    """Delete what killed runs have staged."""
    shutil.rmtree(folder / STAGED, ignore_errors=True)


def decide(folder: Path, manifest: Manifest, swap: Swap) -> None:
    """Commit a run."""
    write_manifest(folder, msgspec.structs.replace(manifest, swap=swap))


def carry_out(folder: Path, shelf: Shelf) -> Manifest | None:
    """Finish a run that is committed but not fully moved into place, and return the manifest."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.swap is None:
        return manifest
    try:
        shelf.place(manifest.swap)
        done = msgspec.structs.replace(manifest, swap=None)
        write_manifest(folder, done)
        clear_staged(folder)
    except OSError as error:
        raise StoreFailed(f"Could not move the tables in {folder} into place: {error}.") from error
    return done


class Shelf(Protocol):
    """How tables are kept in a folder."""

    def events(self, day: date) -> list[Path]:
        """Return the files with the events of a day."""
        ...

    def place(self, swap: Swap) -> None:
        """Move what a run staged into place. It can be repeated."""
        ...


class PlainTables:
    """Tables as plain files: what is in a table's folders is the table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self, day: date) -> list[Path]:
        """Return the files with the events of a day."""
        return sorted((self._folder / "events" / f"day={day}").glob("[!._]*.parquet"))

    def place(self, swap: Swap) -> None:
        """Move staged files into place, and delete those they replace."""
        move_files(self._folder, swap, (*TABLES, CARRIED))


def move_files(folder: Path, swap: Swap, tables: Iterable[str]) -> None:
    """Move the staged files of tables into place, and delete those they replace. It can be repeated."""
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
    """Return whether a run replaces a partition. Open messages are only in the partition of the newest day."""
    if table == "events":
        return day_in(partition) in swap.compacted
    day = day_in(partition)
    if swap.last_day is not None:
        return swap.first_day <= day <= swap.last_day
    return day >= swap.first_day or partition.parent.name == "is_open=true"


def _keep_only(partition: Path, prefix: str) -> None:
    kept = 0
    for file in sorted(partition.iterdir()):
        if file.name.startswith(prefix):
            kept += 1
        else:
            file.unlink()
    if not kept:
        partition.rmdir()


def read_table(spark: SparkSession, folder: Path | str, name: str) -> DataFrame:
    """Return a table of a folder, with exactly its columns; an empty one if it has no rows yet.

    A query that runs while a pipeline run moves files into place may miss files: run it again. Raises InvalidArgument
    if the folder has no tables, or none of this name.
    """
    root = Path(folder).absolute()
    manifest = read_manifest(root)
    if manifest is None or name not in TABLES:
        raise InvalidArgument(
            f"Folder {root} has no table {name!r:.100}. Run the pipeline first; its tables are {', '.join(TABLES)}."
        )
    table = TABLES[name]
    if manifest.format == "delta":
        from fairlane.spark.pipeline.delta import read_delta  # noqa: PLC0415 - only who has Delta needs the extra

        return read_delta(spark, root / name, table)
    if not any(True for _ in partitions(root / name, depth_of(name))):
        return spark.createDataFrame([], table.schema)
    return spark.read.schema(table.schema).parquet(str(root / name))
