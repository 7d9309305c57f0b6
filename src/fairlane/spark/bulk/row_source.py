"""Reads rows from files or from a table in Spark's catalog."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which rows to read, and as which columns.

    Attributes:
        path: files or folders, as Spark names them; or
        table: a table that Spark knows.
        file_format: of the files.
        columns: SQL expressions with names, such as ``body AS payload``; empty for the columns as they are.
        where: an SQL condition.
    """

    path: str | None = None
    table: str | None = None
    file_format: str = "parquet"
    columns: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None):
            raise InvalidArgument("Pass either a path or a table.")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows.

        Raises:
            InvalidArgument: they can't be read so.
        """
        try:
            if self.table is not None:
                frame = spark.table(self.table)
            else:
                frame = spark.read.format(self.file_format).load(self.path)
            if self.where is not None:
                frame = frame.where(self.where)
            return frame.selectExpr(*self.columns) if self.columns else frame
        except PySparkException as error:
            raise InvalidArgument(f"Could not read the rows: {str(error).strip().splitlines()[0]:.300}") from error

    def __str__(self) -> str:
        parts = [self.path or self.table, *self.columns, self.where and f"where {self.where}"]
        return " ".join(part for part in parts if part)
