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
from fairlane.lakehouse import TablesAddress, open_tables

_OF_QUEUES = ("weight", "cap", "throttle_weight", "queue")
"""The kinds of config keys that name a queue."""


class Tables:
    """Tables at an address, restricted to a period."""

    def __init__(self, tables: str | Path | TablesAddress, period: Period) -> None:
        """Open tables. Raises InvalidArgument if there are none."""
        self._lakehouse = open_tables(tables)
        self._period = period

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return some columns of all rows of a table that is short."""
        return [row for batch in self.batches(table, columns) for row in batch.to_pylist()]

    def batches(
        self, table: str, columns: Sequence[str], where: ds.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a table, of the rows that are wanted, batch by batch: a table may be long."""
        if self._lakehouse.files(table):
            dataset = self._lakehouse.dataset(table)
            wanted = self._wanted(dataset.schema)
            yield from dataset.to_batches(columns=list(columns), filter=wanted if where is None else wanted & where)

    def whole(self, table: str, columns: Sequence[str], where: ds.Expression) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a table for all queues, of the days of the period."""
        period = Period(first_day=self._period.first_day, last_day=self._period.last_day)
        yield from Tables(self._lakehouse.address, period).batches(table, columns, where)

    def concerns(self, setting: str) -> bool:
        """Return whether a config key may act on the queue of the period: it names that queue, or no queue."""
        kind, _, rest = setting.partition(":")
        named = rest.partition(":")[0] if kind in _OF_QUEUES else None
        return self._period.queue is None or named in (None, self._period.queue)

    def every(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return some columns of all rows of a table, whatever the period."""
        return Tables(self._lakehouse.address, Period()).rows(table, columns)

    def days(self) -> list[date]:
        """Return the days that have data, in order."""
        found = {date.fromisoformat(file.partition["day"]) for file in self._lakehouse.files("tenant_usage")}
        return sorted(day for day in found if self.is_wanted(day))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Which days and queues a report is about. Both days are part of it; None is the first or the last there is."""

    first_day: date | None = None
    last_day: date | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if self.first_day is not None and self.last_day is not None and self.first_day > self.last_day:
            raise InvalidArgument(f"The first day, {self.first_day}, is after the last, {self.last_day}.")
