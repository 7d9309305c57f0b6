"""Everything on Spark, in one session: ``python -m benchmarks.spark [--quick] [--check]``.

It measures the data source with a live server on the same machine, then the pipeline's tables, then what-if.

Spark, with two local threads, reads the journal, consumes a queue and writes a queue of a real server process that
shares the cores. Messages have 1 KB and every commit is synced to disk. The baseline of the same run creates the same
Arrow rows inside the tasks, which is what Spark could handle without a server. Rates are rows per second of wall time.
Planning a batch job counts; the first batch of a stream, in which Python workers start, does not. The best of several
runs counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks import spark_tables, spark_whatif
from benchmarks.report import Options, Report, parse_options
from benchmarks.server import server
from fairlane.client import Client, NewMessage
from fairlane.journal.arrow import SCHEMA
from fairlane.spark import spark_session
from fairlane.spark.source.message_columns import DELIVERIES, laid_out, layout, spark_schema

PAYLOAD = b"x" * 1024
TENANTS = 50


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    spark = spark_session("benchmark", master="local[2]", conf=spark_tables.SESSION)
    spark.dataSource.register(Generated)
    with server() as place, Client(place) as client:
        measure_sources(report, options, spark, place, client)
    spark_tables.report_to(report, options, spark)
    spark_whatif.report_to(report, options, spark)
    spark.stop()
    report.finish()


def measure_sources(report: Report, options: Options, spark: SparkSession, place: str, client: Client) -> None:
    count = 60_000 if options.quick else 200_000
    repeats = 2 if options.quick else 4
    client.create_queue("orders")
    client.create_queue("copies")
    fill(client, count)
    queue = queue_rate(spark, place, count)
    rows = last_sequence(client)
    journal = best(repeats, lambda: drained(read(spark, kind="journal", server=place, until=rows)), rows)
    sink = best(repeats, lambda: write(spark, place, count), count)
    base_journal = best(repeats, lambda: drained(generated(spark, "journal", rows)), rows)
    base_queue = best(repeats, lambda: drained(generated(spark, "queue", count)), count)
    report.heading("Spark and a live server on the same two cores: rows a second")
    report.table(
        ["", "live server", "rows made in the task", "ratio"],
        [
            ["journal source", f"{journal:,.0f}", f"{base_journal:,.0f}", f"{journal / base_journal:.2f}"],
            ["queue source", f"{queue:,.0f}", f"{base_queue:,.0f}", f"{queue / base_queue:.2f}"],
            ["sink", f"{sink:,.0f}", f"{base_queue:,.0f}", f"{sink / base_queue:.2f}"],
        ],
    )
    report.goal("journal source", measured=journal, least=150_000, unit=" rows/s")
    report.goal("queue source", measured=queue, least=20_000, unit=" messages/s")
    report.goal("sink", measured=sink, least=30_000, unit=" messages/s")


def best(repeats: int, work: Callable[[], object], rows: int) -> float:
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        rates.append(rows / (time.perf_counter() - start))
    return max(rates)


def fill(client: Client, count: int) -> None:
    for first in range(0, count, 2_000):
        news = [NewMessage(payload=PAYLOAD, fairness_key=f"t{number % TENANTS}") for number in range(2_000)]
        client.enqueue_many("orders", news[: count - first])


def last_sequence(client: Client) -> int:
    client.set_reader("benchmark", 0)
    view = next(reader for reader in client.readers() if reader.name == "benchmark")
    return view.position + view.behind


# -------------------------------------------------------------------------------------------------------- live server


def read(spark: SparkSession, **options: str | int) -> DataFrame:
    return spark.read.format("fairlane").options(**options).load()


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("append").save()


def queue_rate(spark: SparkSession, place: str, count: int) -> float:
    options = {"kind": "queue", "server": place, "queue": "orders", "consumer": "benchmark"}
    stream = spark.readStream.format("fairlane").options(**options).load()
    with tempfile.TemporaryDirectory() as folder:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(Path(folder) / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    assert sum(batch.numInputRows for batch in batches) == count
    warm = batches[1:]
    return sum(batch.numInputRows for batch in warm) / sum(batch.durationMs["triggerExecution"] for batch in warm) * 1e3


def write(spark: SparkSession, place: str, count: int) -> None:
    frame = spark.range(0, count, 1, 4).selectExpr(
        f"repeat('x', {len(PAYLOAD)}) as payload", f"concat('t', id % {TENANTS}) as fairness_key"
    )
    frame.write.format("fairlane").options(server=place, queue="copies").mode("append").save()


# ----------------------------------------------------------------------------------------------------------- baseline


class Generated(DataSource):
    """Creates rows of the same columns inside the tasks."""

    @classmethod
    def name(cls) -> str:
        return "generated"

    def schema(self) -> StructType:
        return spark_schema(SCHEMA if self.options["like"] == "journal" else DELIVERIES)

    def reader(self, schema: StructType) -> DataSourceReader:
        known = SCHEMA if self.options["like"] == "journal" else DELIVERIES
        return GeneratedReader(int(self.options["rows"]), layout(schema, known))


class GeneratedReader(DataSourceReader):
    def __init__(self, rows: int, asked: pa.Schema) -> None:
        self._rows = rows
        self._layout = asked

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(4)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = laid_out(
            pa.RecordBatch.from_arrays([_column(field) for field in self._layout], self._layout.names), self._layout
        )
        for first in range(0, self._rows // 4, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, self._rows // 4 - first))


def _column(field: pa.Field) -> pa.Array:
    count = 10_000
    if pa.types.is_int64(field.type):
        return pa.array(range(count), pa.int64())
    if pa.types.is_binary(field.type):
        return pa.array([PAYLOAD] * count, field.type)
    if pa.types.is_list(field.type):
        return pa.array([["t1"]] * count, field.type)
    if pa.types.is_map(field.type):
        return pa.array([[]] * count, field.type)
    if pa.types.is_boolean(field.type) or field.name not in (
        "kind",
        "queue",
        "message_id",
        "id",
        "priority",
        "correlation_id",
    ):
        return pa.nulls(count, field.type)
    return pa.array(["0123456789abcdef"] * count, field.type)


def generated(spark: SparkSession, like: str, rows: int) -> DataFrame:
    return spark.read.format("generated").options(like=like, rows=str(rows)).load()


if __name__ == "__main__":
    main()
