"""The intake: new events become files of the table ``events``, by day.

A segment that lies within one day is already a file of that table, so it is hard-linked, or copied where the file
system cannot link. Spark splits only segments that cross midnight. A day with many files is compacted into few.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fairlane.errors import StoreCorrupt
from fairlane.spark.pipeline.folder import Shelf, day_in
from fairlane.spark.pipeline.journals import Covered, day_of
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.tables.events import JOURNAL_SCHEMA
from fairlane.spark.tables.schemas import EVENTS

FILES_MAX = 32
"""A day with more files than this is compacted."""
COMPACT_ROWS = 2_000_000
"""The approximate number of events in a compacted file."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of a file of events tells: how many there are, when the first and last were, of which journal."""

    rows: int
    first_ms: int
    last_ms: int
    journal_id: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """New events, staged.

    Attributes:
        days: the days they are of, in order.
        compacted: the days whose staged files hold all events of the day, old ones too.
        events: how many new ones there are.
        last_ms: the instant of the latest.
        covered: the ranges of each journal that are new, with the instants of their events.
    """

    days: tuple[date, ...]
    compacted: tuple[date, ...]
    events: int
    last_ms: int
    covered: Mapping[str, Sequence[Covered]]


def take_in(spark: SparkSession, source: Source, segments: Sequence[Segment], *, shelf: Shelf, root: Path) -> Intake:
    """Stage the events of new segments. Raises StoreCorrupt if a segment can't be read."""
    into = root / EVENTS.name
    into.mkdir(parents=True)
    cut = [segment for segment in segments if not _linked(segment, into)]
    if cut:
        in_order = source.read(spark, cut).sortWithinPartitions("day", "sequence")
        in_order.write.mode("append").partitionBy("day").parquet(str(into))
    footers = {path: footer_of(path) for path in sorted(into.glob("day=*/[!._]*.parquet"))}
    days = tuple(sorted({day_in(path.parent) for path in footers}))
    return Intake(
        days=days,
        compacted=tuple(day for day in days if _compacted(spark, shelf.events(day), into / f"day={day}")),
        events=sum(footer.rows for footer in footers.values()),
        last_ms=max((footer.last_ms for footer in footers.values()), default=0),
        covered=_covered(segments, footers.values()),
    )


def _covered(segments: Sequence[Segment], staged: Iterable[Footer]) -> dict[str, list[Covered]]:
    """Return what segments cover. A stretch on a server has no footer: its events are all that is staged of it."""
    found: dict[str, list[Covered]] = {}
    for segment in segments:
        if segment.path is None:
            footers = [footer for footer in staged if footer.rows and footer.journal_id == segment.journal_id]
        else:
            footers = [footer for footer in (footer_of(segment.path),) if footer.rows]
        first_ms = min((footer.first_ms for footer in footers), default=None)
        last_ms = max((footer.last_ms for footer in footers), default=None)
        stretches = [Covered(first, last, first_ms, last_ms) for first, last in segment.wanted]
        found.setdefault(segment.journal_id, []).extend(stretches)
    return found


def footer_of(path: Path) -> Footer:
    """Return what the footer of a file of events tells. Raises StoreCorrupt if it is damaged."""
    try:
        known = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreCorrupt(f"{path} is damaged or no segment of a journal: {error}.") from error
    at, journals = (_statistics(known, name) for name in ("at_ms", "journal_id"))
    return Footer(
        rows=known.num_rows,
        first_ms=min((group.min for group in at), default=0),
        last_ms=max((group.max for group in at), default=0),
        journal_id=next((group.min for group in journals if group.has_min_max), None),
    )


def _statistics(known: pq.FileMetaData, name: str) -> list[pq.Statistics]:
    """Return the statistics of a column in each row group; none if the file lacks the column."""
    groups = [known.row_group(group) for group in range(known.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    return [column.statistics for column in columns if column.path_in_schema == name and column.statistics is not None]


def _linked(segment: Segment, root: Path) -> bool:
    """Link a segment's own file into place, if all of it is needed and it lies within one day."""
    if segment.path is None or not segment.is_whole:
        return False
    footer = footer_of(segment.path)
    if not footer.rows:
        return True
    day = day_of(footer.first_ms)
    if day != day_of(footer.last_ms):
        return False
    target = root / f"day={day}" / segment.path.name
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(segment.path, target)
    except OSError:
        shutil.copyfile(segment.path, target)
    return True


def _compacted(spark: SparkSession, known_files: list[Path], into: Path) -> bool:
    """Compact a day that has too many files; return whether that was necessary."""
    staged_files = list(into.glob("[!._]*.parquet"))
    files = [*known_files, *staged_files]
    if len(files) <= FILES_MAX:
        return False
    rows = sum(footer_of(file).rows for file in files)
    frame = spark.read.schema(JOURNAL_SCHEMA).parquet(*map(str, files))
    fresh = into.parent.parent / f"compacted-{into.name}"
    count = max(1, round(rows / COMPACT_ROWS))
    frame.repartitionByRange(count, "sequence").sortWithinPartitions("sequence").write.parquet(str(fresh))
    for file in staged_files:
        file.unlink()
    for file in sorted(fresh.glob("[!._]*.parquet")):
        file.replace(into / file.name)
    return True
