"""Tables as frames: tasks write the rows they have as Parquet files, and read the files of a table.

A frame is written by its tasks through Arrow, straight to the store; the driver gets the names of files only. Spark
counts one result of each task, so files of failed and of slower attempts at a task are not among them.

Tables in a folder are read natively. No JVM here reads an object store without further jars, so its files are read by
tasks through Arrow as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructType

from fairlane.lakehouse import DataFile, Lakehouse, TablesAddress, open_tables
from fairlane.lakehouse.files import TableShape, dataset_of, shape_of
from fairlane.lakehouse.storage import Storage
from fairlane.lakehouse.writing import TableWriter
from fairlane.spark.tables import TABLES
from fairlane.spark.tables.table import DATE, FLAG, INT, LONG, REAL, TEXT, TIME, empty

TASK_BYTES = 64 << 20
"""About how much one task reads of an object store."""
APART = {"events": ("journal_id",)}
"""Columns whose values are not mixed in a file, by table."""
SORTED = {"attempts": ("is_open", "day", "queue", "journal_id", "number")}
"""How the rows of each file are sorted, by table. Files of other tables are sorted only when they are merged."""

Batches = Iterator[pa.RecordBatch]


class TableFiles:
    """Writes and reads the tables of a lakehouse, and remembers the files of a run. Threads can share it."""

    def __init__(self, spark: SparkSession, lakehouse: Lakehouse) -> None:
        self._spark, self._lakehouse = spark, lakehouse
        self._lock = threading.Lock()
        self.shapes: dict[str, TableShape] = {}

    def use(self, spark: SparkSession) -> None:
        """Read with another session from now on."""
        self._spark = spark

    def write(self, name: str, frame: DataFrame, *, part: str = "") -> list[DataFile]:
        """Write a frame as files of a table, few if it is small. ``part`` tells writes of a table in one run apart."""
        shape = shape_for(name, frame)
        with self._lock:
            self.shapes[name] = shape
            place = self._lakehouse.place(shape)
        attempt = self._lakehouse.attempt()
        apart = tuple(column for column in APART.get(name, ()) if column in frame.columns)
        writer = TableWriter(self._lakehouse.storage, place, attempt, shape.partitions, apart)
        found = frame.mapInArrow(_writing(writer, part), "file string").collect()
        return sorted((msgspec.json.decode(row.file, type=DataFile) for row in found), key=lambda file: file.path)

    def read_written(self, name: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
        """Return files that this run has written, in the columns of a schema."""
        prefix = self._lakehouse.place(self.shapes[name]).prefix
        aside = [msgspec.structs.replace(file, path=prefix + file.path) for file in files]
        return read_files(self._spark, self._lakehouse, self.shapes[name], aside, schema)

    def read(self, name: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
        """Return files of a table as it was before this run, in the columns of a schema."""
        return read_files(self._spark, self._lakehouse, self._lakehouse.shape(name), files, schema)


def few_files(frame: DataFrame, *columns: str) -> DataFrame:
    """Return a frame whose tasks have about as many rows as make a good file, whatever the shuffle partitions are.

    Rows with the same values in columns come together. Adaptive execution then joins small parts and splits large ones.
    """
    return frame.hint("rebalance", *columns)


def in_order(frame: DataFrame, name: str) -> DataFrame:
    """Return a frame whose tasks have the rows of a table in its order. A later shuffle would undo it."""
    return frame.sortWithinPartitions(*SORTED[name]) if name in SORTED else frame


def shape_for(name: str, frame: DataFrame) -> TableShape:
    """Return the shape of a table; the pipeline's own tables have the columns of the frame."""
    if name in TABLES:
        table = TABLES[name]
        return shape_of(name, table.meaning, _arrow_schema(table.schema), table.partitions)
    return shape_of(name, "", _arrow_schema(frame.schema), ("day",))


_ARROW_TYPES: list[tuple[DataType, pa.DataType]] = [
    *((TEXT, pa.string()), (LONG, pa.int64()), (INT, pa.int32()), (REAL, pa.float64()), (FLAG, pa.bool_())),
    *((DATE, pa.date32()), (TIME, pa.timestamp("us", "UTC"))),
]


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return a type of Spark as Arrow has it. Instants are UTC, whatever the session's time zone is."""
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType)))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.dataType)) for field in kind])
    return next(arrow for spark, arrow in _ARROW_TYPES if spark == kind)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return columns as Arrow has them, with their meanings."""
    comments = [field.metadata.get("comment") for field in schema]
    return pa.schema(
        [
            pa.field(field.name, _arrow_type(field.dataType), metadata={"comment": comment} if comment else None)
            for field, comment in zip(schema, comments, strict=True)
        ]
    )


def _writing(writer: TableWriter, part: str) -> Callable[[Batches], Batches]:
    """Return what a task does with its rows: it writes them, and returns the files."""

    def write(batches: Batches) -> Batches:
        task = TaskContext.get()
        known = "0" if task is None else f"{task.partitionId():05}-{task.taskAttemptId()}"
        files = writer.write(batches, f"{part}{known}")
        rows = [msgspec.json.encode(file).decode() for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=["file"])

    return write


def read_files(
    spark: SparkSession,
    lakehouse: Lakehouse,
    shape: TableShape,
    files: Sequence[DataFile],
    columns: StructType,
) -> DataFrame:
    """Return files of a table as a frame, in the columns of a schema; those that files lack are null."""
    if not files:
        return empty(spark, columns)
    if lakehouse.address.scheme:
        groups = _groups(files)
        return spark.range(0, len(groups), 1, len(groups)).mapInArrow(
            _reading(lakehouse.storage, shape, groups, _arrow_schema(columns)), columns
        )
    # While a run is carried out, some files are still aside: each folder is read with its own partitions.
    paths = sorted((f"{lakehouse.storage.root}/{file.path}" for file in files), key=_base)
    parts = [
        spark.read.schema(columns).option("basePath", base).parquet(*found) for base, found in groupby(paths, key=_base)
    ]
    return reduce(DataFrame.union, parts)


def _base(path: str) -> str:
    """Return the folder above the partitions of a file."""
    folder = Path(path).parent
    while "=" in folder.name:
        folder = folder.parent
    return str(folder)


def _groups(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return files in groups, each for one task."""
    groups: list[list[DataFile]] = [[]]
    size_bytes = 0
    for file in files:
        if groups[-1] and size_bytes + file.size_bytes > TASK_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(file)
        size_bytes += file.size_bytes
    return groups


def _reading(
    storage: Storage, shape: TableShape, groups: list[list[DataFile]], columns: pa.Schema
) -> Callable[[Batches], Batches]:
    """Return what a task does with the number of a group: it reads its files."""
    plain = columns.remove_metadata()
    present = [name for name in columns.names if name in shape.schema.names]

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                data = dataset_of(groups[number], shape, filesystem=storage.filesystem(), root=storage.root)
                for found in data.to_batches(columns=present):
                    if found.num_rows:
                        yield _shaped(found, plain)

    return read


def _shaped(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly these columns; those it lacks are null."""
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_metadata(None) for field in columns]))


def read_table(spark: SparkSession, tables: str | Path | TablesAddress, name: str) -> DataFrame:
    """Return a table, with exactly its columns; an empty one if it has no rows yet.

    Raises InvalidArgument if there are no tables at the address, or none of this name.
    """
    lakehouse = open_tables(tables)
    shape = lakehouse.shape(name)
    return read_files(spark, lakehouse, shape, lakehouse.files(name), TABLES[name].schema)
