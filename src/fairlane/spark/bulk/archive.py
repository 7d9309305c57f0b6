"""The archive: finished days of the journal, and of the messages done on them, kept as long as they are wanted.

The tables of the pipeline are rebuilt when a segment arrives late, and serve questions about the present. The archive
is what is kept: a day is written once it is over, as few large files, and again only if the tables have changed since.
Each day is written aside and then put in its place, so a run that is killed leaves whole days and can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import Lakehouse, TablesAddress, open_tables
from fairlane.spark.pipeline.table_files import read_table

ARCHIVED = ("events", "acked")
"""The archived tables: the journal, and the acknowledged messages, each by day."""
_ROWS_PER_FILE = 1_000_000
_SOURCE = "_source"
_ASIDE = ".aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The result of a run: days written, old days deleted, and all days in the archive."""

    written: tuple[date, ...]
    removed: tuple[date, ...]
    days: tuple[date, ...]


def archive(
    spark: SparkSession,
    tables: str | Path | TablesAddress,
    target: Path,
    *,
    keep_days: int | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> ArchiveReport:
    """Update an archive from the tables of the pipeline, and delete old days.

    The newest day of the tables is not over and not archived. ``keep_days`` counts back from it; None keeps all. Raises
    InvalidArgument if there are no tables, or so few days can't be kept.
    """
    if keep_days is not None and keep_days < 1:
        raise InvalidArgument(f"keep_days must be at least 1, not {keep_days}.")
    lakehouse = open_tables(tables)
    days = sorted({date.fromisoformat(file.partition["day"]) for file in lakehouse.files("events")})
    if not days:
        raise InvalidArgument(f"The tables at {lakehouse.address} have no events yet.")
    oldest = date.min if keep_days is None else days[-1] - timedelta(days=keep_days)
    written = []
    for day in days[:-1]:
        source = _fingerprint(lakehouse, day)
        if day < oldest or _archived_from(target, day) == source:
            continue
        _write_day(spark, lakehouse.address, target, day, source)
        tell(f"{day} is archived.")
        written.append(day)
    removed = [day for day in sorted(_days(target / "events")) if day < oldest]
    for day in removed:
        for table in ARCHIVED:
            shutil.rmtree(target / table / f"day={day}", ignore_errors=True)
        tell(f"{day} is removed.")
    return ArchiveReport(written=tuple(written), removed=tuple(removed), days=tuple(sorted(_days(target / "events"))))


def _write_day(spark: SparkSession, tables: TablesAddress, target: Path, day: date, source: str) -> None:
    for table, frame in _frames(spark, tables, day):
        place, aside = target / table / f"day={day}", target / _ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        frame.drop("day").write.option("maxRecordsPerFile", _ROWS_PER_FILE).parquet(str(aside / "new"))
        (aside / "new" / _SOURCE).write_text(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            place.rename(aside / "old")
        (aside / "new").rename(place)
        shutil.rmtree(aside, ignore_errors=True)


def _frames(spark: SparkSession, tables: TablesAddress, day: date) -> Iterator[tuple[str, DataFrame]]:
    events = read_table(spark, tables, "events").where(F.col("day") == F.lit(day))
    yield "events", events.repartition(1).sortWithinPartitions("sequence")
    done = read_table(spark, tables, "messages").where(~F.col("is_open") & (F.col("day") == F.lit(day)))
    acked = done.where(F.col("outcome") == "acked").drop("is_open")
    yield "acked", acked.repartition(1).sortWithinPartitions("queue", "key", "message_id")


def _days(table: Path) -> Iterator[date]:
    for folder in table.glob("day=????-??-??"):
        yield date.fromisoformat(folder.name.removeprefix("day="))


def _fingerprint(lakehouse: Lakehouse, day: date) -> str:
    """Return a fingerprint of a day in the tables: its files. It changes when a late segment changes the day."""
    files = [*lakehouse.files("events"), *lakehouse.files("messages")]
    of_day = [file for file in files if file.partition["day"] == str(day) and file.partition.get("is_open") != "true"]
    return "\n".join(sorted(file.path for file in of_day))


def _archived_from(target: Path, day: date) -> str | None:
    """Return the fingerprint of an archived day; None for an incomplete day."""
    found = {_read(target / table / f"day={day}" / _SOURCE) for table in ARCHIVED}
    return found.pop() if len(found) == 1 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
