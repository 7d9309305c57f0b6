"""Runs that go on where the last one ended read new events and open messages only, and the tables are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fairlane.spark import spark_session
from fairlane.spark.pipeline import JournalFolder, run_pipeline
from fairlane.spark.pipeline.few_events import FEW_EVENTS
from tests.spark.mixed_load import MixedLoad
from tests.spark.table_rows import Event
from tests.spark.test_pipeline import FOR_MANY_EVENTS, contents, write_segment
from tests.spark.test_pipeline_broker import export


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """The events of a mixed load over midnight: delays, throttles, failures, deadlines, redrives and pauses."""
    folder = tmp_path_factory.mktemp("mixed")
    load = MixedLoad(seed=15)
    load.begin()
    load.run(steps=300)
    export(load.broker, folder)
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def run_in_parts(
    spark: SparkSession, place: Path, rows: Sequence[Event], ends: Sequence[int], *, few_events: int = FEW_EVENTS
) -> Path:
    """Make tables from a journal that comes in parts, with a run after each."""
    begin = 0
    for end in (*ends, len(rows)):
        write_segment(place / "journal", rows[begin:end], journal_id=rows[0]["journal_id"])
        run_pipeline(spark, JournalFolder(place / "journal"), place / "tables", few_events=few_events)
        begin = end
    return place / "tables"


@pytest.mark.long
def test_runs_that_go_on_make_the_same_tables(spark: SparkSession, tmp_path: Path, journal: list[Event]) -> None:
    """Cut anywhere, over midnight and within a minute, a journal gives the tables that one run on all of it gives."""
    count = len(journal)
    parts = run_in_parts(spark, tmp_path / "parts", journal, [count // 3, count // 3 + 40, count * 3 // 4])
    whole = run_in_parts(spark, tmp_path / "whole", journal, [])
    expected, found = contents(spark, whole), contents(spark, parts)
    for name, rows in expected.items():
        assert found[name] == rows, name


@pytest.mark.long
def test_compiled_runs_make_the_tables_that_interpreted_ones_make(
    spark: SparkSession, tmp_path: Path, journal: list[Event]
) -> None:
    """With generated code, plans that adapt and several partitions, as runs on many events have them."""
    theirs = spark_session(conf={**FOR_MANY_EVENTS, "spark.sql.adaptive.coalescePartitions.enabled": "false"})
    compiled = run_in_parts(theirs, tmp_path / "compiled", journal, [len(journal) * 2 // 3], few_events=0)
    interpreted = run_in_parts(spark, tmp_path / "interpreted", journal, [])
    expected, found = contents(spark, interpreted), contents(spark, compiled)
    for name, rows in expected.items():
        assert found[name] == rows, name
