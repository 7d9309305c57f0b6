"""The pipeline as a whole: however the journal comes, the tables are the same."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from fairlane.journal.arrow import SCHEMA
from fairlane.journal.segments import file_name
from fairlane.lakehouse.state import MANIFEST
from fairlane.spark import spark_session
from fairlane.spark.pipeline import JournalFolder, read_manifest, read_table, run_pipeline
from fairlane.spark.pipeline import run as running
from fairlane.spark.tables import TABLES
from fairlane.spark.threads import described
from tests.spark.table_rows import DAY, Event, enqueued, event, of

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


def contents(spark: SparkSession, tables: Path | str) -> Tables:
    """Return all tables as text, row by row in order."""
    return {name: sorted(map(str, read_table(spark, tables, name).collect())) for name in TABLES}


FOR_MANY_EVENTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.shuffle.partitions": "3",
}
"""A session of a user with many events. The other tests here do without Spark's own defaults, which take time."""


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of the whole story, made in one run that was planned as for many events, in another time zone."""
    place = tmp_path_factory.mktemp("at_once")
    write_segment(place / "journal", a_story())
    theirs = spark_session(conf=FOR_MANY_EVENTS)
    run_pipeline(theirs, JournalFolder(place / "journal"), place / "tables", few_events=0)
    return contents(spark, place / "tables")


def test_a_run_makes_all_tables(spark: SparkSession, at_once: Tables) -> None:
    """The story has rows for every table; messages are there once each. The caller's session stays the active one."""
    assert SparkSession.active() is spark
    assert {name for name, rows in at_once.items() if not rows} == {"sla", "gaps"}
    assert len(at_once["events"]) == 17
    assert len(at_once["messages"]) == 5
    assert len(at_once["dead_letters"]) == 1


@pytest.mark.long
def test_the_session_does_not_matter(spark: SparkSession, tmp_path: Path, at_once: Tables) -> None:
    """In a session with another time zone and other shuffle partitions the tables are the same.

    Spark's UI shows for each job of the run what it builds, and the caller's own text stays.
    """
    conf = {"spark.sql.session.timeZone": "America/St_Johns", "spark.sql.shuffle.partitions": "23"}
    theirs = spark_session(conf=conf)
    before = len(descriptions(spark))
    write_segment(tmp_path / "journal", a_story())
    with described(spark, "mine"):
        run_pipeline(theirs, JournalFolder(tmp_path / "journal"), tmp_path / "tables", few_events=0)
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    told = set(descriptions(spark)[: len(descriptions(spark)) - before])
    assert all(text.startswith("Fairlane pipeline, run 1: ") for text in told)
    assert {text.rpartition(": ")[2] for text in told} >= {*TABLES} - {"events"}
    assert contents(spark, tmp_path / "tables") == at_once
    assert {name: theirs.conf.get(name) for name in conf} == conf


def descriptions(spark: SparkSession) -> list[str]:
    """Return the descriptions of all jobs, the newest first."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(at).description() for at in range(jobs.size())]
    return [each.get() if each.isDefined() else "" for each in found]


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


def run_late(spark: SparkSession, place: Path, *, table_format: str = "parquet") -> str:
    """Make tables from a day that comes last, in overlapping files, beside one without newer columns.

    The end of the day before is no longer remembered by then, so more days are made anew.
    """
    story, journal, tables = a_story(), place / "journal", f"{table_format}:{place}/tables"
    write_segment(journal, story[:4], without=("throttled_ms", "capped_ms", "dedup_id"))
    write_segment(journal, story[3:8])
    write_segment(journal, story[13:])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "CARRIED_MAX", 1)
        report = run_pipeline(spark, JournalFolder(journal), tables, on_trimmed="skip")
        assert (report.events, [(gap.from_sequence, gap.until_sequence) for gap in report.gaps]) == (12, [(9, 13)])
        write_segment(journal, story[6:11])
        write_segment(journal, story[8:15])
        report = run_pipeline(spark, JournalFolder(journal), tables)
    assert (report.events, report.gaps, str(report.first_day)) == (5, (), "2026-01-01")
    return tables


@pytest.mark.long
def test_late_repeated_and_overlapping_segments_change_nothing(
    spark: SparkSession, tmp_path: Path, at_once: Tables
) -> None:
    """However late, often and overlapping segments come, the tables are the same; the next test has it for Delta."""
    assert contents(spark, run_late(spark, tmp_path)) == at_once


@pytest.mark.long
def test_delta_tables_say_the_same_and_can_be_looked_back_in(
    spark: SparkSession, tmp_path: Path, at_once: Tables
) -> None:
    """Late and overlapping segments as Delta tables: the same rows, and the first version still to be read."""
    deltalake = pytest.importorskip("deltalake")
    tables = run_late(spark, tmp_path, table_format="delta")
    assert contents(spark, tables) == at_once
    old = deltalake.DeltaTable(str(tmp_path / "tables" / "messages"), version=1).to_pyarrow_table()
    assert old.num_rows == 4
    with pytest.raises(InvalidArgument, match="have the format delta"):
        run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")


class Killed(BaseException):
    """The process is gone at this point."""


@pytest.mark.long
def test_a_run_that_is_killed(spark: SparkSession, tmp_path: Path, at_once: Tables) -> None:
    """Killed before it is decided, a run leaves the old tables; killed while files are moved, the next one goes on."""
    story, journal, tables = a_story(), tmp_path / "journal", tmp_path / "tables"
    write_segment(journal, story[:9])
    run_pipeline(spark, JournalFolder(journal), tables)
    before = contents(spark, tables)
    write_segment(journal, story[9:])

    for fatal in (dying_at(lambda _, target: target.name == MANIFEST), dying_at(nth_move(7))):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Path, "replace", fatal)
            with pytest.raises(Killed):
                run_pipeline(spark, JournalFolder(journal), tables)
        manifest = read_manifest(tables)
        assert manifest is not None
        assert contents(spark, tables) == (before if manifest.swap is None else at_once)
        is_decided = manifest.swap is not None
    assert is_decided

    assert run_pipeline(spark, JournalFolder(journal), tables).segments == 0
    assert contents(spark, tables) == at_once
    hidden = sorted(path.name for path in tables.iterdir() if path.name.startswith("."))
    assert hidden == [".carried", ".deaths", ".listings", ".lock", ".waits"]


Move = Callable[[Path, Path], bool]


def nth_move(number: int) -> Move:
    """Return whether a rename is the one with this number that puts a file of a table in place."""
    moved = 0

    def is_it(path: Path, _: Path) -> bool:
        nonlocal moved
        moved += path.suffix == ".parquet"
        return moved == number

    return is_it


def dying_at(is_fatal: Move) -> Callable[[Path, Path], Path]:
    """Return a rename that ends the process instead of one of them."""
    replace = Path.replace

    def checked(path: Path, target: Path) -> Path:
        if is_fatal(path, target):
            raise Killed
        return replace(path, target)

    return checked


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
    with pytest.raises(StoreCorrupt, match="damaged or not a journal segment"):
        run_pipeline(spark, JournalFolder(journal), tables)
    with pytest.raises(InvalidArgument, match="no tables"):
        read_table(spark, tables, "messages")
