"""What tenants wanted and got hour by hour, from the tables.

Tables may be long, so they are summed by Arrow, and only one hour of one queue at a time becomes Python objects.

A run in which a backlog waits quietly may last for many hours, with one sum of what it was entitled to. That sum grew
while others were served, so it is divided between the hours by what was served in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fairlane.lakehouse.rollups import Operation, aggregated, rolled_up
from fairlane.model.noise import HOUR_MS, KeyLoad, demand
from fairlane.report.rollups import weight_marks, weight_of
from fairlane.report.tables import Tables

_Place = tuple[str, int]
_Rows = dict[str, tuple[float, ...]]
_BY = ("queue", "top_key", "hour_ms")
_SERVICE = ("queue", "hour_ms")
_IN_ORDER = [("queue", "ascending"), ("hour_ms", "ascending")]
_RUN = ("queue", "top_key", "from_ms", "until_ms", "served_cost", "entitled_cost", "weight")
_SERVED = ("served_cost", "entitled_cost", "mark")
_WANTED = ("enqueued_cost", "refused_cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHour:
    """One queue in one hour.

    Attributes:
        loads: what each tenant that had work wanted and got.
        refused: the cost that limits refused, by tenant.
    """

    queue: str
    hour_ms: int
    loads: dict[str, KeyLoad]
    refused: dict[str, float]


def queue_hours(tables: Tables) -> Iterator[QueueHour]:
    """Yield each hour of each queue in which a tenant had work, in order."""
    served, wanted = _Hours(_served(tables), _SERVED), _Hours(_wanted(tables), _WANTED)
    for queue, hour_ms in served.places:
        after = (queue, hour_ms + HOUR_MS)
        arrived = {key: amounts[0] for key, amounts in wanted.rows(after).items()}
        left = {key: amounts[0] - arrived.get(key, 0) for key, amounts in served.rows(after).items()}
        came = wanted.rows((queue, hour_ms))
        refused = {key: amounts[1] for key, amounts in came.items()}
        yield QueueHour(
            queue=queue, hour_ms=hour_ms, loads=_loads(served.rows((queue, hour_ms)), came, left), refused=refused
        )


def _loads(served: _Rows, came: _Rows, served_after: Mapping[str, float]) -> dict[str, KeyLoad]:
    weights = {key: weight_of(int(mark)) for key, (_, _, mark) in served.items()}
    capacity, weight = sum(cost for cost, _, _ in served.values()), sum(weights.values()) or 1
    found: dict[str, KeyLoad] = {}
    for key, (cost, entitled, _) in served.items():
        arrived, refused = came.get(key, (0, 0))
        after = served_after.get(key, 0)
        wanted = demand(arrived=arrived, served=cost, refused=refused, served_after=after)
        part = capacity * weights[key] / weight
        found[key] = KeyLoad(wanted=wanted, served=cost, entitled=entitled, part=part)
    return found


class _Hours:
    """A table by queue and hour."""

    def __init__(self, table: pa.Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._table = table.sort_by(_IN_ORDER) if table.num_rows else table
        self.places: dict[_Place, tuple[int, int]] = {}
        start = 0
        for queue, hour_ms, count in _counts(self._table):
            self.places[queue, hour_ms] = (start, count)
            start += count

    def rows(self, place: _Place) -> _Rows:
        """Return the columns of each tenant in an hour of a queue."""
        part = self._table.slice(*self.places.get(place, (0, 0)))
        return dict(zip(part["top_key"].to_pylist(), _columns(part, *self._columns), strict=True))


def _counts(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Yield the number of rows of each queue and hour, in the order of the rows."""
    if table.num_rows:
        groups = table.group_by(list(_SERVICE)).aggregate([("top_key", "count")])
        yield from _columns(groups.sort_by(_IN_ORDER), *_SERVICE, "top_key_count")


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*[table[name].to_pylist() for name in names], strict=True)


def _wanted(tables: Tables) -> pa.Table:
    return rolled_up(tables.batches("tenant_usage", (*_BY, *_WANTED)), _BY, dict.fromkeys(_WANTED, "sum"))


def _served(tables: Tables) -> pa.Table:
    """Return what each tenant was served and entitled to in each hour, and a mark with its weight."""
    last, first = (pc.divide(at_ms, HOUR_MS) for at_ms in (pc.field("until_ms") - 1, pc.field("from_ms")))
    sums: dict[str, Operation] = {"served_cost": "sum", "entitled_cost": "sum", "mark": "max"}
    found = rolled_up(map(_of_hour, tables.batches("fairness_keys", _RUN, last <= first)), _BY, sums)
    services = aggregated(found, _SERVICE, {"served_cost": "sum"}) if found.num_rows else found
    by_place = {(queue, at): cost for queue, at, cost in _columns(services, *_SERVICE, "served_cost")}
    lasting = [
        part
        for batch in tables.batches("fairness_keys", _RUN, last > first)
        for part in _divided(batch, by_place, found.schema)
    ]
    return rolled_up([*found.to_batches(), *lasting], _BY, sums) if lasting else found


def _of_hour(batch: pa.RecordBatch) -> pa.RecordBatch:
    hour_ms = pc.multiply(pc.divide(batch["from_ms"], HOUR_MS), HOUR_MS)
    amounts = [batch["served_cost"], batch["entitled_cost"], weight_marks(batch)]
    return pa.RecordBatch.from_arrays([batch["queue"], batch["top_key"], hour_ms, *amounts], [*_BY, *_SERVED])


def _divided(batch: pa.RecordBatch, services: Mapping[_Place, int], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return runs of several hours as one row for each hour in which others were served."""
    rows = []
    for run, mark in zip(batch.to_pylist(), weight_marks(batch).to_pylist(), strict=True):
        parts = dict(_parts(run["queue"], run["from_ms"], run["until_ms"], services))
        for hour_ms, part in parts.items():
            entitled = run["entitled_cost"] * part / sum(parts.values())
            amounts = {"served_cost": 0, "entitled_cost": entitled, "mark": mark}
            rows.append({"queue": run["queue"], "top_key": run["top_key"], "hour_ms": hour_ms, **amounts})
    batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, schema).to_batches()
    return batches


def _parts(queue: str, from_ms: int, until_ms: int, services: Mapping[_Place, int]) -> Iterator[tuple[int, int]]:
    """Yield the hours of a run with the parts that they have of what it was entitled to."""
    for hour_ms in range(from_ms - from_ms % HOUR_MS, until_ms, HOUR_MS):
        lasted_ms = min(until_ms, hour_ms + HOUR_MS) - max(from_ms, hour_ms)
        if part := services.get((queue, hour_ms), 0) * lasted_ms:
            yield hour_ms, part
