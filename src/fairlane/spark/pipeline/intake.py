"""The intake: new events become files of the table ``events``, by day. Many small files of a day are merged into few.

A merge concerns only files of earlier runs and changes no rows. It is committed together with new rows but apart from
them, so what is new and what is known already can never be mixed up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import StoreCorrupt
from fairlane.lakehouse import DataFile
from fairlane.lakehouse.state import Merge, TableChange
from fairlane.spark.pipeline.journals import Covered
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.pipeline.table_files import SORTED, TableFiles, few_files
from fairlane.spark.tables.schemas import EVENTS
from fairlane.spark.tables.table import TableDefinition, group_of, shaped

FILES_MAX = 32
"""A day with more small files than this gets them merged."""
TASK_ROWS = 500_000
"""About how many events of segments one task writes."""
MERGED_ROWS = 2_000_000
"""The approximate number of events in a merged file. Files with half as many are small."""

ORDER = {
    **SORTED,
    "events": ("day", "sequence"),
    "messages": ("is_open", "day", "last_sequence"),
}
"""How merged files are sorted, by table."""


@dataclass(frozen=True, slots=True)
class Footer:
    """How many events a file has, the instants of its first and last, and their journal."""

    rows: int
    first_ms: int
    last_ms: int
    journal_id: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """New events, written but not committed.

    Attributes:
        change: the new files, and merges of old ones.
        days: the days of new events, in order.
        events: how many new ones there are.
        last_ms: the instant of the latest.
        covered: the ranges of each journal that are new, with the instants of their events.
    """

    change: TableChange
    days: tuple[date, ...]
    events: int
    last_ms: int
    covered: Mapping[str, Sequence[Covered]]


NO_INTAKE = Intake(change=TableChange(), days=(), events=0, last_ms=0, covered={})


def take_in(
    spark: SparkSession,
    source: Source,
    segments: Sequence[Segment],
    *,
    tables: TableFiles,
    known: Sequence[DataFile],
    groups: Mapping[str, str],
) -> Intake:
    """Write the events of new segments. Raises StoreCorrupt for a bad segment.

    ``known`` are the files of the table, ``groups`` has the group of each journal.
    """
    known_footers = {segment.path: footer_of(segment.path) for segment in segments if segment.path is not None}
    found = _in_few_tasks(source.read(spark, segments), segments, known_footers)
    files = tables.write(EVENTS.name, shaped(found.withColumn("group", group_of(groups)), EVENTS))
    footers = [bounds_of(file) for file in files]
    days = tuple(sorted({date.fromisoformat(file.partition["day"]) for file in files}))
    return Intake(
        change=TableChange(adds=tuple(files), merges=tuple(merges(tables, EVENTS, known))),
        days=days,
        events=sum(footer.rows for footer in footers),
        last_ms=max((footer.last_ms for footer in footers), default=0),
        covered=_covered(segments, known_footers, footers),
    )


def _in_few_tasks(events: DataFrame, segments: Sequence[Segment], footers: Mapping[Path, Footer]) -> DataFrame:
    """Return events in as many tasks as make good files.

    Segments are in order and may be large, so tasks take whole ones. What a server sends is small, and comes in as
    many parts as the cluster has cores.
    """
    if any(segment.path is None for segment in segments):
        return few_files(events, "day").sortWithinPartitions("day", "sequence")
    return events.coalesce(max(1, sum(footer.rows for footer in footers.values()) // TASK_ROWS))


def _covered(
    segments: Sequence[Segment], known: Mapping[Path, Footer], written: Iterable[Footer]
) -> dict[str, list[Covered]]:
    """Return what segments cover. A stretch on a server has no footer: its events are all that was written of it."""
    found: dict[str, list[Covered]] = {}
    for segment in segments:
        if segment.path is None:
            footers = [footer for footer in written if footer.journal_id == segment.journal_id]
        else:
            footers = [known[segment.path]] if known[segment.path].rows else []
        first_ms = min((footer.first_ms for footer in footers), default=None)
        last_ms = max((footer.last_ms for footer in footers), default=None)
        stretches = [Covered(first, last, first_ms, last_ms) for first, last in segment.wanted]
        found.setdefault(segment.journal_id, []).extend(stretches)
    return found


def footer_of(path: Path) -> Footer:
    """Return what the footer of a segment tells. Raises StoreCorrupt if it is damaged."""
    try:
        known = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreCorrupt(f"{path} is damaged or not a journal segment: {error}.") from error
    groups = [known.row_group(group) for group in range(known.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    bounds = [column.statistics for column in columns if column.path_in_schema == "at_ms"]
    return Footer(
        rows=known.num_rows,
        first_ms=min((group.min for group in bounds), default=0),
        last_ms=max((group.max for group in bounds), default=0),
    )


def bounds_of(file: DataFile) -> Footer:
    """Return what the statistics of a file that was just written tell."""
    stats = msgspec.json.decode(file.stats)
    low, high = stats["minValues"], stats["maxValues"]
    return Footer(rows=file.rows, first_ms=low["at_ms"], last_ms=high["at_ms"], journal_id=low.get("journal_id"))


def merges(tables: TableFiles, table: TableDefinition, known: Sequence[DataFile]) -> list[Merge]:
    """Merge the small files of those days of a table that have too many. What is open is replaced by every run."""
    small: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in known:
        if file.rows < MERGED_ROWS // 2 and file.partition.get("is_open") != "true":
            small[file.partition["day"]].append(file)
    return [_merge(tables, table, f"merged-{day}-", files) for day, files in small.items() if len(files) > FILES_MAX]


def _merge(tables: TableFiles, table: TableDefinition, part: str, files: Sequence[DataFile]) -> Merge:
    count = max(1, round(sum(file.rows for file in files) / MERGED_ROWS))
    order = ORDER[table.name]
    rows = tables.read(table.name, files, table.schema).repartitionByRange(count, *order).sortWithinPartitions(*order)
    written = tables.write(table.name, rows, part=part)
    return Merge(adds=tuple(written), removes=tuple(file.path for file in files))
