"""Converts the rows of a frame into messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T

from fairlane.errors import InvalidArgument
from fairlane.model.message import NewMessage

_WHOLE: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType)


def _is_texts(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType) and _is_text(kind.elementType)


def _is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, _WHOLE)


_COLUMNS: Final[Mapping[str, tuple[str, Callable[[T.DataType], bool]]]] = {
    "payload": ("binary or string", lambda kind: isinstance(kind, T.BinaryType) or _is_text(kind)),
    "fairness_key": ("string or array<string>", lambda kind: _is_text(kind) or _is_texts(kind)),
    "headers": (
        "map<string,string>",
        lambda kind: isinstance(kind, T.MapType) and _is_text(kind.keyType) and _is_text(kind.valueType),
    ),
    "weight": ("a whole number", _is_whole),
    "cost": ("a whole number", _is_whole),
    "priority": ("string: high, normal or low", _is_text),
    "throttles": ("array<string>", _is_texts),
    "delay_ms": ("a whole number", _is_whole),
    "due_ms": ("a whole number", _is_whole),
    "deadline_ms": ("a whole number", _is_whole),
    "correlation_id": ("string", _is_text),
    "max_attempts": ("a whole number", _is_whole),
    "visibility_timeout_ms": ("a whole number", _is_whole),
    "order_key": ("string", _is_text),
}
"""The columns of a message: fields of ``NewMessage``, and ``due_ms`` as an instant.

A dedup id is none of them: what is staged and published once needs none, and the broker takes none for it.
"""


def check_columns(schema: T.StructType) -> None:
    """Refuse a frame whose columns don't fit, before any task runs.

    Raises:
        InvalidArgument: a column is missing, unknown, there twice, or of a wrong type.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in _COLUMNS:
            close = get_close_matches(field.name, _COLUMNS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known columns: {', '.join(_COLUMNS)}."
            raise InvalidArgument(f"Unknown message column {field.name!r:.100}: drop or rename it. {hint}")
        expected, fits = _COLUMNS[field.name]
        if not fits(field.dataType):
            raise InvalidArgument(f"Column {field.name} must be {expected}, not {field.dataType.simpleString()}.")
        if names.count(field.name) > 1:
            raise InvalidArgument(f"Column {field.name} occurs twice. Rename or drop one of them.")
    if "payload" not in names:
        raise InvalidArgument("Column payload is missing; it must be binary or string.")
    if "delay_ms" in names and "due_ms" in names:
        raise InvalidArgument("Columns delay_ms and due_ms exclude each other: drop one of them.")


def messages_of(batch: pa.RecordBatch) -> Iterator[NewMessage]:
    """Yield the messages of a batch with checked columns. A null is the default.

    Raises:
        InvalidArgument: a payload is null.
    """
    columns = {name: _values(batch.column(name), name) for name in batch.schema.names}
    if "due_ms" in columns:
        now_ms = time.time_ns() // 1_000_000
        columns["delay_ms"] = [None if due is None else max(0, due - now_ms) for due in columns.pop("due_ms")]
    names = tuple(columns)
    for row in zip(*columns.values(), strict=True):
        fields = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        if "payload" not in fields:
            raise InvalidArgument("A payload is null. Use an empty string or empty bytes for an empty payload.")
        yield NewMessage(**fields)


def _values(column: pa.Array, name: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if name == "payload" and not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        return [None if value is None else value.encode() for value in values]
    if name == "headers":
        return [None if value is None else dict(value) for value in values]
    if name in ("throttles", "fairness_key"):
        return [tuple(value) if isinstance(value, list) else value for value in values]
    return values
