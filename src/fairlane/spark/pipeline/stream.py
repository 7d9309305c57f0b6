"""The pipeline as a query of Structured Streaming, with a checkpoint; it fills the same tables.

Spark plans the batches, remembers their ends in its checkpoint, and reads a batch again after a crash. The manifest
says what is in the tables. So a batch that is read again adds what the tables lack of it, and that is nothing if only
Spark's note of its end was lost. Each event counts once, whatever was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from fairlane.errors import FairlaneError, InvalidArgument, StoreCorrupt
from fairlane.lakehouse import TablesAddress, parse_address
from fairlane.spark.pipeline.journals import JournalCoverage, JournalOffer, accepted, check_gaps
from fairlane.spark.pipeline.live import LiveJournal
from fairlane.spark.pipeline.manifest import Manifest, read_manifest
from fairlane.spark.pipeline.plan import with_segments
from fairlane.spark.pipeline.run import RunReport
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.source.data_source import FairlaneDataSource
from fairlane.spark.tables.events import events
from fairlane.spark.threads import active
from fairlane.verbs.journal import OnTrimmed

CHECKPOINT: Final = ".checkpoint"
"""The default folder of the checkpoint, in that of the tables."""

ROWS_MAX: Final = 5_000_000
"""The most sequences in a batch."""

Run = Callable[[SparkSession, Source], RunReport]
"""Updates the tables from a source."""


class Offset(msgspec.Struct, frozen=True):
    """The end of a batch in Spark's checkpoint."""

    sequence: int
    journal_id: str


@dataclass(frozen=True, slots=True)
class StreamedBatch:
    """A batch of a stream as a source of the pipeline.

    Attributes:
        live: the journal that the stream follows.
        frame: the events of the batch.
        start: the end of the batch before it; None for the first one, which begins where the tables end.
        end: the end of the batch.
    """

    live: LiveJournal
    frame: DataFrame
    start: Offset | None
    end: Offset

    def journals(self) -> list[JournalOffer]:
        """Return the journal of the server."""
        return self.live.journals()

    def new(self, journals: Sequence[JournalCoverage]) -> list[Segment]:
        """Return the part of the batch that the tables lack.

        Raises:
            StoreCorrupt: the tables lack something from before the batch.
        """
        reached = next((each.reached for each in journals if each.journal_id == self.end.journal_id), 0)
        if self.start is not None and self.start.journal_id == self.end.journal_id and reached < self.start.sequence:
            raise StoreCorrupt(
                f"The checkpoint is at {self.start.sequence}, but the tables reach only to {reached}. "
                "They don't belong together. Delete the checkpoint; the stream then continues where the tables end."
            )
        found = self.live.new(journals)
        if not found or self.end.sequence < found[0].covers[0]:
            return []
        wanted = (found[0].covers[0], self.end.sequence)
        return [replace(found[0], covers=wanted, wanted=(wanted,))]

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:  # noqa: ARG002 - the frame has its own
        """Return the events of the batch that are wanted."""
        ((first, last),) = segments[0].wanted
        return events(self.frame.where(F.col("sequence").between(first, last)))

    def done(self, journals: Sequence[JournalCoverage]) -> None:
        """Allow the server to trim what is in the tables."""
        self.live.done(journals)


def stream_pipeline(
    spark: SparkSession,
    live: LiveJournal,
    tables: str | Path | TablesAddress,
    *,
    run: Run,
    checkpoint: Path | None = None,
    rows_max: int = ROWS_MAX,
    on_trimmed: OnTrimmed = "fail",
    new_epoch: bool = False,
) -> RunReport | None:
    """Update tables by a streaming query that ends with what is there now; return the last report, None without news.

    Args:
        spark: the session.
        live: the journal.
        tables: the address of the tables.
        run: updates the tables from a source, as ``run_pipeline`` does.
        checkpoint: the folder of the checkpoint; by default one in that of the tables.
        rows_max: the most sequences in a batch, so that a long journal is taken in pieces.
        on_trimmed: what ``run`` does about missing events.
        new_epoch: whether ``run`` accepts another journal in place of the one in the tables.

    Raises:
        JournalMismatch: it is another journal than the one in the tables.
        JournalTrimmed: events of the journal are missing.
        InvalidArgument: the tables are in an object store, and no folder for the checkpoint was given; or the session
            is one of Spark Connect, which runs the batches of a query in a process of the server.
        FairlaneError: what a run raised.
        StreamingQueryException: the query failed; repeated, it goes on with the same batch.
    """
    _check_classic()
    reports: list[RunReport] = []
    errors: list[FairlaneError] = []
    address = parse_address(tables)
    remembered = _checkpoint(address) if checkpoint is None else checkpoint.absolute()

    def take(frame: DataFrame, number: int) -> None:
        start = _offset(remembered, number - 1) if number else None
        batch = StreamedBatch(live, frame, start, _offset(remembered, number))
        try:
            reports.append(run(frame.sparkSession, batch))
        except FairlaneError as error:  # Spark would pass on its text only
            errors.append(error)
            raise

    after = _start(live, address, on_trimmed=on_trimmed, new_epoch=new_epoch)
    options = _options(live, after, rows_max=rows_max, on_trimmed=on_trimmed)
    spark.dataSource.register(FairlaneDataSource)
    stream = spark.readStream.format("fairlane").options(**options).load()
    with active(spark):
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(remembered))
        query = writer.trigger(availableNow=True).start()
    _finish(query, errors)
    return reports[-1] if reports else None


def _check_classic() -> None:
    if is_remote():
        raise InvalidArgument(
            "A stream needs a Spark session in this process, and this one is of Spark Connect. "
            "Leave out --stream, or in Python call run_pipeline: the tables are the same."
        )


def _checkpoint(tables: TablesAddress) -> Path:
    if tables.scheme:
        raise InvalidArgument(
            f"Spark keeps the checkpoint of a stream in a folder, and the tables at {tables} are in an object store. "
            "Pass --checkpoint FOLDER."
        )
    return Path(tables.root) / CHECKPOINT


def _finish(query: StreamingQuery, errors: Sequence[FairlaneError]) -> None:
    """Wait for the end of a query. Raises an error of ours as it is, where Spark has its text only."""
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if errors:
            raise errors[0] from None
        raise
    finally:
        query.stop()


def _start(live: LiveJournal, tables: TablesAddress, *, on_trimmed: OnTrimmed, new_epoch: bool) -> int | None:
    """Return the position that a new checkpoint begins after: the end of the tables; None if they lack the journal.

    A journal that the tables refuse is refused here, because Spark would pass on no more than the text of the error.
    """
    offers = live.journals()
    before = read_manifest(tables) or Manifest()
    journals = accepted(before.journals, offers, new_epoch=new_epoch)
    if on_trimmed == "fail":
        check_gaps(before.gaps, before.with_journals(with_segments(journals, live.new(journals))).gaps)
    known = {each.journal_id: each.reached for each in before.journals}
    return known.get(offers[0].journal_id)


def _options(live: LiveJournal, start: int | None, *, rows_max: int, on_trimmed: OnTrimmed) -> dict[str, str]:
    """Return the options of the stream. The run of a batch decides whether its journal is accepted, not the source.

    So the checkpoint may be of an earlier epoch than the tables.
    """
    after = {} if start is None else {"after": str(start)}
    queue = {} if live.queue is None else {"queue": live.queue}
    how = {"kind": "journal", "rows_max": str(rows_max), "on_trimmed": on_trimmed, "new_epoch": "true"}
    return {**live.server.options(), **how, **after, **queue}


def _offset(checkpoint: Path, number: int) -> Offset:
    """Return the end of a batch: the last line of its file in Spark's offset log, as the source wrote it."""
    path = checkpoint / "offsets" / str(number)
    try:
        return msgspec.json.decode(path.read_text().strip().splitlines()[-1], type=Offset)
    except (OSError, IndexError, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"{path} is not an offset of a journal stream: {error}.") from error
