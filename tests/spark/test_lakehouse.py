"""The pipeline's tables in every format, in a folder and in an object store: the same rows, each once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import open_tables
from fairlane.spark.pipeline import JournalFolder, read_table, run_pipeline
from fairlane.spark.tables import TABLES
from tests.kit.lakehouse import PLACES, STORES, address_at
from tests.spark.table_rows import DAY, Event, enqueued, event, of, told
from tests.spark.test_pipeline import Tables, contents, write_segment

MESSAGES = 20


@pytest.fixture(params=[*PLACES, *STORES])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for tables, of every kind."""
    return address_at(request.param, tmp_path, request)


def many_events() -> list[Event]:
    """Return the events of messages that are enqueued one day and acknowledged on it or on the next."""
    events = [event("queue_set", 1, 0, queue="mail", policy_json="{}")]
    events += [enqueued(number, 1000 * number, f"tenant-{number % 3}") for number in range(2, MESSAGES + 2)]
    for number in range(2, MESSAGES + 2):
        at = 1000 * (number + MESSAGES) if number % 2 else DAY + 1000 * number
        events.append(of("leased", 0, at, number))
        events.append(of("acked", 0, at + 500, number, cost=2))
    events.sort(key=lambda each: each["at_ms"])
    return [{**each, "sequence": number, "record": number} for number, each in enumerate(events, 1)]


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of all events, made in one run, as plain Parquet in a folder."""
    place = tmp_path_factory.mktemp("at_once")
    write_segment(place / "journal", many_events())
    run_pipeline(spark, JournalFolder(place / "journal"), place / "tables")
    return contents(spark, place / "tables")


@pytest.mark.long
def test_two_runs_fill_a_catalog_in_an_object_store(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What the first run wrote to Iceberg in S3 is read by the second, and every event is there once."""
    address = address_at("iceberg in S3", tmp_path, request)
    events, journal = many_events(), JournalFolder(tmp_path / "journal")
    for part in (events[:30], events[30:]):
        write_segment(journal.path, part)
        assert run_pipeline(spark, journal, address).events == len(part)
    found = open_tables(address).dataset("events").to_table(columns=["sequence"])["sequence"].to_pylist()
    assert sorted(found) == [each["sequence"] for each in events]
    check_read_without_spark(spark, address)


@pytest.mark.long
def test_catching_up_with_many_segments_duplicates_nothing(
    spark: SparkSession, address: str, tmp_path: Path, at_once: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day that has files gets more than 32 segments at once, then its files are merged: every event is there once.

    Sums are those of the events, all tables equal those of a single run, and Arrow reads what Spark reads.
    """
    monkeypatch.setattr("fairlane.spark.pipeline.intake.FILES_MAX", 1)
    events, journal = many_events(), JournalFolder(tmp_path / "journal")
    assert len(events) == 3 * MESSAGES + 1
    for first, last in ((0, 3), (3, 40), (40, len(events))):
        for each in events[first:last]:
            write_segment(journal.path, [each])
        assert run_pipeline(spark, journal, address).events == last - first
        found = read_table(spark, address, "events")
        assert sorted(row.sequence for row in found.select("sequence").collect()) == list(range(1, last + 1))
    assert contents(spark, address) == at_once
    usage = read_table(spark, address, "tenant_usage").agg(F.sum("enqueued"), F.sum("acked"), F.sum("cost_true"))
    assert told(usage, *usage.columns) == [(MESSAGES, MESSAGES, 2 * MESSAGES)]
    assert run_pipeline(spark, journal, address).segments == 0
    assert _files_of_first_day(address) == 2
    check_read_without_spark(spark, address)


def _files_of_first_day(address: str) -> int:
    """Return how many files the first day of events has: those of three runs, of which two are merged."""
    return sum(file.partition["day"] == "2026-01-01" for file in open_tables(address).files("events"))


def check_read_without_spark(spark: SparkSession, address: str) -> None:
    """Check that Arrow and Spark see the same rows, days are pruned, and instants are also TIMESTAMPs."""
    tables = open_tables(address)
    for name in TABLES:
        assert tables.dataset(name).count_rows() == read_table(spark, address, name).count()
        assert tables.dataset(name).schema.names == read_table(spark, address, name).columns
    usage = tables.dataset("tenant_usage")
    second = usage.to_table(filter=ds.field("day") == ds.scalar("2026-01-02").cast("date32"))
    assert sum(second["acked"].to_pylist()) == MESSAGES // 2
    found = tables.dataset("messages").to_table(columns=["enqueued_ms", "enqueued_at"]).to_pylist()
    assert all(row["enqueued_at"].timestamp() * 1000 == row["enqueued_ms"] for row in found)
    assert len(found) == MESSAGES


@pytest.mark.long
def test_many_shuffle_partitions_make_few_files(spark: SparkSession, tmp_path: Path) -> None:
    """However many partitions a shuffle has, a small table has one file for each of its partitions."""
    journal, before = JournalFolder(tmp_path / "journal"), spark.conf.get("spark.sql.shuffle.partitions")
    write_segment(journal.path, many_events())
    spark.conf.set("spark.sql.shuffle.partitions", "40")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        run_pipeline(spark, journal, tmp_path / "tables")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    tables = open_tables(tmp_path / "tables")
    for name in TABLES:
        files = tables.files(name)
        assert len(files) == len({tuple(file.partition.items()) for file in files}), name


def test_an_unknown_scheme_makes_no_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables at s3a:// are refused, and the error says what to write instead."""
    monkeypatch.chdir(tmp_path)
    write_segment(tmp_path / "journal", many_events())
    with pytest.raises(InvalidArgument, match="Use s3:// instead"):
        run_pipeline(spark, JournalFolder(tmp_path / "journal"), "s3a://bucket/tables")
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
