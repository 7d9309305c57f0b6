"""The intake: new events become files of the table ``events``, by day. Many small files of a day are merged into few.

A merge concerns only files of earlier runs and changes no rows. It is committed together with the new events but apart
from them, so what is new and what is known already can never be mixed up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fairlane.errors import StoreCorrupt
from fairlane.lakehouse import DataFile
from fairlane.lakehouse.state import Merge, TableChange
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.pipeline.table_files import TableFiles, few_files
from fairlane.spark.tables.events import JOURNAL_SCHEMA
from fairlane.spark.tables.events import events as as_events
from fairlane.spark.tables.schemas import EVENTS
from fairlane.spark.tables.table import shaped

FILES_MAX = 32
"""A day with more small files than this gets them merged."""
MERGED_ROWS = 2_000_000
"""The approximate number of events in a merged file. Files with half as many are small."""


@dataclass(frozen=True, slots=True)
class Footer:
    """How many events a file has, and the instants of its first and last."""

    rows: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Intake:
    """New events, written but not committed.

    Attributes:
        change: the new files, and merges of old ones.
        days: the days of new events, in order.
        events: how many new ones there are.
        last_ms: the instant of the latest.
    """

    change: TableChange
    days: tuple[date, ...]
    events: int
    last_ms: int


def take_in(
    spark: SparkSession,
    source: Source,
    segments: Sequence[Segment],
    *,
    tables: TableFiles,
    known: Sequence[DataFile],
) -> Intake:
    """Write the events of new segments; ``known`` are the files of the table. Raises StoreCorrupt for a bad segment."""
    for segment in segments:
        if segment.path is not None:
            footer_of(segment.path)
    found = source.read(spark, segments)
    rows = shaped(few_files(found, "day").sortWithinPartitions("day", "sequence"), EVENTS)
    files = tables.write(EVENTS.name, rows)
    footers = [bounds_of(file) for file in files]
    days = tuple(sorted({date.fromisoformat(file.partition["day"]) for file in files}))
    return Intake(
        change=TableChange(adds=tuple(files), merges=tuple(_merges(tables, known))),
        days=days,
        events=sum(footer.rows for footer in footers),
        last_ms=max((footer.last_ms for footer in footers), default=0),
    )


def footer_of(path: Path) -> Footer:
    """Return what the footer of a segment tells. Raises StoreCorrupt if it is damaged."""
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


def bounds_of(file: DataFile) -> Footer:
    """Return what the statistics of a file that was just written tell."""
    stats = msgspec.json.decode(file.stats)
    return Footer(rows=file.rows, first_ms=stats["minValues"]["at_ms"], last_ms=stats["maxValues"]["at_ms"])


def day_of(at_ms: int) -> date:
    """Return the UTC day of an instant."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).date()


def _merges(tables: TableFiles, known: Sequence[DataFile]) -> list[Merge]:
    """Merge the small files of those days that have too many."""
    small: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in known:
        if file.rows < MERGED_ROWS // 2:
            small[file.partition["day"]].append(file)
    return [_merge(tables, f"merged-{day}-", files) for day, files in small.items() if len(files) > FILES_MAX]


def _merge(tables: TableFiles, part: str, files: Sequence[DataFile]) -> Merge:
    count = max(1, round(sum(file.rows for file in files) / MERGED_ROWS))
    frame = as_events(tables.read(EVENTS.name, files, JOURNAL_SCHEMA)).repartitionByRange(count, "sequence")
    rows = shaped(frame.sortWithinPartitions("day", "sequence"), EVENTS)
    written = tables.write(EVENTS.name, rows, part=part)
    return Merge(adds=tuple(written), removes=tuple(file.path for file in files))
