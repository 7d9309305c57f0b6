"""One run of the pipeline: which segments are new, which days they touch, and how these days are rebuilt.

A run takes the new segments, adds their events to the table ``events``, and rebuilds all other tables from the first
day that they touch. Earlier days stay as they are. What a later day needs of earlier ones (the events of messages that
are still open, settings and pauses) is carried from day to day, so old events are not read again.

Segments are identified by the sequences they cover. A repeated segment adds nothing, a late one rebuilds its day and
those after it, and one that overlaps others adds what they lack. So the tables are a function of the segments alone:
their order, their grouping into runs and repeats don't matter.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.journal.segments import joined
from fairlane.spark.pipeline.build import build
from fairlane.spark.pipeline.folder import CARRIED, PlainTables, Shelf, carry_out, clear_staged, decide, locked, staged
from fairlane.spark.pipeline.intake import Intake, take_in
from fairlane.spark.pipeline.manifest import Format, Manifest, Swap, write_manifest
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.tables import TABLES
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events
from fairlane.spark.tables.turns import Days

CARRIED_MAX = 8
"""How many ends of days are kept. A segment that arrives later than that rebuilds more days."""

CONF = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.shuffle.partitions": "8",
}
"""Recommended settings of a session for the pipeline.

The parallel collector suits bulk work. The code that Spark generates for the tables exceeds its default cache, so
without a larger one each run would compile everything again. And rows of few days need no sorting by day.
By default PySpark passes the line of Python of every expression to Java, for errors that users could locate. While
tables are planned, that is half of all calls to Java.
"""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its number; that of the last run if there was nothing new.
        segments: how many segments had something new.
        events: how many events they brought.
        first_day: the first day that was rebuilt, if any.
        newest_day: the newest day there is, if any.
        gaps: the first and last sequence of stretches that are missing in between.
    """

    run: int
    segments: int
    events: int
    first_day: date | None
    newest_day: date | None
    gaps: list[tuple[int, int]]


def run_pipeline(
    spark: SparkSession,
    source: Source,
    tables: Path | str,
    *,
    table_format: Format = "parquet",
    tell: Tell = lambda _line: None,
) -> RunReport:
    """Update the tables in a folder from a journal, and return what was done.

    The process can be killed at any time: the tables are then those before the run or those after it.

    Args:
        spark: the session; on a cluster both folders must be shared storage.
        source: where the journal is.
        tables: the folder of the tables; created if missing.
        table_format: plain Parquet files, or Delta tables, which need ``fairlane[delta]``.
        tell: called with a line of text at each step.

    Raises:
        InvalidArgument: the journal does not exist, or the tables have another format.
        StoreLocked: another run is in progress.
        StoreFailed: a file cannot be written.
        StoreCorrupt: the manifest or a segment cannot be read.
    """
    folder = Path(tables).absolute()
    with locked(folder):
        shelf = _shelf(folder, table_format)
        before = carry_out(folder, shelf) or Manifest(format=table_format)
        if before.format != table_format:
            raise InvalidArgument(
                f"The tables in {folder} have the format {before.format}, not {table_format}. "
                "Use the same format, or another folder."
            )
        clear_staged(folder)
        segments = source.new(before.covered)
        if not segments:
            return _report(before, segments, events=0, first_day=None)
        run = _Run(spark, folder, shelf, before, tell)
        after, first_day = run.make(source, segments)
        carry_out(folder, shelf)
        source.done(after.covered)
        return _report(after, segments, events=after.events - before.events, first_day=first_day)


def _shelf(folder: Path, table_format: Format) -> Shelf:
    if table_format == "parquet":
        return PlainTables(folder)
    from fairlane.spark.pipeline.delta import DeltaTables  # noqa: PLC0415 - only who wants Delta needs the extra

    return DeltaTables(folder)


def _report(manifest: Manifest, segments: Sequence[Segment], *, events: int, first_day: date | None) -> RunReport:
    return RunReport(
        run=manifest.run,
        segments=len(segments),
        events=events,
        first_day=first_day,
        newest_day=manifest.days[-1] if manifest.days else None,
        gaps=manifest.gaps,
    )


class _Run:
    """One run: what it stages and decides."""

    def __init__(self, spark: SparkSession, folder: Path, shelf: Shelf, before: Manifest, tell: Tell) -> None:
        self._spark, self._folder, self._shelf, self._before, self._tell = spark, folder, shelf, before, tell
        self._number = before.run + 1
        self._root = staged(folder, self._number)

    def make(self, source: Source, segments: Sequence[Segment]) -> tuple[Manifest, date | None]:
        """Stage everything, decide it, and return what is remembered then and the first day that changes, if any."""
        before = self._before
        with self._step(f"taking in {len(segments)} segment{'' if len(segments) == 1 else 's'}"):
            intake = take_in(self._spark, source, segments, shelf=self._shelf, root=self._root)
        days = tuple(sorted({*before.days, *intake.days}))
        horizon_ms = max(before.horizon_ms, intake.last_ms)
        after = msgspec.structs.replace(
            before,
            run=self._number,
            covered=joined([*before.covered, *[stretch for each in segments for stretch in each.wanted]]),
            days=days,
            carried=days[-CARRIED_MAX:],
            horizon_ms=horizon_ms,
            events=before.events + intake.events,
        )
        if not intake.days:  # they hold nothing but what the broker wrote down for itself
            write_manifest(self._folder, after)
            return after, None
        first_day, carried_from = _reach(before, intake)
        self._build(after, intake, Days(first_day, horizon_ms), carried_from)
        decide(self._folder, after, Swap(run=self._number, first_day=first_day, compacted=intake.compacted))
        return after, first_day

    def _build(self, after: Manifest, intake: Intake, span: Days, carried_from: date | None) -> None:
        events = self._events(after, intake, span.first_day, carried_from)
        carry = [day for day in after.carried if day >= span.first_day]
        newest_day = datetime.fromtimestamp(span.horizon_ms // 1000, UTC).date()

        def write(name: str, frame: DataFrame) -> DataFrame:
            with self._step(name.removeprefix(".")):
                return self._write(name, frame.where(F.col("day") >= F.lit(span.first_day)))

        build(events, span, newest_day=newest_day, carry=carry, write=write)

    def _events(self, after: Manifest, intake: Intake, first_day: date, carried_from: date | None) -> DataFrame:
        """Return the events of all days from the first on, and what the day before them carried on."""
        files: list[Path] = []
        for day in after.days[bisect_left(after.days, first_day) :]:
            name = Path(f"day={day}")
            if day not in intake.compacted:
                files += self._shelf.events(day)
            files += (self._root / "events" / name).glob("[!._]*.parquet")
        if carried_from is not None:
            files += (self._folder / CARRIED / f"day={carried_from}").glob("[!._]*.parquet")
        return events(self._spark.read.schema(JOURNAL_SCHEMA).parquet(*map(str, sorted(files))))

    def _write(self, name: str, frame: DataFrame) -> DataFrame:
        root = str(self._root / name)
        partitions = TABLES[name].partitions if name in TABLES else ("day",)
        frame.write.partitionBy(*partitions).parquet(root)
        if name not in TABLES:
            return frame
        return self._spark.read.schema(TABLES[name].schema).parquet(root)

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._tell(f"run {self._number}: {what}, {time.monotonic() - began:.1f} s")


def _reach(before: Manifest, intake: Intake) -> tuple[date, date | None]:
    """Return the first day to rebuild, and the day before it whose end is known, if any.

    The newest day so far is always rebuilt: only now it is known to be complete.
    """
    first = min([intake.days[0], *before.days[-1:]])
    earlier = [day for day in before.days if day < first]
    if not earlier:
        return first, None
    known = [day for day in before.carried if day < first]
    if not known:
        return before.days[0], None
    return min(first, *[day for day in before.days if day > known[-1]]), known[-1]
