"""Columns between Spark and Arrow: those that a query asks for, and those of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fairlane.errors import InvalidArgument
from fairlane.model.message import Delivery, FailedAttempt, Key, MessageView

_TEXT, _INT = pa.string(), pa.int64()
_TEXTS: Final = pa.list_(_TEXT)
_HEADERS: Final = pa.map_(pa.string(), pa.string())
_ATTEMPTS: Final = pa.list_(
    pa.struct([("at_ms", pa.int64()), ("attempt", pa.int64()), ("reason", pa.string()), ("error", pa.string())])
)


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    """Return a schema of names and types; a name with a question mark may be null."""
    return pa.schema([pa.field(name.rstrip("?"), kind, nullable=name.endswith("?")) for name, kind in columns])


DELIVERIES: Final = _schema(
    *(("id", _TEXT), ("queue", _TEXT), ("claim", _INT), ("token", _INT), ("fairness_key", _TEXTS)),
    *(("payload", pa.binary()), ("headers", _HEADERS), ("attempt", _INT), ("failures", _INT)),
    *(("priority", _TEXT), ("cost", _INT), ("enqueued_ms", _INT), ("correlation_id", _TEXT)),
)
"""The columns of a queue that is consumed."""

BODY: Final = frozenset(("payload", "headers", "correlation_id"))
"""The columns for which bodies must be read from the store."""
VIEWS: Final = _schema(
    *(("id", _TEXT), ("queue", _TEXT), ("status", _TEXT), ("fairness_key", _TEXTS)),
    *(("payload?", pa.binary()), ("headers?", _HEADERS), ("correlation_id?", _TEXT)),
    *(("weight", _INT), ("cost", _INT), ("priority", _TEXT), ("throttles", _TEXTS)),
    *(("enqueued_ms", _INT), ("due_ms?", _INT), ("deadline_ms?", _INT), ("size_bytes", _INT)),
    *(("attempts", _INT), ("failures", _INT), ("errors", _ATTEMPTS)),
    *(("origin?", _TEXT), ("reason?", _TEXT), ("dead_ms?", _INT)),
    *(("owner?", _TEXT), ("expires_ms?", _INT)),
)
"""The columns of messages that are looked at."""


def deliveries_batch(deliveries: Sequence[Delivery], *, claim: int, layout: pa.Schema) -> pa.RecordBatch:
    """Return leased messages of a claim, with the columns of a layout."""
    return _batch(deliveries, layout, {"claim": lambda _: claim})


def views_batch(views: Sequence[MessageView], *, layout: pa.Schema) -> pa.RecordBatch:
    """Return messages that were looked at, with the columns of a layout."""
    return _batch(views, layout, _OF_VIEW)


_Read = Callable[[Any], Any]
_OF_VIEW: Final[Mapping[str, _Read]] = {
    "size_bytes": lambda view: view.size,
    "origin": lambda view: view.dead.origin if view.dead is not None else None,
    "reason": lambda view: view.dead.reason if view.dead is not None else None,
    "dead_ms": lambda view: view.dead.at_ms if view.dead is not None else None,
}


def _batch(messages: Sequence[Any], layout: pa.Schema, read: Mapping[str, _Read]) -> pa.RecordBatch:
    arrays = []
    for field in layout:
        one = read.get(field.name)
        if one is None:
            values = [getattr(message, field.name) for message in messages]
        else:
            values = [one(message) for message in messages]
        arrays.append(_array(values, field))
    return pa.RecordBatch.from_arrays(arrays, schema=layout)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    if field.name == "headers":
        return _maps(values, field.type)
    if field.name == "fairness_key" and all(type(value) is str for value in values):
        return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), pa.array(values, pa.string()))
    if field.name in ("fairness_key", "throttles"):
        return pa.array([_path(value) for value in values], field.type)
    if field.name == "errors":
        return pa.array([[_attempt(attempt) for attempt in attempts] for attempts in values], field.type)
    return pa.array(values, field.type)


def _path(key: Key) -> Sequence[str]:
    return (key,) if isinstance(key, str) else key


def _attempt(attempt: FailedAttempt) -> dict[str, Any]:
    return {"at_ms": attempt.at_ms, "attempt": attempt.attempt, "reason": attempt.reason, "error": attempt.error}


def _maps(values: list[Mapping[str, str] | None], kind: pa.DataType) -> pa.Array:
    """Return maps of texts, from two flat arrays: many times faster than having Arrow look at each map."""
    offsets: list[int | None] = []
    keys: list[str] = []
    items: list[str] = []
    for one in values:
        offsets.append(None if one is None else len(keys))
        if one:
            keys += one.keys()
            items += one.values()
    offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(items, pa.string())
    ).cast(kind)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as a Spark schema."""
    found: StructType = from_arrow_schema(schema)
    return found


def layout(asked: StructType, known: pa.Schema) -> pa.Schema:
    """Return the Arrow schema for a schema that the user may have set: some of the known columns, in any order.

    Raises:
        InvalidArgument: a column is unknown, or has another type.
    """
    types = {field.name: field.dataType for field in spark_schema(known).fields}
    for field in asked.fields:
        if field.name not in types:
            raise InvalidArgument(f"Unknown column {field.name!r:.100}. Known columns: {', '.join(types)}.")
        if field.dataType != types[field.name]:
            expected = types[field.name].simpleString()
            raise InvalidArgument(f"Column {field.name} must be {expected}, not {field.dataType.simpleString()}.")
    return pa.schema([pa.field(one.name, known.field(one.name).type, nullable=one.nullable) for one in asked.fields])


def laid_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the requested columns of a batch. Spark accepts a batch only if its schema matches exactly."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
