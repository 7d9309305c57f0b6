"""Writes the rows that a task has as Parquet files, one or more for each partition. It needs no Spark.

Rows come in small batches, in any order of partitions. Each partition has an open file; rows are gathered until they
make a row group of some size. A file is complete when it appears under its name: one in an object store is put there
as a whole, and one in a folder counts only after the driver has committed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairlane.lakehouse.files import NO_VALUE, Attempt, DataFile, folder_of
from fairlane.lakehouse.port import Place
from fairlane.lakehouse.storage import Storage

GROUP_ROWS = 131_072
"""How many rows make a row group."""
GATHERED_BYTES_MAX = 64 << 20
"""How much a task gathers for all partitions together before it writes the largest group."""
TEXT_LENGTH_MAX = 64
"""The longest text that statistics have."""
FILE_ROWS_MAX = 4_000_000
"""A file with this many rows is closed, and another begins."""


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes a table. It can be pickled.

    Attributes:
        storage: where to.
        place: where in it, and in which form.
        attempt: the attempt at a run that writes.
        partitions: the columns that files are split by, each value in a folder.
        apart: further columns that files are split by.
    """

    storage: Storage
    place: Place
    attempt: Attempt
    partitions: tuple[str, ...]
    apart: tuple[str, ...] = ()

    def write(self, batches: Iterable[pa.RecordBatch], part: str) -> list[DataFile]:
        """Write rows and return the files; ``part`` tells this task's files from those of all other tasks."""
        return list(self._written(batches, part))

    def _written(self, batches: Iterable[pa.RecordBatch], part: str) -> Iterator[DataFile]:
        columns = self.place.schema if self.place.is_whole else self._without_partitions()
        number = 0
        files: dict[tuple[str, ...], _OpenFile] = {}
        for batch in batches:
            for values, rows in self._split(batch):
                if values not in files:
                    path = self._path(values, f"{part}-{number}" if number else part)
                    files[values] = _OpenFile(self.storage, self.place.prefix, path, columns, not self.place.is_whole)
                    number += 1
                file = files[values]
                file.gather(rows)
                if file.rows >= FILE_ROWS_MAX:
                    yield self._closed(values, files.pop(values))
            while sum(file.gathered_bytes for file in files.values()) > GATHERED_BYTES_MAX:
                max(files.values(), key=lambda file: file.gathered_bytes).flush()
        for values, file in sorted(files.items()):
            yield self._closed(values, file)

    def _closed(self, values: tuple[str, ...], file: _OpenFile) -> DataFile:
        size_bytes, metadata = file.close()
        return DataFile(
            path=file.path,
            partition=self._partition(values),
            rows=metadata.num_rows,
            size_bytes=size_bytes,
            stats=stats_of(metadata),
        )

    def _without_partitions(self) -> pa.Schema:
        kept = [field for field in self.place.schema if field.name not in self.partitions]
        return pa.schema(kept, metadata=self.place.schema.metadata)

    def _partition(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.partitions, values[: len(self.partitions)], strict=True))

    def _path(self, values: tuple[str, ...], part: str) -> str:
        return f"{self.place.folder}/{folder_of(self._partition(values))}/{self.attempt.file_name(part)}"

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
        """Yield the rows of each partition that a batch has. Usually that is one."""
        columns = [*self.partitions, *self.apart]
        kinds = pa.table({name: batch.column(name) for name in columns}).group_by(columns).aggregate([]).to_pylist()
        for kind in kinds:
            values = tuple(_text(kind[name]) for name in columns)
            if len(kinds) == 1:
                yield values, batch
            else:
                yield values, batch.filter(_all_of([_equals(batch.column(name), kind[name]) for name in columns]))


def _equals(column: pa.Array, value: object) -> pa.Array:
    if value is None:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), pa.scalar(value=False))


def _all_of(masks: list[pa.Array]) -> pa.Array:
    found = masks[0]
    for mask in masks[1:]:
        found = pc.and_(found, mask)
    return found


def _text(value: object) -> str:
    """Return the value of a partition column as text."""
    if value is None:
        return NO_VALUE
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    storage: Storage
    prefix: str
    path: str
    columns: pa.Schema
    is_arrow: bool
    rows: int = 0
    gathered_bytes: int = 0
    _gathered: list[pa.RecordBatch] = field(default_factory=list)
    _gathered_rows: int = 0
    _writer: pq.ParquetWriter | None = None
    _sink: Any = None

    def gather(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._gathered.append(batch)
        self.rows += batch.num_rows
        self._gathered_rows += batch.num_rows
        self.gathered_bytes += batch.nbytes
        if self._gathered_rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered as a row group."""
        table = pa.Table.from_batches(self._gathered).select(self.columns.names).cast(self.columns)
        self._opened().write_table(table, row_group_size=GROUP_ROWS)
        self._gathered, self._gathered_rows, self.gathered_bytes = [], 0, 0

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._sink = self._local() if self.storage.root else pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(self._sink, self.columns, compression="snappy", store_schema=self.is_arrow)
        return self._writer

    def _local(self) -> pa.OSFile:
        path = self._file()
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(path), "wb")

    def _file(self) -> Path:
        return Path(self.storage.root) / (self.prefix + self.path)

    def close(self) -> tuple[int, pq.FileMetaData]:
        """Complete the file, and return its size and its footer."""
        if self._gathered:
            self.flush()
        self._opened().close()
        if self.storage.root:
            self._sink.close()
            size_bytes = _synced(self._file())
            return size_bytes, pq.read_metadata(self._file())
        data = self._sink.getvalue()
        self.storage.put(self.prefix + self.path, data)
        return data.size, pq.read_metadata(pa.BufferReader(data))


def _synced(path: Path) -> int:
    """Make a file durable and return its size."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


# ----------------------------------------------------------------------------------------------------------- statistics


def stats_of(metadata: pq.FileMetaData) -> str:
    """Return the rows of a file and the lowest and highest values of its columns, as Delta's log has them.

    Numbers, days and instants have them, and short texts that are the same in all rows: others would bloat the log.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(metadata.num_columns):
        groups = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
        name = groups[0].path_in_schema if groups else ""
        known = [group.statistics for group in groups]
        if "." in name or not groups or any(each is None or not each.has_null_count for each in known):
            continue
        nulls[name] = sum(each.null_count for each in known)
        bounds = [(each.min, each.max) for each in known if each.has_min_max]
        if bounds:
            low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)
            if not isinstance(low, str) or (low == high and len(low) <= TEXT_LENGTH_MAX and not nulls[name]):
                _note(lows, name, low)
                _note(highs, name, high)
    return msgspec.json.encode(
        {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    ).decode()


def _note(into: dict[str, Any], name: str, value: object) -> None:
    if isinstance(value, datetime):
        into[name] = value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    elif isinstance(value, date):
        into[name] = value.isoformat()
    elif type(value) is int or isinstance(value, str):
        into[name] = value
