"""The pipeline as a whole: however the journal comes, the tables are the same."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.segments import file_name
from fairlane.spark.pipeline import JournalFolder, read_manifest, read_table, run_pipeline
from fairlane.spark.pipeline import run as running
from fairlane.spark.tables import TABLES
from tests.spark.table_rows import DAY, Event, enqueued, event, of

pytestmark = pytest.mark.usefixtures("small_data")

Tables = dict[str, list[str]]
JOURNAL = "00000000000000aa"


def a_story() -> list[Event]:
    """Return the events of three days, with messages that stay open over midnight, die, and come back."""
    return [
        event("queue_set", 1, 0, queue="mail", policy_json='{"weights": {"beta": 2}}'),
        enqueued(2, 10, "acme", weight=3),
        enqueued(3, 20, "beta", throttles=["smtp"]),
        of("leased", 4, 500, 2),
        of("acked", 5, 900, 2),
        enqueued(6, DAY - 200_000, "acme"),
        of("leased", 7, DAY - 150_000, 3, throttled_ms=70),
        of("returned", 8, DAY - 100_000, 3, reason="failure", error="no 1", due_ms=None),
        enqueued(9, DAY + 50, "beta", deadline_ms=None),
        of("leased", 10, DAY + 100_000, 6),
        of("acked", 11, DAY + 100_500, 6, cost=9),
        of("leased", 12, DAY + 110_000, 3),
        of("dead", 13, DAY + 120_000, 3, reason="max_attempts", ended="failure", target="mail.dlq", error="no 2"),
        of("redriven", 14, 2 * DAY, 3, queue="mail.dlq", target="mail", fairness_key=["beta"], cost=1, throttles=[]),
        enqueued(15, 2 * DAY + 5, "acme"),
        of("leased", 16, 2 * DAY + 50_000, 3),
        of("acked", 17, 2 * DAY + 50_010, 3),
    ]


def write_segment(
    journal: Path, rows: Sequence[Event], *, without: Sequence[str] = (), journal_id: str = JOURNAL
) -> Path:
    """Write events as an exported segment; without some columns, as an older version would."""
    journal.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([field for field in SCHEMA if field.name not in without])
    path = journal / file_name(journal_id, (rows[0]["sequence"], rows[-1]["sequence"]))
    told = [{**row, "journal_id": journal_id} for row in rows]
    pq.write_table(pa.Table.from_pylist(told, schema=schema), path)
    return path


def contents(spark: SparkSession, tables: Path) -> Tables:
    """Return all tables as text, row by row in order."""
    return {name: sorted(map(str, read_table(spark, tables, name).collect())) for name in TABLES}


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, small_data: None, tmp_path_factory: pytest.TempPathFactory) -> Tables:  # noqa: ARG001 - it is to be set
    """The tables of the whole story, made in one run."""
    place = tmp_path_factory.mktemp("at_once")
    write_segment(place / "journal", a_story())
    run_pipeline(spark, JournalFolder(place / "journal"), place / "tables")
    return contents(spark, place / "tables")


def test_a_run_makes_all_tables(at_once: Tables) -> None:
    """The story has rows for every table; messages are there once each."""
    assert {name for name, rows in at_once.items() if not rows} == {"sla", "gaps"}
    assert len(at_once["events"]) == 17
    assert len(at_once["messages"]) == 5
    assert len(at_once["dead_letters"]) == 1


@pytest.mark.long
def test_days_one_by_one_give_the_same_tables(
    spark: SparkSession, tmp_path: Path, at_once: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that come one at a time make the very tables that one run makes; many files of a day become one."""
    monkeypatch.setattr("fairlane.spark.pipeline.intake.FILES_MAX", 1)
    story = a_story()
    for first, last in ((0, 7), (7, 13), (13, 17)):
        write_segment(tmp_path / "journal", story[first:last])
        report = run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
        assert report.events == last - first
    assert len(list((tmp_path / "tables" / "events" / "day=2026-01-01").glob("*.parquet"))) == 1
    assert contents(spark, tmp_path / "tables") == at_once
    again = run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    assert (again.segments, again.run) == (0, 3)


def test_late_repeated_and_overlapping_segments_change_nothing(
    spark: SparkSession, tmp_path: Path, at_once: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day that comes last, in overlapping files, beside one without newer columns: the same tables.

    The end of the day before is no longer remembered by then, so more days are made anew.
    """
    monkeypatch.setattr(running, "CARRIED_MAX", 1)
    story, journal, tables = a_story(), tmp_path / "journal", tmp_path / "tables"
    write_segment(journal, story[:4], without=("throttled_ms", "capped_ms", "dedup_id"))
    write_segment(journal, story[3:8])
    write_segment(journal, story[13:])
    report = run_pipeline(spark, JournalFolder(journal), tables, on_trimmed="skip")
    assert (report.events, [(gap.from_sequence, gap.until_sequence) for gap in report.gaps]) == (12, [(9, 13)])
    write_segment(journal, story[6:11])
    write_segment(journal, story[8:15])
    report = run_pipeline(spark, JournalFolder(journal), tables)
    assert (report.events, report.gaps, str(report.first_day)) == (5, (), "2026-01-01")
    assert contents(spark, tables) == at_once


class Killed(BaseException):
    """The process is gone at this point."""


def test_a_run_that_is_killed(spark: SparkSession, tmp_path: Path, at_once: Tables) -> None:
    """Killed before it is decided, a run leaves the old tables; killed while files are moved, the next one goes on."""
    story, journal, tables = a_story(), tmp_path / "journal", tmp_path / "tables"
    write_segment(journal, story[:9])
    run_pipeline(spark, JournalFolder(journal), tables)
    before = contents(spark, tables)
    write_segment(journal, story[9:])

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "decide", die)
        with pytest.raises(Killed):
            run_pipeline(spark, JournalFolder(journal), tables)
    assert contents(spark, tables) == before

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", dying_at_the_seventh_move(Path.replace))
        with pytest.raises(Killed):
            run_pipeline(spark, JournalFolder(journal), tables)
    manifest = read_manifest(tables)
    assert manifest is not None
    assert manifest.swap is not None

    assert run_pipeline(spark, JournalFolder(journal), tables).segments == 0
    assert contents(spark, tables) == at_once
    assert sorted(path.name for path in tables.iterdir() if path.name.startswith(".")) == [".carried", ".lock"]


def dying_at_the_seventh_move(replace: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    """Return a rename that lets the process die when it has put six files in place."""
    moved = 0

    def counted(path: Path, target: Path) -> Path:
        nonlocal moved
        moved += path.suffix == ".parquet"
        if moved > 6:
            raise Killed
        return replace(path, target)

    return counted


def test_delta_tables_say_the_same_and_can_be_looked_back_in(
    spark: SparkSession, tmp_path: Path, at_once: Tables
) -> None:
    """The same story as Delta tables, in two runs: the same rows, and the first version still to be read."""
    deltalake = pytest.importorskip("deltalake")
    story, journal, tables = a_story(), tmp_path / "journal", tmp_path / "tables"
    write_segment(journal, story[:9])
    run_pipeline(spark, JournalFolder(journal), tables, table_format="delta")
    write_segment(journal, story[9:])
    run_pipeline(spark, JournalFolder(journal), tables, table_format="delta")
    assert contents(spark, tables) == at_once
    old = deltalake.DeltaTable(str(tables / "messages"), version=0).to_pyarrow_table()
    assert old.num_rows == 4
    with pytest.raises(InvalidArgument, match="have the format delta"):
        run_pipeline(spark, JournalFolder(journal), tables)


def test_what_can_not_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No such journal, a damaged segment, another run at work: each has an error that says so."""
    tables = tmp_path / "tables"
    with pytest.raises(InvalidArgument, match="does not exist"):
        run_pipeline(spark, JournalFolder(tmp_path / "nowhere"), tables)
    journal = tmp_path / "journal"
    path = write_segment(journal, a_story())
    with (tables / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked):
            run_pipeline(spark, JournalFolder(journal), tables)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreCorrupt, match="damaged or no segment"):
        run_pipeline(spark, JournalFolder(journal), tables)
    with pytest.raises(InvalidArgument, match="no table"):
        read_table(spark, tables, "messages")
