"""The intake: new events become files of the table ``events``, by day.

A segment that lies within one day is already a file of that table, so it is hard-linked, or copied where the file
system cannot link. Spark splits only segments that cross midnight. A day with many files is compacted into few.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fairlane.errors import StoreCorrupt
from fairlane.spark.pipeline.folder import Shelf, day_in
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.tables.events import JOURNAL_SCHEMA
from fairlane.spark.tables.schemas import EVENTS

FILES_MAX = 32
"""A day with more files than this is compacted."""
COMPACT_ROWS = 2_000_000
"""The approximate number of events in a compacted file."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file's footer tells."""

    rows: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Intake:
    """New events, staged.

    Attributes:
        days: the days they are of, in order.
        compacted: the days whose staged files hold all events of the day, old ones too.
        events: how many new ones there are.
        last_ms: the instant of the latest.
    """

    days: tuple[date, ...]
    compacted: tuple[date, ...]
    events: int
    last_ms: int


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
    )


def footer_of(path: Path) -> Footer:
    """Return what the footer of a file of events tells. Raises StoreCorrupt if it is damaged."""
    try:
        known = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreCorrupt(f"{path} is damaged or no segment of a journal: {error}.") from error
    at = known.schema.to_arrow_schema().get_field_index("at_ms")
    groups = [known.row_group(group).column(at).statistics for group in range(known.num_row_groups)]
    return Footer(
        rows=known.num_rows,
        first_ms=min((group.min for group in groups), default=0),
        last_ms=max((group.max for group in groups), default=0),
    )


def _linked(segment: Segment, root: Path) -> bool:
    """Link a segment's own file into place, if all of it is needed and it lies within one day."""
    if segment.path is None or not segment.is_whole:
        return False
    footer = footer_of(segment.path)
    if not footer.rows:
        return True
    day = _day(footer.first_ms)
    if day != _day(footer.last_ms):
        return False
    target = root / f"day={day}" / segment.path.name
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(segment.path, target)
    except OSError:
        shutil.copyfile(segment.path, target)
    return True


def _day(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms // 1000, UTC).date()


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
