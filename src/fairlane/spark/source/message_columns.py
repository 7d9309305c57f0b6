"""Messages as Arrow: what the queue source, the peek source and the dead letters have for columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from fairlane.model.message import Delivery, FailedAttempt, Key, MessageView

_TEXTS: Final = pa.list_(pa.string())
_HEADERS: Final = pa.map_(pa.string(), pa.string())
_ATTEMPTS: Final = pa.list_(
    pa.struct([("at_ms", pa.int64()), ("attempt", pa.int64()), ("reason", pa.string()), ("error", pa.string())])
)

DELIVERIES: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("queue", pa.string(), nullable=False),
        pa.field("claim", pa.int64(), nullable=False),
        pa.field("token", pa.int64(), nullable=False),
        pa.field("fairness_key", _TEXTS, nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("headers", _HEADERS, nullable=False),
        pa.field("attempt", pa.int64(), nullable=False),
        pa.field("failures", pa.int64(), nullable=False),
        pa.field("priority", pa.string(), nullable=False),
        pa.field("cost", pa.int64(), nullable=False),
        pa.field("enqueued_ms", pa.int64(), nullable=False),
        pa.field("correlation_id", pa.string(), nullable=False),
    ]
)
"""The columns of a queue that is consumed."""

BODY: Final = frozenset(("payload", "headers", "correlation_id"))
"""The columns for which bodies must be read from the store."""
VIEWS: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("queue", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("fairness_key", _TEXTS, nullable=False),
        pa.field("payload", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("correlation_id", pa.string()),
        pa.field("weight", pa.int64(), nullable=False),
        pa.field("cost", pa.int64(), nullable=False),
        pa.field("priority", pa.string(), nullable=False),
        pa.field("throttles", _TEXTS, nullable=False),
        pa.field("enqueued_ms", pa.int64(), nullable=False),
        pa.field("due_ms", pa.int64()),
        pa.field("deadline_ms", pa.int64()),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("attempts", pa.int64(), nullable=False),
        pa.field("failures", pa.int64(), nullable=False),
        pa.field("errors", _ATTEMPTS, nullable=False),
        pa.field("origin", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("dead_ms", pa.int64()),
        pa.field("owner", pa.string()),
        pa.field("expires_ms", pa.int64()),
    ]
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
