"""Sums over long tables, computed by Arrow batch by batch: memory grows with the groups, not with the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa

Operation = Literal["sum", "max", "min"]

_ROWS_MAX = 200_000
"""Partial sums are merged when they have more rows than this."""


def rolled_up(batches: Iterable[pa.RecordBatch], by: Sequence[str], columns: Mapping[str, Operation]) -> pa.Table:
    """Return for each value of ``by`` the sums, or the greatest or least values, of columns."""
    parts: list[pa.Table] = []
    for batch in batches:
        parts.append(aggregated(pa.table(batch), by, columns))
        if sum(part.num_rows for part in parts[1:]) > _ROWS_MAX:
            parts = [aggregated(pa.concat_tables(parts), by, columns)]
    if not parts:
        return pa.table({name: [] for name in (*by, *columns)})
    return aggregated(pa.concat_tables(parts), by, columns)


def aggregated(table: pa.Table, by: Sequence[str], columns: Mapping[str, Operation]) -> pa.Table:
    """Return the same for rows that are in memory."""
    found = table.group_by(list(by)).aggregate(list(columns.items()))
    names = {f"{name}_{operation}": name for name, operation in columns.items()}
    return found.rename_columns([names.get(name, name) for name in found.schema.names])
