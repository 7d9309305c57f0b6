"""One run of the pipeline: what is new, which days it touches, and how they become the tables.

A run takes the segments that are new, adds their events to the table ``events``, and makes all other tables anew from
the first day on that they touch. Days before stay as they are. What a later day needs of earlier ones, the stories of
messages that were open and settings, is carried from day to day, so old events are not read again.

Segments are known by the sequences they cover. One that comes twice brings nothing, one that comes late makes its day
and those after it anew, and one that overlaps others brings what they don't have. So the tables are a function of the
segments alone: neither their order, nor how they were grouped into runs, nor repeats matter.
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
from fairlane.spark.pipeline.segments import Segment
from fairlane.spark.pipeline.source import Source
from fairlane.spark.tables import TABLES
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events
from fairlane.spark.tables.turns import Days

CARRIED_MAX = 8
"""How many days' ends are remembered. A segment that comes later than that makes more days anew."""

CONF = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.shuffle.partitions": "8",
}
"""What a session for the pipeline is best set to.

Work comes in bulk, and what is shuffled must fit into memory. What Spark compiles for the tables is more than it keeps
by itself, so without room for it each run would compile all of it anew. And rows of few days need no sorting by day.
"""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its number; that of the last run if there was nothing new.
        segments: how many segments had something new.
        events: how many events they brought.
        first_day: the first day that was made anew, if any was.
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
    """Bring the tables in a folder up to what a source has of the journal, and return what was done.

    It can be killed at any time: the tables are then those before the run or those after it.

    Args:
        spark: the session; on a cluster both folders must be shared storage.
        source: where the journal is.
        tables: the folder of the tables; it is made if it is not there.
        table_format: plain Parquet files, or Delta tables, which need ``fairlane[delta]``.
        tell: called with a line for people at each step.

    Raises:
        InvalidArgument: there is no such journal, or the tables are of another format.
        StoreLocked: another run is at it.
        StoreFailed: a file could not be written.
        StoreCorrupt: the manifest or a segment can't be read.
    """
    folder = Path(tables).absolute()
    with locked(folder):
        shelf = _shelf(folder, table_format)
        before = carry_out(folder, shelf) or Manifest(format=table_format)
        if before.format != table_format:
            raise InvalidArgument(f"The tables in {folder} are of format {before.format}, not {table_format}.")
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
    """Return the first day to be made anew, and the day whose end is known before it, if there is one.

    The newest day so far is always made anew: only now it is known that it is over.
    """
    first = min([intake.days[0], *before.days[-1:]])
    earlier = [day for day in before.days if day < first]
    if not earlier:
        return first, None
    known = [day for day in before.carried if day < first]
    if not known:
        return before.days[0], None
    return min(first, *[day for day in before.days if day > known[-1]]), known[-1]
