"""The archive keeps finished days, each once, for as long as they are wanted."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.errors import InvalidArgument
from fairlane.spark.bulk.archive import archive
from fairlane.spark.pipeline import JournalFolder, run_pipeline
from tests.spark.test_pipeline import a_story, write_segment

FIRST, SECOND, THIRD = (date(2026, 1, 1 + at) for at in range(3))


@pytest.mark.long
def test_days_are_archived_when_they_are_over_and_again_when_they_change(spark: SparkSession, tmp_path: Path) -> None:
    """Two of three days are written, none twice, one anew when its tables are, and those that are too old go."""
    journal, tables, target = tmp_path / "journal", tmp_path / "tables", tmp_path / "archive"
    story = a_story()
    write_segment(journal, story[:1])
    write_segment(journal, story[2:])
    run_pipeline(spark, JournalFolder(journal), tables, on_trimmed="skip")
    assert archive(spark, tables, target).written == (FIRST, SECOND)
    assert archive(spark, tables, target).written == ()
    events = spark.read.parquet(str(target / "events"))
    assert sorted(row.sequence for row in events.collect()) == [1, *range(3, 14)]
    acked = spark.read.parquet(str(target / "acked"))
    assert sorted((str(row.day), row.message_id, row.cost_true) for row in acked.collect()) == [
        ("2026-01-01", f"{2:016x}", None),
        ("2026-01-02", f"{6:016x}", 9),
    ]
    write_segment(journal, [story[1]])
    run_pipeline(spark, JournalFolder(journal), tables)
    again = archive(spark, tables, target, keep_days=1)
    assert (again.written, again.removed, again.days) == ((SECOND,), (FIRST,), (SECOND,))
    assert not (target / ".aside").exists()
    assert THIRD not in again.days


def test_without_tables_or_days_to_keep_there_is_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    """Both are refused before anything is written."""
    with pytest.raises(InvalidArgument, match="fairlane pipeline run"):
        archive(spark, tmp_path / "tables", tmp_path / "archive")
    with pytest.raises(InvalidArgument, match="keep_days must be at least 1"):
        archive(spark, tmp_path / "tables", tmp_path / "archive", keep_days=0)
    assert not (tmp_path / "archive").exists()
