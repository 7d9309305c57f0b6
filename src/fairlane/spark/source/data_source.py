"""``format("fairlane")``: the entry point for Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from fairlane.errors import InvalidArgument
from fairlane.journal.arrow import SCHEMA, schema_of
from fairlane.spark.source.journal_reader import FilteringJournalReader, JournalReader, JournalStreamReader
from fairlane.spark.source.message_columns import DELIVERIES, VIEWS, layout, spark_schema
from fairlane.spark.source.options import journal_options, kind_of, peek_options, queue_options, sink_options
from fairlane.spark.source.peek_reader import FilteringPeekReader, PeekReader
from fairlane.spark.source.queue_reader import QueueStreamReader
from fairlane.spark.source.rows import check_columns
from fairlane.spark.source.sink import BatchWriter, StreamWriter


class FairlaneDataSource(DataSource):
    """Queues and the journal as sources and sinks of Spark; see ``docs/reference/spark.md``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "fairlane"

    def schema(self) -> StructType:
        """Return the columns of the source. Raises InvalidArgument if the options make no sense."""
        match kind_of(self.options):
            case "journal":
                columns = journal_options(self.options).columns
                return spark_schema(SCHEMA if columns is None else schema_of(columns))
            case "queue":
                queue_options(self.options)
            case _:
                peek_options(self.options)
        return spark_schema(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        asked = layout(schema, self._columns())
        match kind_of(self.options):
            case "journal":
                options = journal_options(self.options)
                return (FilteringJournalReader if options.pushdown else JournalReader)(options, asked)
            case "queue":
                raise InvalidArgument(
                    "kind=queue cannot be read as a batch; use readStream, or kind=peek to read without consuming."
                )
        looking = peek_options(self.options)
        return (FilteringPeekReader if looking.pushdown else PeekReader)(looking, asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        asked = layout(schema, self._columns())
        match kind := kind_of(self.options):
            case "journal":
                return JournalStreamReader(journal_options(self.options), asked)
            case "queue":
                return QueueStreamReader(queue_options(self.options), asked)
        raise InvalidArgument(f"kind={kind} cannot be streamed; use spark.read, or kind=queue to consume messages.")

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of a frame to a queue."""
        if overwrite:
            raise InvalidArgument("Queues support only mode append. Use purge to empty a queue.")
        options = sink_options(self.options, is_stream=False)
        check_columns(schema)
        with options.place.client():
            pass  # tasks wait for a server that is away, so one that is not there at all is better told of here
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001 - Spark's own
        """Return the writer of a stream to a queue."""
        if overwrite:
            raise InvalidArgument("Queues support only output mode append.")
        options = sink_options(self.options, is_stream=True)
        check_columns(schema)
        return StreamWriter(options)

    def _columns(self) -> pa.Schema:
        return {"journal": SCHEMA, "queue": DELIVERIES}.get(kind_of(self.options), VIEWS)
