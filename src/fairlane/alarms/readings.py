"""Reads what the rules need from the tables: a few columns of a few days, through Arrow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairlane.alarms.rules import LEASES_MIN, SERVICE_MS, Errors, Hour, Service
from fairlane.lakehouse import Lakehouse
from fairlane.lakehouse.rollups import rolled_up
from fairlane.lakehouse.state import TablesState

WAIT_DAYS: Final = 7
"""The days before the newest one whose waits tell what is usual."""
ERROR_DAYS: Final = 30
"""An error is new again if it was not seen within this number of days."""
_TEXT_LENGTH: Final = 300


class Horizon(TablesState, frozen=True, kw_only=True):
    """The part of the manifest that is needed here: the instant of the last event."""

    horizon_ms: int = 0


class Readings:
    """The tables as they are now."""

    def __init__(self, lakehouse: Lakehouse, horizon_ms: int) -> None:
        """Take tables whose last event was at an instant."""
        self._lakehouse, self._now_ms = lakehouse, horizon_ms
        self._today = datetime.fromtimestamp(horizon_ms / 1000, UTC).date()

    def services(self) -> list[Service]:
        """Return what tenants were served recently. Of a run that began before, the part that is recent counts."""
        since_ms = self._now_ms - SERVICE_MS
        is_recent = (ds.field("day") >= self._today - timedelta(days=1)) & (ds.field("until_ms") > since_ms)
        names = ("queue", "top_key", "from_ms", "until_ms", "served_cost", "entitled_cost")
        by = ("queue", "top_key")
        recent = (_recent_part(batch, since_ms) for batch in self._batches("fairness_keys", names, is_recent))
        found = rolled_up(recent, by, {"served_cost": "sum", "entitled_cost": "sum"})
        columns = [found[name].to_pylist() for name in (*by, "served_cost", "entitled_cost")]
        return [Service(queue, tenant or "", *sums) for queue, tenant, *sums in zip(*columns, strict=True)]

    def hours(self) -> list[Hour]:
        """Return the hours of fairness keys that had enough leases."""
        names = ("queue", "key", "hour_ms", "handed_out", "wait_p99_ms")
        wanted = self._since(WAIT_DAYS) & (ds.field("handed_out") >= LEASES_MIN)
        return [Hour(*row) for row in self._rows("latency", names, wanted)]

    def errors(self) -> list[Errors]:
        """Return the kinds of dead letters of the last days, each with the first time that it was seen in them."""
        names = ("queue", "signature_id", "signature", "reason", "count", "first_seen_ms")
        kinds: dict[str, list[Errors]] = defaultdict(list)
        for queue, which, signature, reason, *seen in self._rows("dead_letters", names, self._since(ERROR_DAYS)):
            kinds[which].append(Errors(queue, which, (signature or reason)[:_TEXT_LENGTH], *seen))
        return [
            days[0]._replace(
                letters=sum(each.letters for each in days), first_seen_ms=min(each.first_seen_ms for each in days)
            )
            for days in kinds.values()
        ]

    def _since(self, days: int) -> ds.Expression:
        return ds.field("day") >= self._today - timedelta(days=days)

    def _rows(self, table: str, names: tuple[str, ...], where: ds.Expression) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches(table, names, where):
            yield from zip(*[batch[name].to_pylist() for name in names], strict=True)

    def _batches(self, table: str, names: tuple[str, ...], where: ds.Expression) -> Iterator[pa.RecordBatch]:
        if self._lakehouse.files(table):
            yield from self._lakehouse.dataset(table).to_batches(columns=list(names), filter=where)


def _recent_part(batch: pa.RecordBatch, since_ms: int) -> pa.RecordBatch:
    """Return the part of each run that happened since an instant, as if its service had been even."""
    from_ms, until_ms = batch["from_ms"], batch["until_ms"]
    whole = pc.max_element_wise(pc.subtract(until_ms, from_ms), 1)
    recent = pc.subtract(until_ms, pc.max_element_wise(from_ms, since_ms))
    part = pc.divide(pc.cast(recent, "float64"), pc.cast(whole, "float64"))
    for name in ("served_cost", "entitled_cost"):
        column = pc.multiply(pc.cast(batch[name], "float64"), part)
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch.select(["queue", "top_key", "served_cost", "entitled_cost"])
