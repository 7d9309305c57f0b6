"""Sources of the pipeline: a folder of exported segments, or a live server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.journal.segments import Range, joined, segments_in, without
from fairlane.spark.source.data_source import FairlaneDataSource
from fairlane.spark.source.journal_server import ServerJournal
from fairlane.spark.source.server_address import ServerAddress
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events

READER = "pipeline"
"""The default name of the pipeline's journal reader."""


class Source(Protocol):
    """A journal."""

    def new(self, covered: Sequence[Range]) -> list[Segment]:
        """Return the segments with something that is not covered yet; no sequence is wanted twice."""
        ...

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the events of segments that are wanted, in the columns of the table ``events``."""
        ...

    def done(self, covered: Sequence[Range]) -> None:
        """Acknowledge that all of this is durable in the tables."""
        ...


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """A folder of exported segments, read natively. Files without newer columns are read side by side with others."""

    path: Path

    def new(self, covered: Sequence[Range]) -> list[Segment]:
        """Return the segments with something that is not covered."""
        return new_segments(self.path, covered)

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the wanted events of files."""
        whole = [segment for segment in segments if segment.is_whole]
        frames = [self._read(spark, whole)] if whole else []
        for segment in segments:
            if not segment.is_whole:
                wanted = F.lit(False)  # noqa: FBT003 - a literal
                for first, last in segment.wanted:
                    wanted |= F.col("sequence").between(first, last)
                frames.append(self._read(spark, [segment]).where(wanted))
        found = frames[0]
        for frame in frames[1:]:
            found = found.unionByName(frame)
        return found

    def _read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        return events(spark.read.schema(JOURNAL_SCHEMA).parquet(*[str(segment.path) for segment in segments]))

    def done(self, covered: Sequence[Range]) -> None:
        """Do nothing: the exporter decides how long files are kept."""


@dataclass(frozen=True, slots=True)
class LiveJournal:
    """The journal of a server, up to its present end. As a registered reader it is kept until it is in the tables.

    Attributes:
        server: the server, or nodes of a cluster.
        reader: the name of the reader.
        queue: in a cluster, a queue of the group whose journal is meant.
    """

    server: ServerAddress
    reader: str = READER
    queue: str | None = None

    def new(self, covered: Sequence[Range]) -> list[Segment]:
        """Return what the server has after all that is covered."""
        span = ServerJournal(self.server, on_trimmed="skip", queue=self.queue).span()
        after = max(covered[-1][1] if covered else 0, span.beginning)
        if not covered:
            self._set_reader(span.beginning)
        return [Segment(None, (after + 1, span.end), ((after + 1, span.end),))] if span.end > after else []

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the events of the one stretch that is new."""
        spark.dataSource.register(FairlaneDataSource)
        ((first, last),) = segments[0].wanted
        options = self.server.options() | ({} if self.queue is None else {"queue": self.queue})
        reader = spark.read.format("fairlane").options(
            kind="journal", after=str(first - 1), until=str(last), on_trimmed="skip"
        )
        return events(reader.options(**options).load())

    def done(self, covered: Sequence[Range]) -> None:
        """Allow the server to trim what is in the tables."""
        self._set_reader(covered[-1][1])

    def _set_reader(self, position: int) -> None:
        with self.server.client() as client:
            client.set_reader(self.reader, position, queue=self.queue)


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of the journal in one file or on a server, and the parts of it that are needed.

    Attributes:
        path: the file; None for a range on a server.
        covers: the range.
        wanted: the parts of it that nothing else covers.
    """

    path: Path | None
    covers: Range
    wanted: tuple[Range, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is needed."""
        return self.wanted == (self.covers,)


def new_segments(folder: Path, covered: Sequence[Range]) -> list[Segment]:
    """Return the segments in a folder that have something that is not covered; no sequence is wanted twice.

    Raises:
        InvalidArgument: the folder does not exist.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"Folder {folder} does not exist. Export the journal there first.")
    found: list[Segment] = []
    reached = tuple(covered)
    for covers, name in segments_in(path.name for path in folder.iterdir()):
        if wanted := tuple(without(covers, reached)):
            found.append(Segment(folder / name, covers, wanted))
            reached = joined([*reached, covers])
    return found
