"""The pipeline as a streaming query: the same tables, each event once, whatever is repeated."""

from __future__ import annotations

import shutil
from datetime import date
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fairlane.cli.main import cli
from fairlane.client import Client
from fairlane.errors import StoreCorrupt
from fairlane.spark.pipeline import LiveJournal, RunReport, read_manifest, rebuild_tables, run_pipeline
from fairlane.spark.pipeline.source import Source
from fairlane.spark.pipeline.stream import CHECKPOINT, stream_pipeline
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.queues import address, fill
from tests.spark.test_pipeline import contents
from tests.system.server_process import ServerProcess


def live(server: ServerProcess) -> LiveJournal:
    return LiveJournal(ServerAddress(server=address(server)))


def work(server: ServerProcess, count: int) -> None:
    """Enqueue messages, and acknowledge half of them."""
    with Client(address(server)) as client:
        if not client.queues():
            client.create_queue("orders")
        fill(client, count)
        for message in client.lease("orders", count // 2):
            client.ack(message)


@pytest.mark.long
def test_a_stream_fills_the_tables_in_batches(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """In pieces, over two queries and after a repetition, the tables are those that are made of all events at once."""
    tables = tmp_path / "tables"
    update = partial(run_pipeline, tables=tables)
    work(server, 40)
    report = stream_pipeline(spark, live(server), tables, run=update, rows_max=50)
    assert report is not None
    assert report.run == 2
    assert stream_pipeline(spark, live(server), tables, run=update) is None
    work(server, 20)
    command = ["--server", address(server), "pipeline", "run", "--tables", str(tables), "--stream", "--once"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    streamed = contents(spark, tables)
    rebuild_tables(spark, tables, first_day=date(2026, 1, 1))
    assert contents(spark, tables) == streamed


@pytest.mark.long
def test_a_batch_that_is_read_again_counts_once(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """If Spark loses its note that a batch is done, the tables already have it; what comes after is added."""
    tables = tmp_path / "tables"
    work(server, 10)

    def update(session: SparkSession, source: Source) -> RunReport:
        return run_pipeline(session, source, tables)

    stream_pipeline(spark, live(server), tables, run=update)
    before = read_manifest(tables)
    for note in (tables / CHECKPOINT / "commits").iterdir():
        note.unlink()
    work(server, 10)
    stream_pipeline(spark, live(server), tables, run=update)
    after = read_manifest(tables)
    assert before is not None
    assert after is not None
    assert after.gaps == ()
    assert after.events > before.events + 20
    counted = [row["count"] for row in spark.read.parquet(str(tables / "events")).groupBy("sequence").count().collect()]
    assert set(counted) == {1}


def test_tables_that_a_checkpoint_is_ahead_of_are_refused(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """If the tables lack what the checkpoint has behind it, nothing is written, and the error says what to do."""
    tables = tmp_path / "tables"
    update = partial(run_pipeline, tables=tables)
    work(server, 10)
    stream_pipeline(spark, live(server), tables, run=update)
    (tables / CHECKPOINT).rename(tmp_path / "kept")
    shutil.rmtree(tables)
    tables.mkdir()
    (tmp_path / "kept").rename(tables / CHECKPOINT)
    work(server, 10)
    with pytest.raises(StoreCorrupt, match="Delete the checkpoint"):
        stream_pipeline(spark, live(server), tables, run=update)
    assert read_manifest(tables) is None
