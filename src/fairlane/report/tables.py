"""Reads the tables of the pipeline, restricted to the days and the queue of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from fairlane.errors import InvalidArgument

_PARTITIONS = ds.partitioning(pa.schema([("is_open", pa.bool_()), ("day", pa.date32())]), flavor="hive")


class Tables:
    """The tables in a folder, restricted to a period."""

    def __init__(self, folder: Path, period: Period) -> None:
        """Look at a folder of tables. Raises InvalidArgument if there are no tables in it."""
        if not (folder / "tenant_usage").is_dir():
            raise InvalidArgument(f"Folder {folder} has no tables. Create them with 'fairlane pipeline run'.")
        self._folder = folder
        self._period = period

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return some columns of all rows of a table."""
        found: list[dict[str, Any]] = self.read(table, columns).to_pylist()
        return found

    def read(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Return some columns of a table."""
        folder = self._folder / table
        if not any(folder.glob("**/*.parquet")):
            return pa.table({name: [] for name in columns})
        dataset = _delta(folder) if (folder / "_delta_log").is_dir() else _plain(folder)
        return dataset.to_table(columns=list(columns), filter=self._wanted(dataset.schema))

    def every(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return some columns of all rows of a table, whatever the period."""
        return Tables(self._folder, Period()).rows(table, columns)

    def days(self) -> list[date]:
        """Return the days that have data, in order."""
        found = {date.fromisoformat(folder.name.removeprefix("day=")) for folder in self._day_folders()}
        return sorted(day for day in found if self.is_wanted(day))

    def _day_folders(self) -> Iterator[Path]:
        return (self._folder / "tenant_usage").glob("day=*")

    def is_wanted(self, day: date) -> bool:
        """Return whether a day is part of the period."""
        first, last = self._period.first_day, self._period.last_day
        return (first is None or first <= day) and (last is None or day <= last)

    def _wanted(self, schema: pa.Schema) -> ds.Expression:
        wanted = ds.scalar(value=True)
        if self._period.first_day is not None:
            wanted &= ds.field("day") >= self._period.first_day
        if self._period.last_day is not None:
            wanted &= ds.field("day") <= self._period.last_day
        if self._period.queue is not None and "queue" in schema.names:
            wanted &= ds.field("queue") == self._period.queue
        return wanted


def _plain(folder: Path) -> ds.Dataset:
    return ds.dataset(folder, format="parquet", partitioning=_PARTITIONS)


def _delta(folder: Path) -> ds.Dataset:
    """Return a Delta table. Its log says which of its files belong to it."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - only who has Delta needs the extra
    except ImportError as error:
        raise InvalidArgument(f"{folder} is a Delta table: install fairlane[delta] to read it.") from error
    return DeltaTable(folder).to_pyarrow_dataset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Which days and queues a report is about. Both days are part of it; None is the first or the last there is."""

    first_day: date | None = None
    last_day: date | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if self.first_day is not None and self.last_day is not None and self.first_day > self.last_day:
            raise InvalidArgument(f"The first day, {self.first_day}, is after the last, {self.last_day}.")
