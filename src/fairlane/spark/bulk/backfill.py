"""Backfill: enqueues the rows of any table, each once, at a limited rate, and resumable.

The rows are first written to a work folder, in files of a fixed size: so a run that is repeated sends the very same
rows in the very same order, whatever becomes of their source meanwhile. Then they are sent, some files at a time, as
the numbered batches of a sink. The broker remembers the last batch of each sink, so a batch is published once, and a
run that was killed goes on where the broker says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import InvalidArgument
from fairlane.spark.pace import Pace
from fairlane.spark.source.rows import check_columns
from fairlane.spark.source.server_address import ServerAddress
from fairlane.spark.threads import active

ROWS_PER_BATCH = 50_000
"""The number of rows published in one commit, unless the rate is lower."""
_ROWS_PER_FILE = 10_000
_ABOUT = "about.json"
_ROWS = "rows"


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that are sent together, and how many rows they have."""

    files: tuple[str, ...]
    rows: int


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of the rows in a work folder, the same in every run."""

    queue: str
    source: str
    batches: tuple[Batch, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(batch.rows for batch in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What to send, and where.

    Attributes:
        place: the server.
        queue: the queue the rows go to.
        name: the name of the backfill; under the same name it is the same one, and resumed.
        source: what the rows are, in words; a folder with other rows is refused.
        work: the folder the rows are kept in until all are sent; on a cluster it must be shared storage.
        rate: the maximum of messages per second; None for no limit.
    """

    place: ServerAddress
    queue: str
    name: str
    source: str
    work: Path
    rate: float | None = None

    @property
    def sink(self) -> str:
        """The sink whose batches the broker counts."""
        return f"backfill-{self.name}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a backfill."""

    sent: int
    total: int


def run_backfill(
    spark: SparkSession, rows: Callable[[], DataFrame], backfill: Backfill, *, pace: Pace
) -> Iterator[Progress]:
    """Send all rows of a frame that have not been sent yet, and yield the progress at the start and after each batch.

    A row is sent once, however often this is interrupted and run again, as long as the work folder and the broker's
    memory of the sink are there. ``rows`` is asked only if the folder has none yet. Raises InvalidArgument if the rows
    have no such columns as messages have, or the work folder has rows of another source. Raises QueueNotFound if there
    is no such queue.
    """
    about = _snapshot(rows, backfill)
    first = _next_batch(backfill)
    before = sent = sum(batch.rows for batch in about.batches[:first])
    yield Progress(sent, about.rows)
    began_s = pace.now_s()
    for number, batch in enumerate(about.batches[first:], first):
        _send(spark, batch, backfill, number)
        sent += batch.rows
        yield Progress(sent, about.rows)
        if backfill.rate is not None and sent < about.rows:
            pace.wait(max(0.0, began_s + (sent - before) / backfill.rate - pace.now_s()))


def forget_rows(backfill: Backfill) -> None:
    """Delete the work folder of a finished backfill."""
    shutil.rmtree(backfill.work, ignore_errors=True)


def _snapshot(rows: Callable[[], DataFrame], backfill: Backfill) -> About:
    """Return the content of the work folder, writing it first if it is empty."""
    path = backfill.work / _ABOUT
    if path.exists():
        about = msgspec.json.decode(path.read_bytes(), type=About)
        if (about.queue, about.source) != (backfill.queue, backfill.source):
            raise InvalidArgument(
                f"{backfill.work} has rows of {about.source!r:.200} for queue {about.queue}: "
                "give this backfill another name, or remove the folder to abandon the earlier one."
            )
        return about
    frame = rows()
    check_columns(frame.schema)
    per_batch = ROWS_PER_BATCH if backfill.rate is None else min(ROWS_PER_BATCH, max(1, int(backfill.rate)))
    place = backfill.work / _ROWS
    shutil.rmtree(place, ignore_errors=True)
    frame.write.option("maxRecordsPerFile", min(per_batch, _ROWS_PER_FILE)).parquet(str(place))
    about = About(queue=backfill.queue, source=backfill.source, batches=tuple(_batches(place, per_batch)))
    fresh = backfill.work / f".{_ABOUT}.new"
    fresh.write_bytes(msgspec.json.encode(about))
    fresh.replace(path)  # from here on the rows are these
    return about


def _batches(place: Path, per_batch: int) -> Iterator[Batch]:
    """Yield the files of a folder in order, in groups of about this many rows."""
    files: list[str] = []
    rows = 0
    for file in sorted(place.glob("[!._]*.parquet")):
        count = pq.read_metadata(file).num_rows
        if files and rows + count > per_batch:
            yield Batch(files=tuple(files), rows=rows)
            files, rows = [], 0
        files.append(file.name)
        rows += count
    if files:
        yield Batch(files=tuple(files), rows=rows)


def _next_batch(backfill: Backfill) -> int:
    """Return the first batch that the broker has not published."""
    with backfill.place.client() as client:
        latest = {sink.name: sink.batch for sink in client.sinks(backfill.queue)}.get(backfill.sink)
    return 0 if latest is None else latest + 1


def _send(spark: SparkSession, batch: Batch, backfill: Backfill, number: int) -> None:
    frame = spark.read.parquet(*(str(backfill.work / _ROWS / name) for name in batch.files))
    writer = frame.write.format("fairlane").mode("append").options(**backfill.place.options())
    with active(spark):  # the caller may be in a thread of its own
        writer.options(queue=backfill.queue, sink=backfill.sink, batch=str(number)).save()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which rows to read, and as which columns.

    Attributes:
        path: files or folders, as Spark names them; or
        table: a table that Spark knows.
        file_format: of the files.
        columns: SQL expressions with names, such as ``body AS payload``; empty for the columns as they are.
        where: an SQL condition.
    """

    path: str | None = None
    table: str | None = None
    file_format: str = "parquet"
    columns: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None):
            raise InvalidArgument("Pass either a path or a table.")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows. Raises InvalidArgument if they can't be read so."""
        try:
            if self.table is not None:
                frame = spark.table(self.table)
            else:
                frame = spark.read.format(self.file_format).load(self.path)
            if self.where is not None:
                frame = frame.where(self.where)
            return frame.selectExpr(*self.columns) if self.columns else frame
        except PySparkException as error:
            raise InvalidArgument(f"Could not read the rows: {str(error).strip().splitlines()[0]:.300}") from error

    def __str__(self) -> str:
        parts = [self.path or self.table, *self.columns, self.where and f"where {self.where}"]
        return " ".join(part for part in parts if part)
