"""Tables as Delta tables, through the ``deltalake`` wheel: transactional, with a history to go back in.

A run is one transaction a table, marked with the run's number, so a run that is carried out again after a crash changes
nothing twice. What is carried on from day to day stays in plain files. Needs the extra ``fairlane[delta]``.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fairlane.spark.pipeline.folder import CARRIED, move_files, staged
from fairlane.spark.pipeline.manifest import Swap
from fairlane.spark.tables import TABLES, TableDefinition

try:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
except ImportError as error:
    raise ImportError("Delta tables need the package deltalake: install fairlane[delta].") from error

APP = "fairlane-pipeline"
"""The application that a run's number is written down for in each table."""
FILES_MAX = 32
"""A table to which a run added gets its small files put together when it has more than this."""


class DeltaTables:
    """Tables as Delta tables in a folder each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self, day: date) -> list[Path]:
        """Return the files with the events of a day."""
        where = self._folder / "events"
        if not DeltaTable.is_deltatable(str(where)):
            return []
        uris = DeltaTable(str(where)).file_uris(file_pruning_predicate=[("day", "=", day.isoformat())])
        return sorted(Path(unquote(urlsplit(uri).path)) for uri in uris)

    def place(self, swap: Swap) -> None:
        """Commit what a run staged, a transaction a table."""
        for table in TABLES.values():
            self._commit(table, swap)
        move_files(self._folder, swap, (CARRIED,))

    def _commit(self, table: TableDefinition, swap: Swap) -> None:
        where = str(self._folder / table.name)
        rows = _staged_rows(staged(self._folder, swap.run) / table.name, table)
        if DeltaTable.is_deltatable(where):
            known = DeltaTable(where)
            if (known.transaction_version(APP) or 0) >= swap.run:
                return
        folders = list(table.partitions)
        mark = CommitProperties(app_transactions=[Transaction(APP, swap.run)])
        if table.name == "events":
            write_deltalake(where, rows, mode="append", partition_by=folders, commit_properties=mark)
            if len(DeltaTable(where).file_uris()) > FILES_MAX:
                DeltaTable(where).optimize.compact()
            return
        replaced = _replaced(table, swap) if DeltaTable.is_deltatable(where) else None
        write_deltalake(where, rows, mode="overwrite", predicate=replaced, partition_by=folders, commit_properties=mark)


def _replaced(table: TableDefinition, swap: Swap) -> str:
    days = f"day >= '{swap.first_day}'"
    if swap.last_day is not None:
        return f"({days} AND day <= '{swap.last_day}')"
    return f"({days} OR is_open = true)" if "is_open" in table.partitions else days


def _staged_rows(root: Path, table: TableDefinition) -> pa.RecordBatchReader:
    """Return what a run staged of a table; nothing, if it staged nothing."""
    schema = to_arrow_schema(table.schema)
    files = [str(path) for path in sorted(root.glob("*=*/**/[!._]*.parquet"))]
    partitioning = ds.partitioning(pa.schema([schema.field(name) for name in table.partitions]), flavor="hive")
    data = ds.dataset(files, schema=schema, format="parquet", partitioning=partitioning, partition_base_dir=str(root))
    return data.scanner().to_reader()


def read_delta(spark: SparkSession, where: Path, table: TableDefinition) -> DataFrame:
    """Return a Delta table as its latest version is, read natively."""
    files = DeltaTable(str(where)).file_uris() if DeltaTable.is_deltatable(str(where)) else []
    if not files:
        return spark.createDataFrame([], table.schema)
    return spark.read.schema(table.schema).option("basePath", str(where)).parquet(*files)
