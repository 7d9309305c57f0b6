"""The journal's events in Arrow, for Spark, Parquet and other readers of tables.

Needs the extra ``fairlane[arrow]``. No other module of the journal imports this one, so a broker runs without Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fairlane.journal.codec import Page
from fairlane.journal.events import NUMBERED, Columns
from fairlane.journal.identity import ID_FIELD
from fairlane.journal.schema import COLUMNS, EVENTS_VERSION, ColumnType

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow tables need the package pyarrow: install fairlane[arrow].") from error

VERSION_FIELD = b"fairlane.events.version"
"""The name of the version in the schema's metadata."""

_TEXTS = pa.list_(pa.string())
_TYPES: dict[ColumnType, pa.DataType] = {
    "int64": pa.int64(),
    "string": pa.string(),
    "list of strings": _TEXTS,
    "bool": pa.bool_(),
}
SCHEMA = pa.schema(
    [pa.field(column.name, _TYPES[column.type], nullable=not column.is_required) for column in COLUMNS],
    metadata={VERSION_FIELD: str(EVENTS_VERSION).encode()},
)
"""The Arrow schema of events."""

_ID_LENGTH = 16
_JOURNAL = "journal_id"


def to_batch(pages: Iterable[Page], *, journal_id: str | None = None) -> pa.RecordBatch:
    """Return the events of pages of a journal."""
    columns = Columns()
    for page in pages:
        columns.append(page)
    return batch_of(columns, journal_id=journal_id)


def batch_of_rows(rows: Sequence[Mapping[str, Any]], *, journal_id: str | None = None) -> pa.RecordBatch:
    """Return rows of events of a journal, such as a server sends as JSON, as a batch."""
    return pa.RecordBatch.from_pylist([{**row, _JOURNAL: journal_id} for row in rows], schema=SCHEMA)


def batch_of(
    columns: Columns, *, names: Collection[str] | None = None, journal_id: str | None = None
) -> pa.RecordBatch:
    """Return columns of events of a journal as a batch: all columns, or those named, in the order of the schema."""
    schema = SCHEMA if names is None else schema_of(names)
    return pa.RecordBatch.from_arrays([_array(columns, field, journal_id) for field in schema], schema=schema)


def schema_of(names: Collection[str], *, journal_id: str | None = None) -> pa.Schema:
    """Return the schema of some columns, in the order of the schema, and in its metadata whose events they are."""
    known = {} if journal_id is None else {ID_FIELD: journal_id.encode()}
    return pa.schema([field for field in SCHEMA if field.name in names], metadata=SCHEMA.metadata | known)


def _array(columns: Columns, field: pa.Field, journal_id: str | None) -> pa.Array:
    if field.name == _JOURNAL:
        return pa.repeat(pa.scalar(journal_id, field.type), columns.count)
    values = columns.column(field.name)
    if values is None:
        return pa.nulls(columns.count, field.type)
    if field.name in NUMBERED:
        return _ids(values)
    if field.type == _TEXTS:
        return _lists(values)
    return pa.array(values, field.type)


def _ids(numbers: list[int | None]) -> pa.Array:
    """Return the ids of messages, formatted in one call: an id is the number's eight bytes in hexadecimal."""
    count = len(numbers)
    digits = struct.pack(f">{count}Q", *[number or 0 for number in numbers]).hex().encode()
    offsets = pa.array(range(0, (count + 1) * _ID_LENGTH, _ID_LENGTH), pa.int32())
    known = pa.array([number is not None for number in numbers], pa.bool_())
    buffers = [known.buffers()[1], offsets.buffers()[1], pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _lists(values: list[Any]) -> pa.Array:
    """Return lists of texts from one flat array, which is many times faster than letting Arrow read each list."""
    offsets: list[int | None] = []
    flat: list[str] = []
    for texts in values:
        if texts is None:
            offsets.append(None)
        else:
            offsets.append(len(flat))
            flat.extend(texts)
    offsets.append(len(flat))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, pa.string()), type=_TEXTS)
