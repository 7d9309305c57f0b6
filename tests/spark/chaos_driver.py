"""A driver to be killed: runs one streaming query from its checkpoint, and says when it runs and when it is through.

``python -m tests.spark.chaos_driver KIND FOLDER SERVER ROWS MASTER``
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fairlane.spark import spark_session
from fairlane.spark.pipeline import LiveJournal, run_pipeline
from fairlane.spark.pipeline.stream import stream_pipeline
from fairlane.spark.source.server_address import ServerAddress

_PER_BATCH = 500
COPIES = "copies"
"""The queue that ``relay`` fills from ``orders``."""


def journal(spark: SparkSession, server: str) -> DataFrame:
    """Follow the journal, in small batches."""
    options = {"kind": "journal", "server": server, "reader": "chaos", "rows_max": str(_PER_BATCH)}
    return spark.readStream.format("fairlane").options(**options).load().select("sequence", "kind", "message_id")


def queue(spark: SparkSession, server: str) -> DataFrame:
    """Consume the queue, in small batches."""
    options = {"kind": "queue", "server": server, "queue": "orders", "consumer": "chaos", "rows_max": str(_PER_BATCH)}
    frame = spark.readStream.format("fairlane").options(**options).load()
    return frame.selectExpr("id", "cast(payload as string) as payload", "claim")


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Count, in a way that can be replayed, as payloads."""
    options = {
        "rowsPerBatch": str(_PER_BATCH),
        "numPartitions": "2",
        "advanceMillisPerBatch": "1",
        "startTimestamp": "1",
    }
    frame = spark.readStream.format("rate-micro-batch").options(**options).load()
    return frame.where(f"value < {rows}").selectExpr(
        "cast(value as string) as payload", "concat('t', value % 7) as fairness_key"
    )


def pipeline(spark: SparkSession, folder: Path, server: str) -> None:
    """Fill the tables of the pipeline by streaming, in batches."""
    live = LiveJournal(ServerAddress(server=server), reader="chaos")
    update = partial(run_pipeline, tables=folder / "tables")
    stream_pipeline(spark, live, folder / "tables", run=update, rows_max=4 * _PER_BATCH)


def writer_of(kind: str, spark: SparkSession, folder: Path, server: str, rows: int) -> Any:
    """Return what writes the rows of a query: to files, or to a queue."""
    if kind == "sink":
        return numbers(spark, rows).writeStream.format("fairlane").options(server=server, queue="orders")
    if kind == "relay":
        copies = queue(spark, server).select("payload").writeStream.format("fairlane")
        return copies.options(server=server, queue=COPIES).trigger(availableNow=True)
    stream = journal(spark, server) if kind == "journal" else queue(spark, server)
    files = stream.writeStream.format("parquet").option("path", str(folder / "out"))
    return files.trigger(availableNow=True)


def main(kind: str, folder: Path, server: str, rows: int, master: str) -> None:
    """Run until killed, or until everything that was there is through."""
    conf = {"spark.speculation": "true", "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.5"}
    conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if not master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    spark = spark_session(f"chaos-{kind}", master=master, conf=conf)
    if kind == "pipeline":
        print("running", flush=True)
        pipeline(spark, folder, server)
        print("through", flush=True)
        return
    writer = writer_of(kind, spark, folder, server, rows)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    print("running", flush=True)
    if kind == "sink":
        while query.lastProgress is None or query.lastProgress.batchId <= rows // _PER_BATCH:
            if query.awaitTermination(0.1):
                break
        query.stop()
    query.awaitTermination()
    print("through", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
