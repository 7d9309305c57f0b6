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
from fairlane.errors import JournalMismatch, JournalTrimmed, StoreCorrupt
from fairlane.spark.pipeline import LiveJournal, RunReport, read_manifest, rebuild_tables, run_pipeline
from fairlane.spark.pipeline.source import Source
from fairlane.spark.pipeline.stream import CHECKPOINT, stream_pipeline
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.journals import make_journal, make_trimmed_journal
from tests.spark.queues import address, fill
from tests.spark.test_pipeline import contents
from tests.system.server_process import ServerProcess, serving


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


@pytest.mark.long
def test_a_stream_takes_a_replaced_broker_only_as_a_new_epoch(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """It is refused as without a stream, so that a follower ends, and taken if that is declared."""
    tables = tmp_path / "tables"
    update = partial(run_pipeline, tables=tables)
    work(server, 10)
    stream_pipeline(spark, live(server), tables, run=update)
    with serving(tmp_path / "another") as other:
        work(other, 20)
        with pytest.raises(JournalMismatch, match="The tables are made from journal"):
            stream_pipeline(spark, live(other), tables, run=update)
        command = ["--server", address(other), "pipeline", "run", "--tables", str(tables), "--stream", "--once"]
        result = CliRunner().invoke(cli, [*command, "--new-epoch"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        usage = spark.read.parquet(str(tables / "tenant_usage")).groupBy().sum("enqueued").collect()
        assert usage[0][0] == 30
        work(other, 10)
        shutil.rmtree(tables / CHECKPOINT)
        assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    with pytest.raises(JournalMismatch, match="took its place"):
        stream_pipeline(spark, live(server), tables, run=update)


@pytest.mark.long
def test_a_stream_takes_a_new_epoch_that_the_tables_took_without_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """The checkpoint is of the old journal and the tables are of the new one: the tables decide."""
    tables = tmp_path / "tables"
    work(server, 10)
    stream_pipeline(spark, live(server), tables, run=partial(run_pipeline, tables=tables))
    with serving(tmp_path / "another") as other:
        work(other, 20)
        run_pipeline(spark, live(other), tables, new_epoch=True)
        work(other, 10)
        stream_pipeline(spark, live(other), tables, run=partial(run_pipeline, tables=tables))
    usage = spark.read.parquet(str(tables / "tenant_usage")).groupBy().sum("enqueued").collect()
    assert usage[0][0] == 40


@pytest.mark.long
def test_a_stream_skips_what_is_trimmed_only_if_it_may(spark: SparkSession, tmp_path: Path) -> None:
    """By default a journal that lacks what follows the tables is refused; skipped, the gap is recorded."""
    tables = tmp_path / "tables"
    make_journal(tmp_path / "data", messages=20)
    with serving(tmp_path / "data") as server:
        stream_pipeline(spark, live(server), tables, run=partial(run_pipeline, tables=tables))
        with Client(address(server)) as client:
            client.remove_reader("pipeline")  # otherwise the journal would be kept for it
    make_trimmed_journal(tmp_path / "data")
    with serving(tmp_path / "data") as server:
        with pytest.raises(JournalTrimmed, match="are missing"):
            stream_pipeline(spark, live(server), tables, run=partial(run_pipeline, tables=tables))
        command = ["--server", address(server), "pipeline", "run", "--tables", str(tables), "--stream", "--once"]
        result = CliRunner().invoke(cli, [*command, "--on-trimmed", "skip"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    manifest = read_manifest(tables)
    assert manifest is not None
    assert len(manifest.gaps) == 1
