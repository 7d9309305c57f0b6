"""Events written by hand, and tables as plain rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fairlane.spark.tables.events import JOURNAL_SCHEMA, events

DAY_0 = 1_767_225_600_000
"""2026-01-01, midnight UTC."""
HOUR = 3_600_000
DAY = 24 * HOUR

Event = dict[str, Any]


def message_id(sequence: int) -> str:
    """Return the id of the message that this event enqueued."""
    return f"{sequence:016x}"


def event(kind: str, sequence: int, at: int, **columns: Any) -> Event:
    """Return an event so many milliseconds after the beginning of the first day."""
    return {"kind": kind, "sequence": sequence, "record": sequence, "at_ms": DAY_0 + at, **columns}


def enqueued(sequence: int, at: int, key: str = "acme", *, queue: str = "mail", **terms: Any) -> Event:
    """Return the enqueue of a message, which has the sequence for a number."""
    known = {"cost": 1, "priority": "normal", "throttles": [], "size_bytes": 10, "message_id": message_id(sequence)}
    return event("enqueued", sequence, at, queue=queue, fairness_key=key.split("/"), **known | terms)


def of(kind: str, sequence: int, at: int, message: int, *, queue: str = "mail", **columns: Any) -> Event:
    """Return another event of a message."""
    return event(kind, sequence, at, queue=queue, message_id=message_id(message), **columns)


def frame(spark: SparkSession, *rows: Event) -> DataFrame:
    """Return events as the table has them."""
    columns = JOURNAL_SCHEMA.names
    return events(spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], JOURNAL_SCHEMA))


def kept(table: DataFrame) -> DataFrame:
    """Return a table whose rows are there already: planning what it was made of takes far longer than a few rows."""
    return table.localCheckpoint()


def told(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows, in order of these columns; nulls go first."""
    rows = [tuple(row) for row in table.select(*columns).collect()]
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])
