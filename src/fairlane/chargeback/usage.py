"""Reads the usage of a day from the tables, which are opened once: all days are of the same version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from fairlane.chargeback.charges import TenantInQueue, Usage
from fairlane.chargeback.meters import METERS
from fairlane.lakehouse import Lakehouse, TablesAddress, open_tables
from fairlane.lakehouse.rollups import Operation, rolled_up

_TABLE: Final = "tenant_usage"
_BY: Final = ("queue", "top_key")
_COLUMNS: Final[dict[str, Operation]] = {**{meter.column: "sum" for meter in METERS}, "is_complete": "min"}


@dataclass(frozen=True, slots=True)
class DayUsage:
    """The usage of a day, and whether the journal is complete on it."""

    usage: Usage
    is_complete: bool


class UsageTable:
    """The table ``tenant_usage``."""

    def __init__(self, tables: str | Path | TablesAddress) -> None:
        """Open it. Raises InvalidArgument if there are no tables."""
        lakehouse = open_tables(tables)
        self.days: list[date] = sorted(_days(lakehouse, _TABLE))
        # A day without usage is not in the table, but it tells that the days before it are over.
        self.newest_day: date | None = max(self.days + _days(lakehouse, "events"), default=None)
        self._dataset = lakehouse.dataset(_TABLE) if self.days else None

    def on(self, day: date) -> DayUsage:
        """Return the usage of a day."""
        if self._dataset is None:
            return DayUsage({}, is_complete=True)
        batches = self._dataset.to_batches(columns=[*_BY, *_COLUMNS], filter=ds.field("day") == day)
        found = rolled_up(batches, _BY, _COLUMNS)
        *quantities, complete = (found[name].to_pylist() for name in _COLUMNS)
        places = zip(*(found[name].to_pylist() for name in _BY), strict=True)
        usage = {
            TenantInQueue(queue, tenant or ""): tuple(value or 0 for value in values)
            for (queue, tenant), values in zip(places, zip(*quantities, strict=True), strict=True)
        }
        return DayUsage(usage, is_complete=False not in complete)


def _days(lakehouse: Lakehouse, table: str) -> list[date]:
    return list({date.fromisoformat(file.partition["day"]) for file in lakehouse.files(table)})
