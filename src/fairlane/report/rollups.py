"""Sums over tables, computed by Arrow batch by batch: a long table costs no Python object for each of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fairlane.lakehouse.rollups import Operation, aggregated, rolled_up
from fairlane.model.histogram import LogHistogram
from fairlane.model.limits import WEIGHT_MAX
from fairlane.report.tables import Tables

Groups = dict[tuple[str, ...], tuple[int, ...]]

_WEIGHTS = WEIGHT_MAX + 1


def grouped(
    tables: Tables,
    table: str,
    by: Sequence[str],
    columns: Mapping[str, Operation],
    *,
    where: pc.Expression | None = None,
) -> Groups:
    """Return for each value of ``by`` the sums, or the greatest or least values, of columns; 0 where all are null."""
    found = rolled_up(tables.batches(table, (*by, *columns), where), by, columns)
    keys, values = ([found[name].to_pylist() for name in names] for names in (by, columns))
    return {
        key: tuple(value or 0 for value in row)
        for key, row in zip(zip(*keys, strict=True), zip(*values, strict=True), strict=True)
    }


def latest_weights(tables: Tables) -> dict[tuple[str, ...], int]:
    """Return the weight that each top key of a queue had last."""
    by = ("queue", "top_key")

    def marked() -> Iterator[pa.RecordBatch]:
        for batch in tables.batches("fairness_keys", (*by, "from_ms", "weight")):
            yield pa.RecordBatch.from_arrays([*[batch[name] for name in by], weight_marks(batch)], [*by, "mark"])

    found = rolled_up(marked(), by, {"mark": "max"})
    columns = [found[name].to_pylist() for name in (*by, "mark")]
    return {(queue, key): weight_of(mark) for queue, key, mark in zip(*columns, strict=True)}


def weight_marks(batch: pa.RecordBatch) -> pa.Array:
    """Return instant and weight of runs as one number each: the greatest one has the weight of the last run."""
    return pc.add(pc.multiply(batch["from_ms"], _WEIGHTS), batch["weight"])


def weight_of(mark: int) -> int:
    """Return the weight of a mark."""
    return mark % _WEIGHTS


def histograms(tables: Tables, by: Sequence[str]) -> dict[tuple[str, ...], LogHistogram]:
    """Return the waits in ``latency`` as one histogram for each value of ``by``."""
    found: dict[tuple[str, ...], LogHistogram] = defaultdict(LogHistogram)
    for key, (most,) in grouped(tables, "latency", by, {"wait_max_ms": "max"}).items():
        found[key].add((), most=most)
    for batch in tables.batches("latency", (*by, "wait_histogram")):
        rows = pc.list_parent_indices(batch["wait_histogram"])
        entries = pc.list_flatten(batch["wait_histogram"])
        names = {name: batch[name].take(rows) for name in by}
        counts = {name: pc.struct_field(entries, name) for name in ("bucket", "count")}
        summed = aggregated(pa.table(names | counts), (*by, "bucket"), {"count": "sum"})
        columns = [summed[name].to_pylist() for name in (*by, "bucket", "count")]
        for *place, bucket, count in zip(*columns, strict=True):
            found[tuple(place)].count_bucket(bucket, count)
    return found


def weighted_means(tables: Tables, table: str, column: str, *, by: str, weight: str) -> dict[str, float]:
    """Return the mean of a column for each value of another, weighted by a third; rows without a value don't count."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for batch in tables.batches(table, (by, column, weight)):
        rows = pa.table(batch).filter(pc.is_valid(pc.field(column)))
        products = pc.multiply(rows[column], rows[weight])
        summed = pa.table({by: rows[by], "product": products, "weight": rows[weight]}).group_by(by)
        for row in summed.aggregate([("product", "sum"), ("weight", "sum")]).to_pylist():
            totals[row[by]][0] += row["product_sum"]
            totals[row[by]][1] += row["weight_sum"]
    return {name: total / weights for name, (total, weights) in totals.items() if weights}


def longest(
    tables: Tables, table: str, columns: Sequence[str], *, by: str, where: pc.Expression, rows_max: int
) -> pa.Table:
    """Return the rows of a table with the greatest values in a column, the greatest first."""
    kept: pa.Table | None = None
    for batch in tables.batches(table, columns, where):
        new = pa.table(batch)
        both = new if kept is None else pa.concat_tables([kept, new])
        order = pc.sort_indices(both, [(by, "descending"), *[(name, "ascending") for name in columns if name != by]])
        kept = both.take(order[:rows_max])
    return pa.table({name: [] for name in columns}) if kept is None else kept


def by_step(tables: Tables, *, step_ms: int) -> pa.Table:
    """Return ``fairness`` by queue and step: what was served is summed, of the rest the greatest counts.

    A run belongs to the step in which it begins. The mean of ``jain`` is weighted by the served cost, and
    ``lag_max_key`` is the key of the greatest lag.
    """
    found = list(tables.batches("fairness", _FAIRNESS))
    if not found:
        return pa.table({name: [] for name in _FAIRNESS})
    rows = pa.Table.from_batches(found)
    weighed = pc.multiply(pc.fill_null(rows["jain"], 0.0), rows["served_cost"])
    marked = rows.append_column("step", pc.divide(rows["from_ms"], step_ms)).append_column("weighed", weighed)
    # Groups have their first row by the order of the table only if one thread makes them.
    steps = marked.sort_by([("lag_max_cost", "descending")]).group_by(["queue", "step"], use_threads=False)
    summed = steps.aggregate(list(_BY_STEP))
    named = summed.select(["queue", *[f"{name}_{operation}" for name, operation in _BY_STEP]])
    whole = named.rename_columns(["queue", *[name for name, _ in _BY_STEP]])
    served = pc.cast(whole["served_cost"], pa.float64())
    jain = pc.if_else(pc.greater(served, 0), pc.divide(whole["weighed"], served), None)
    return whole.append_column("jain", jain).sort_by([("queue", "ascending"), ("from_ms", "ascending")])


_BY_STEP = (
    *(("from_ms", "min"), ("until_ms", "max"), ("served_cost", "sum"), ("waiting_cost", "max")),
    *(("keys", "max"), ("lag_max_key", "first"), ("lag_max_cost", "max"), ("weighed", "sum")),
)
_FAIRNESS = (
    *("queue", "from_ms", "until_ms", "jain", "served_cost", "waiting_cost"),
    *("keys", "lag_max_key", "lag_max_cost"),
)
