"""Reads the tables of the pipeline."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import InvalidArgument
from fairlane.spark.pipeline.folder import depth_of, partitions
from fairlane.spark.pipeline.manifest import read_manifest
from fairlane.spark.tables import TABLES


def read_table(spark: SparkSession, folder: Path | str, name: str) -> DataFrame:
    """Return a table of a folder, with exactly its columns; an empty one if it has no rows yet.

    A query that runs while a pipeline run moves files into place may miss files: run it again.

    Raises:
        InvalidArgument: the folder has no tables, or none of this name.
    """
    root = Path(folder).absolute()
    manifest = read_manifest(root)
    if manifest is None or name not in TABLES:
        raise InvalidArgument(
            f"Folder {root} has no table {name!r:.100}. Run the pipeline first; its tables are {', '.join(TABLES)}."
        )
    table = TABLES[name]
    if manifest.format == "delta":
        from fairlane.spark.pipeline.delta import read_delta  # noqa: PLC0415 - only who has Delta needs the extra

        return read_delta(spark, root / name, table)
    if not any(True for _ in partitions(root / name, depth_of(name))):
        return spark.createDataFrame([], table.schema)
    return spark.read.schema(table.schema).parquet(str(root / name))
