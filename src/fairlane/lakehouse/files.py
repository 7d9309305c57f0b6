"""Data files of a table: their names, and a table of files as an Arrow dataset.

A name is ``RUN-TOKEN-PART.parquet``: the number of the run that wrote the file, a random token of this attempt at the
run, and what tells the files of the attempt apart. So no two attempts ever write the same file, whether a driver was
killed, Spark tried a task twice, or two drivers ran at once. Which files belong to a table, its format says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from pyarrow import fs

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a folder for a partition without a value, as Hive writes it."""


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a table.

    Attributes:
        path: where it is, relative to the root of all tables.
        partition: the values of the table's partition columns in this file, as text.
        rows: how many rows it has.
        size_bytes: its size.
        stats: the lowest and highest values of columns, as JSON in the form of Delta; empty if not known.
    """

    path: str
    partition: dict[str, str]
    rows: int
    size_bytes: int
    stats: str = ""


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a format needs to know of a table.

    Attributes:
        name: its name, and that of its folder. A name with a dot in front is one of the pipeline's own tables.
        meaning: what one row stands for.
        arrow: its columns, as a serialised Arrow schema. Fields have their meaning as metadata ``comment``.
        partitions: the columns that files are split by.
    """

    name: str
    meaning: str
    arrow: bytes
    partitions: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.ipc.read_schema(pa.py_buffer(self.arrow))

    @property
    def is_internal(self) -> bool:
        """Whether it is the pipeline's own, and no table of the user's."""
        return self.name.startswith(".")


def shape_of(name: str, meaning: str, schema: pa.Schema, partitions: Sequence[str]) -> TableShape:
    """Return the shape of a table."""
    return TableShape(name=name, meaning=meaning, arrow=schema.serialize().to_pybytes(), partitions=tuple(partitions))


class Attempt(NamedTuple):
    """An attempt at a run: the run's number, and a random token that no other attempt has."""

    run: int
    token: str

    def __str__(self) -> str:
        return f"{self.run:06}-{self.token}"

    def file_name(self, part: str) -> str:
        """Return the name of a file that this attempt writes."""
        return f"{self}-{part}.parquet"

    def wrote(self, path: str) -> bool:
        """Return whether this attempt wrote a file."""
        return path.rpartition("/")[2].startswith(f"{self}-")


def run_of(path: str) -> int | None:
    """Return the run that wrote a file; None if no run of ours did."""
    head, _, rest = path.rpartition("/")[2].partition("-")
    return int(head) if head.isdecimal() and rest.endswith(".parquet") else None


def folder_of(partition: dict[str, str]) -> str:
    """Return the folder of a partition, relative to its table."""
    return "/".join(f"{name}={value}" for name, value in partition.items())


def partition_in(folder: str) -> dict[str, str]:
    """Return the partition that a folder of a table is for."""
    return dict(part.split("=", 1) for part in folder.split("/") if "=" in part)


def dataset_of(files: Iterable[DataFile], shape: TableShape, *, filesystem: fs.FileSystem, root: str) -> ds.Dataset:
    """Return files of a table as a dataset. Partitions that a filter excludes are not opened."""
    schema = shape.schema.remove_metadata()
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            f"{root}/{file.path}" if root else file.path,
            filesystem=filesystem,
            partition_expression=_expression(file, schema, shape.partitions),
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, filesystem)


def _expression(file: DataFile, schema: pa.Schema, partitions: Sequence[str]) -> ds.Expression:
    found = ds.scalar(value=True)
    for name in partitions:
        found &= ds.field(name) == pa.scalar(typed(file.partition[name], schema.field(name).type))
    return found


def typed(text: str, kind: pa.DataType) -> object:
    """Return the value of a partition column that a text stands for."""
    if text == NO_VALUE:
        return None
    if pa.types.is_boolean(kind):
        return text == "true"
    return pa.array([text]).cast(kind)[0].as_py()
