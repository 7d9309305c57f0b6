"""One run of the pipeline: which segments are new, which days they touch, and how these days are built.

A run takes the new segments and adds their events to the table ``events``. If they go on where the last run ended, the
run *continues*: it reads the new events and those of messages that were open, and adds what follows from them to the
newest day. Otherwise, because a segment is late, a gap changed or a table has another version, all tables are *rebuilt*
from the first day that is touched. Either way earlier days stay as they are. What later events need of earlier ones
(the events of open messages, settings and pauses) is carried from run to run and from day to day, so old events are not
read again.

Segments are identified by their journal and the sequences they cover. A repeated segment adds nothing, a late one
rebuilds its day and those after it, and one that overlaps others adds what they lack. So the tables are a function of
the segments alone: their order, their grouping into runs and repeats don't matter. ``journals`` has the rules about
which journals are accepted and what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import DataFile, Lakehouse, TablesAddress, parse_address
from fairlane.lakehouse.state import Merge, TableChange
from fairlane.spark.pipeline.build import CARRIED, DEATHS, GROWING, WAITS, Before, build
from fairlane.spark.pipeline.few_events import FEW_EVENTS, session_for_few_events
from fairlane.spark.pipeline.gaps import gaps, marked
from fairlane.spark.pipeline.intake import NO_INTAKE, Intake, merges, take_in
from fairlane.spark.pipeline.journals import Gap, JournalCoverage, accepted, check_gaps, groups_by_id
from fairlane.spark.pipeline.manifest import Manifest, load_manifest
from fairlane.spark.pipeline.plan import continues, reach, regapped, stale, with_segments
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.pipeline.table_files import TableFiles, few_files, in_order
from fairlane.spark.tables import TABLES, partials
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events
from fairlane.spark.tables.news import Reached
from fairlane.spark.tables.schemas import EVENTS, GAPS
from fairlane.spark.tables.turns import Days
from fairlane.spark.threads import described
from fairlane.verbs.journal import OnTrimmed

CARRIED_MAX = 8
"""How many ends of days are kept. A segment that arrives later than that rebuilds more days."""

CONF = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.codegen.cache.maxEntries": "2000",
}
"""Recommended settings of a session for the pipeline.

The parallel collector suits bulk work. The code that Spark generates for the tables exceeds its default cache, so
without a larger one each run would compile everything again. By default PySpark tells Java the line of Python of every
expression, which is half of all calls to Java while tables are planned.
"""

PARTIALS = {WAITS: partials.WAITS_SCHEMA, DEATHS: partials.DEATHS_SCHEMA}
"""The pipeline's own tables of the newest day, with their columns."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its number; that of the last run if there was nothing new.
        segments: how many segments had something new.
        events: how many events they brought.
        first_day: the first day that changed, if any.
        newest_day: the newest day there is, if any.
        horizon_ms: the instant of the newest event in the tables.
        gaps: what is missing of the journals.
        journals: how far each journal is in the tables.
    """

    run: int
    segments: int
    events: int
    first_day: date | None
    newest_day: date | None
    horizon_ms: int
    gaps: tuple[Gap, ...]
    journals: tuple[JournalCoverage, ...]

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.segments and self.first_day is None


def run_pipeline(
    spark: SparkSession,
    source: Source,
    tables: str | Path | TablesAddress,
    *,
    on_trimmed: OnTrimmed = "fail",
    new_epoch: bool = False,
    few_events: int = FEW_EVENTS,
    tell: Tell = lambda _line: None,
) -> RunReport:
    """Update tables from one or more journals, and return what was done.

    The process can be killed at any time: the tables are then those before the run or those after it.

    Args:
        spark: the session; on a cluster, the executors must reach the tables and the journal too.
        source: where the journal is.
        tables: the address of the tables, such as a folder or ``delta:s3://bucket/tables``; created if missing.
        on_trimmed: refuse a journal of which events are missing that were not missing before, or go on without them.
        new_epoch: accept another journal in place of the one in the tables.
        few_events: a run that reads fewer events interprets queries instead of compiling them.
        tell: called with a line of text at each step.

    Raises:
        InvalidArgument: the journal does not exist, the address is not valid, or the tables have another format.
        JournalMismatch: it is another journal than the one in the tables.
        JournalTrimmed: events of the journal are missing.
        StoreLocked: another run is in progress, or was committed meanwhile.
        StoreFailed: a file cannot be written.
        StoreCorrupt: the manifest or a segment cannot be read.
    """
    lakehouse = Lakehouse(parse_address(tables))
    with lakehouse.locked():
        before = lakehouse.finish(load_manifest(lakehouse) or Manifest(format=lakehouse.address.format))
        lakehouse.clear()
        journals = accepted(before.journals, source.journals(), new_epoch=new_epoch)
        segments = source.new(journals)
        if not segments and not stale(before):
            return _report(before, segments, events=0, first_day=None)
        if on_trimmed == "fail":
            check_gaps(before.gaps, before.with_journals(with_segments(journals, segments)).gaps)
        run = _Run(spark, lakehouse, before, tell, few_events=few_events)
        after, first_day = run.make(source, segments, journals)
        source.done(after.journals)
        return _report(after, segments, events=after.events - before.events, first_day=first_day)


def rebuild_tables(
    spark: SparkSession,
    tables: str | Path | TablesAddress,
    *,
    first_day: date,
    last_day: date | None = None,
    tell: Tell = lambda _line: None,
) -> RunReport:
    """Compute days of all tables again, from the table ``events``, and return what was done.

    Use it after a release that computes something differently. The journal is not needed. Days before the first are
    read too if it is unknown what they left open; then they are rebuilt as well.

    Args:
        spark: the session.
        tables: the address of the tables.
        first_day: the first day to rebuild.
        last_day: the last day to rebuild; all that follow by default.
        tell: called with a line of text at each step.

    Raises:
        InvalidArgument: there are no tables, or they have none of these days.
        StoreLocked: another run is in progress, or was committed meanwhile.
    """
    lakehouse = Lakehouse(parse_address(tables))
    with lakehouse.locked():
        known = load_manifest(lakehouse)
        if known is None:
            raise InvalidArgument(
                f"There are no tables at {lakehouse.address}. Create them with 'fairlane pipeline run'."
            )
        before = lakehouse.finish(known)
        lakehouse.clear()
        if not any(first_day <= day and (last_day is None or day <= last_day) for day in before.days):
            raise InvalidArgument(f"The tables have no day from {first_day} to {last_day or 'the newest'}.")
        after, first = _Run(spark, lakehouse, before, tell).rebuild(first_day, last_day)
        return _report(after, (), events=0, first_day=first)


def _report(manifest: Manifest, segments: Sequence[Segment], *, events: int, first_day: date | None) -> RunReport:
    return RunReport(
        run=manifest.run,
        segments=len(segments),
        events=events,
        first_day=first_day,
        newest_day=manifest.days[-1] if manifest.days else None,
        horizon_ms=manifest.horizon_ms,
        gaps=manifest.gaps,
        journals=manifest.journals,
    )


class _Run:
    """One run: what it writes and commits."""

    def __init__(
        self,
        spark: SparkSession,
        lakehouse: Lakehouse,
        before: Manifest,
        tell: Tell,
        *,
        few_events: int = FEW_EVENTS,
    ) -> None:
        self._spark, self._lakehouse, self._before, self._tell = spark, lakehouse, before, tell
        self._few_events = few_events
        self._number = before.run + 1
        self._tables = TableFiles(spark, lakehouse)
        self._known = lakehouse.files(EVENTS.name)
        self._written: dict[str, list[DataFile]] = {}

    def make(
        self, source: Source, segments: Sequence[Segment], journals: Sequence[JournalCoverage]
    ) -> tuple[Manifest, date | None]:
        """Write everything, commit it, and return what is remembered then and the first day that changes, if any."""
        before, intake = self._before, NO_INTAKE
        if segments:
            with self._step(f"taking in {len(segments)} segment{'' if len(segments) == 1 else 's'}"):
                groups = groups_by_id(journals)
                intake = take_in(self._spark, source, segments, tables=self._tables, known=self._known, groups=groups)
        days = tuple(sorted({*before.days, *intake.days}))
        horizon_ms = max(before.horizon_ms, intake.last_ms)
        after = msgspec.structs.replace(
            before,
            days=days,
            carried=days[-CARRIED_MAX:],
            horizon_ms=horizon_ms,
            events=before.events + intake.events,
        ).with_journals([each.plus(intake.covered.get(each.journal_id, ())) for each in journals])
        old = stale(before)
        if not intake.days and not old:  # they hold nothing but what the broker wrote down for itself
            return self._lakehouse.commit(after, {}, {}), None
        if old:
            self._tell(f"run {self._number}: rebuilding all days, because of another version of {', '.join(old)}")
        touched = [*regapped(before, after), *before.days[: bool(old)]]
        if not touched and continues(before, after, intake):
            return self._continue(after, intake)
        return self._replace(after, intake, *reach(before, [*intake.days, *touched]))

    def rebuild(self, first_day: date, last_day: date | None) -> tuple[Manifest, date]:
        """Compute days again, and return what is remembered then and the first day that changes."""
        before = self._before
        if last_day is not None and last_day >= before.days[-1]:
            last_day = None
        first_day, carried_from = reach(before, [first_day])
        return self._replace(before, NO_INTAKE, first_day, carried_from, last_day)

    def _continue(self, after: Manifest, intake: Intake) -> tuple[Manifest, date]:
        """Add what new events change from the newest day on, and commit the run."""
        before, day = self._before, self._before.days[-1]
        events = self._read(intake, [], day, also=[file for name in PARTIALS for file in self._lakehouse.files(name)])
        known = Before(
            reached=Reached({each.journal_id: each.reached for each in before.journals}),
            rows=lambda name: self._rows(name, day),
        )
        self._build(after, events, Days(day, after.horizon_ms), None, known)
        merged = {name: merges(self._tables, TABLES[name], self._lakehouse.files(name)) for name in GROWING}
        changes = {
            name: self._grown(files, merged[name], name)
            if name in GROWING
            else self._replaced(name, files, (day, None), after)
            for name, files in self._written.items()
        }
        return self._commit(after, intake, changes), day

    def _rows(self, name: str, day: date) -> DataFrame:
        """Return the rows of a day that a table has."""
        files = [file for file in self._lakehouse.files(name) if file.partition["day"] == str(day)]
        schema = PARTIALS[name] if name in PARTIALS else TABLES[name].schema
        return self._tables.read(name, files, schema)

    def _grown(self, files: Sequence[DataFile], merged: Sequence[Merge], name: str) -> TableChange:
        """Return what a run that goes on changes in a table: new rows, and all that were open."""
        gone = {
            str(file.partition): file.partition
            for file in self._lakehouse.files(name)
            if file.partition["is_open"] == "true"
        }
        return TableChange(adds=tuple(files), replaces=tuple(gone.values()), merges=tuple(merged))

    def _commit(self, after: Manifest, intake: Intake, changes: dict[str, TableChange]) -> Manifest:
        if intake is not NO_INTAKE:
            changes[EVENTS.name] = intake.change
        with self._step("committing"):
            return self._lakehouse.commit(after, self._tables.shapes, changes)

    def _replace(
        self,
        after: Manifest,
        intake: Intake,
        first_day: date,
        carried_from: date | None,
        last_day: date | None = None,
    ) -> tuple[Manifest, date]:
        """Write all tables from a day on, and commit the run."""
        if last_day is None:
            is_all = first_day <= after.days[0]
            known = {name: table.version for name, table in TABLES.items()} if is_all else after.versions
            after = msgspec.structs.replace(after, versions={**known, WAITS: partials.VERSION})
        old = [file for file in self._known if file.partition["day"] >= str(first_day)]
        events = self._read(intake, old, carried_from)
        self._build(after, events, Days(first_day, after.horizon_ms), last_day)
        span = (first_day, last_day)
        changes = {name: self._replaced(name, files, span, after) for name, files in self._written.items()}
        return self._commit(after, intake, changes), first_day

    def _build(
        self, after: Manifest, events: DataFrame, span: Days, last_day: date | None, before: Before | None = None
    ) -> None:
        carry = [day for day in after.carried if day >= span.first_day]
        newest_day = datetime.fromtimestamp(span.horizon_ms // 1000, UTC).date()

        def write(name: str, frame: DataFrame) -> DataFrame:
            if name in PARTIALS and last_day is not None:  # the newest day stays as it is
                return frame
            with self._step(name.removeprefix(".")):
                of_days = frame.where(F.col("day").between(F.lit(span.first_day), F.lit(last_day or date.max)))
                return self._write(name, marked(of_days, TABLES[name], after.gaps) if name in TABLES else of_days)

        groups = groups_by_id(after.journals)
        ended = {each.journal_id: each.last_ms or 0 for each in after.journals if each.is_ended}
        with self._described("settings"):
            build(
                events, span, newest_day=newest_day, carry=carry, ended=ended, groups=groups, write=write, before=before
            )
        write(GAPS.name, gaps(self._spark, after.gaps))

    def _read(
        self, intake: Intake, old: Sequence[DataFile], carried_from: date | None, also: Sequence[DataFile] = ()
    ) -> DataFrame:
        """Return new events, those of old files, and what a day carried on. ``also`` is what else will be read."""
        parts = []
        ends = [file for file in self._lakehouse.files(CARRIED) if file.partition["day"] == str(carried_from)]
        if sum(file.rows for file in (*intake.change.adds, *old, *ends, *also)) < self._few_events:
            self._tables.use(session_for_few_events(self._spark))
        if intake.change.adds:
            parts.append(self._tables.read_written(EVENTS.name, intake.change.adds, JOURNAL_SCHEMA))
        if old:
            parts.append(self._tables.read(EVENTS.name, old, JOURNAL_SCHEMA))
        if ends:
            parts.append(self._tables.read(CARRIED, ends, JOURNAL_SCHEMA))
        return reduce(DataFrame.unionByName, map(events, parts))

    def _write(self, name: str, frame: DataFrame) -> DataFrame:
        files = self._written[name] = self._tables.write(name, in_order(few_files(frame, "day"), name))
        return self._tables.read_written(name, files, TABLES[name].schema) if name in TABLES else frame

    def _replaced(
        self, name: str, files: Sequence[DataFile], span: tuple[date, date | None], after: Manifest
    ) -> TableChange:
        """Return what a run changes in a table: all days from the first to the last, if there is a last one.

        Open messages are only in the partition of the newest day, and of what days carry over only the latest is kept.
        """
        first, last = str(span[0]), str(span[1] or date.max)
        kept = {str(day) for day in after.carried} if name == CARRIED else None
        if name in PARTIALS:
            kept = {str(after.days[-1])}
        gone = [
            file.partition
            for file in self._lakehouse.files(name)
            if first <= file.partition["day"] <= last
            or (span[1] is None and file.partition.get("is_open") == "true")
            or (kept is not None and file.partition["day"] not in kept)
        ]
        replaces = {tuple(partition.items()): partition for partition in gone}
        return TableChange(adds=tuple(files), replaces=tuple(replaces.values()))

    def _described(self, what: str) -> AbstractContextManager[None]:
        return described(self._spark, f"Fairlane pipeline, run {self._number}: {what}")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        with self._described(what):
            yield
        self._tell(f"run {self._number}: {what}, {time.monotonic() - began:.1f} s")
