"""``format("fairlead")``: what Spark finds when it looks for us."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from fairlead.journal.arrow import SCHEMA, schema_of
from fairlead.spark.source.journal_reader import FilteringJournalReader, JournalReader, JournalStreamReader
from fairlead.spark.source.layout import layout, spark_schema
from fairlead.spark.source.options import journal_options, kind_of


class FairleadDataSource(DataSource):
    """Queues and the journal as sources and sinks of Spark; see ``docs/reference/spark.md``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "fairlead"

    def schema(self) -> StructType:
        """Return the columns of what is read."""
        kind_of(self.options)
        columns = journal_options(self.options).columns
        return spark_schema(SCHEMA if columns is None else schema_of(columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        kind_of(self.options)
        options = journal_options(self.options)
        reader = FilteringJournalReader if options.pushdown else JournalReader
        return reader(options, layout(schema, SCHEMA))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what follows a stream."""
        kind_of(self.options)
        return JournalStreamReader(journal_options(self.options), layout(schema, SCHEMA))
