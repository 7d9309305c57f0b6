"""Sources of the pipeline: what they have in common, and a folder of exported segments. ``live`` has servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument, StoreCorrupt
from fairlane.journal.identity import identity_in
from fairlane.journal.segments import Range, SegmentFile, joined, segments_in, without
from fairlane.spark.pipeline.journals import JournalCoverage, JournalOffer
from fairlane.spark.source.ranges import first_of
from fairlane.spark.tables.events import JOURNAL_SCHEMA, events


class Source(Protocol):
    """One or more journals."""

    def journals(self) -> list[JournalOffer]:
        """Return the journals that can be read now."""
        ...

    def new(self, journals: Sequence[JournalCoverage]) -> list[Segment]:
        """Return the segments of journals with something that is not covered yet; no sequence is wanted twice."""
        ...

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the events of segments that are wanted, in the columns of the table ``events``.

        No task reads two journals, so that a file that is written from the frame has events of one.
        """
        ...

    def done(self, journals: Sequence[JournalCoverage]) -> None:
        """Acknowledge that what is covered is durable in the tables."""
        ...


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """A folder of exported segments, read natively. Files without newer columns are read side by side with others.

    Each folder in it is a group of a cluster, named after the folder, with segments of its own.
    """

    path: Path

    def journals(self) -> list[JournalOffer]:
        """Return the journals that the folder has segments of."""
        return [offer for group in self._groups() for offer in group.offers()]

    def _groups(self) -> list[_GroupFolder]:
        """Return the folder itself, and the folders in it that have segments."""
        if not self.path.is_dir():
            raise InvalidArgument(f"Folder {self.path} does not exist. Export the journal there first.")
        inner = sorted(path for path in self.path.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
        return [_GroupFolder(self.path, ""), *(_GroupFolder(path, path.name) for path in inner)]

    def new(self, journals: Sequence[JournalCoverage]) -> list[Segment]:
        """Return the segments with something that is not covered."""
        known = {each.journal_id: each for each in journals}
        return [segment for group in self._groups() for segment in new_segments(group.path, known)]

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the wanted events of files. Their journal is the one that the names of the files tell."""
        found: DataFrame | None = None
        for journal_id, of_journal in groupby(segments, key=attrgetter("journal_id")):
            for frame in self._frames(spark, list(of_journal)):
                told = frame.withColumn("journal_id", F.lit(journal_id))
                found = told if found is None else found.unionByName(told)
        if found is None:
            raise InvalidArgument("There are no segments to read.")
        return found

    def _frames(self, spark: SparkSession, segments: Sequence[Segment]) -> Iterator[DataFrame]:
        """Yield the events of one journal's files: those that are needed whole together, the others each on its own."""
        whole = [segment for segment in segments if segment.is_whole]
        if whole:
            yield self._read(spark, whole)
        for segment in segments:
            if not segment.is_whole:
                wanted = F.lit(False)  # noqa: FBT003 - a literal
                for first, last in segment.wanted:
                    wanted |= F.col("sequence").between(first, last)
                yield self._read(spark, [segment]).where(wanted)

    def _read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        paths = [str(segment.path.absolute()) for segment in segments if segment.path is not None]
        return events(spark.read.schema(JOURNAL_SCHEMA).parquet(*paths))  # Java may have begun in another folder

    def done(self, journals: Sequence[JournalCoverage]) -> None:
        """Do nothing: the exporter decides how long files are kept."""


@dataclass(frozen=True, slots=True)
class _GroupFolder:
    """A folder with the segments of one group."""

    path: Path
    group: str

    def offers(self) -> list[JournalOffer]:
        return [self._offer(found[0]) for found in _by_journal(self.path).values()]

    def _offer(self, first: SegmentFile) -> JournalOffer:
        began_ms, since = _beginning(self.path / first.name)
        return JournalOffer(
            journal_id=first.journal_id,
            group=self.group,
            first=first_of(first.covers[1]),
            since=since,
            began_ms=began_ms,
            where=f"in {self.path}",
        )


def _beginning(path: Path) -> tuple[int, int]:
    """Return when the first event of a segment happened, and from where on its journal has its id."""
    try:
        known = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreCorrupt(f"{path} is damaged or not a journal segment: {error}.") from error
    told = identity_in(known.metadata)
    at = known.schema.to_arrow_schema().get_field_index("at_ms")
    began_ms = known.row_group(0).column(at).statistics.min if known.num_row_groups and known.num_rows else 0
    return began_ms, 0 if told is None else told.since


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of a journal in one file or on a server, and the parts of it that are needed.

    Attributes:
        path: the file; None for a range on a server.
        covers: the range.
        wanted: the parts of it that nothing else covers.
        journal_id: the journal.
        queue: for a range in a cluster, a queue of the group whose journal it is.
    """

    path: Path | None
    covers: Range
    wanted: tuple[Range, ...]
    journal_id: str
    queue: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of it is needed."""
        return self.wanted == (self.covers,)


def new_segments(folder: Path, journals: Mapping[str, JournalCoverage]) -> list[Segment]:
    """Return the segments in a folder that have something that is not covered; no sequence is wanted twice.

    A journal that is not known appeared after the journals were looked at; the next run takes it.
    """
    found: list[Segment] = []
    for journal_id, files in _by_journal(folder).items():
        if (known := journals.get(journal_id)) is None:
            continue
        # What is up to its beginning is in the tables already, as a part of the epoch before it.
        reached = joined([*known.ranges, *([(0, known.after)] if known.after else [])])
        for file in files:
            if wanted := tuple(without(file.covers, reached)):
                found.append(Segment(folder / file.name, file.covers, wanted, journal_id))
                reached = joined([*reached, file.covers])
    return found


def _by_journal(folder: Path) -> dict[str, list[SegmentFile]]:
    """Return the segments in a folder by journal, each in order."""
    files = segments_in(path.name for path in folder.iterdir())
    return {journal_id: list(found) for journal_id, found in groupby(files, key=attrgetter("journal_id"))}
