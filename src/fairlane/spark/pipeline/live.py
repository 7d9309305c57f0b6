"""Live sources of the pipeline: the journal of a server, and those of all groups and partitions of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from fairlane.errors import InvalidArgument, JournalMismatch
from fairlane.journal.selection import Selection
from fairlane.model.partitions import Split, partition_name
from fairlane.spark.pipeline.journals import JournalCoverage, JournalOffer
from fairlane.spark.pipeline.source import Segment, Source
from fairlane.spark.source.data_source import FairlaneDataSource
from fairlane.spark.source.journal_server import ServerJournal
from fairlane.spark.source.ranges import ReadRange
from fairlane.spark.source.server_address import ServerAddress
from fairlane.spark.tables.events import events

READER = "pipeline"
"""The default name of the pipeline's journal reader."""
_TAIL: Final = 1_000
"""How many sequences before the last one in the tables are searched for an event."""


def live_source(server: ServerAddress, *, reader: str = READER, queue: str | None = None) -> Source:
    """Return the journal of a server, all journals of a cluster, or that of one queue's group in a cluster.

    Raises:
        Disconnected: the server does not answer.
    """
    if queue is not None:
        return LiveJournal(server, reader, queue)
    try:
        with server.client() as client:
            client.cluster()
    except InvalidArgument:  # it is a server on its own
        return LiveJournal(server, reader)
    return LiveCluster(server, reader)


@dataclass(frozen=True, slots=True)
class LiveJournal:
    """The journal of a server, up to its present end. As a registered reader it is kept until it is in the tables.

    Attributes:
        server: the server, or nodes of a cluster.
        reader: the name of the reader.
        queue: in a cluster, a queue of the group whose journal is meant.
        group: the name of that group, if it is known.
    """

    server: ServerAddress
    reader: str = READER
    queue: str | None = None
    group: str = ""

    def journals(self) -> list[JournalOffer]:
        """Return the journal of the server."""
        span = ServerJournal(self.server, on_trimmed="skip", queue=self.queue).span()
        return [
            JournalOffer(
                journal_id=span.journal_id,
                group=self.group or self.queue or "",
                first=span.first,
                since=span.since,
                end=span.end,
                where=f"at {self.server.server}",
            )
        ]

    def new(self, journals: Sequence[JournalCoverage]) -> list[Segment]:
        """Return what the server has after all that is covered; nothing if only readers moved on meanwhile.

        A run itself moves a reader, so otherwise each run would be the reason for the next.
        """
        journal = ServerJournal(self.server, on_trimmed="skip", queue=self.queue)
        span = journal.span()
        known = {each.journal_id: each for each in journals}.get(span.journal_id)
        if known is None:
            raise JournalMismatch(f"The server has just been replaced: its journal is {span.journal_id}.")
        _check_continued(journal, known)
        after = max(known.reached, span.beginning)
        self._hold(after)
        if span.end <= after or not journal.has_news(after, span.end):
            return []
        return [Segment(None, (after + 1, span.end), ((after + 1, span.end),), span.journal_id, self.queue)]

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the events of the one stretch that is new."""
        return read_stretches(spark, self.server, segments)

    def done(self, journals: Sequence[JournalCoverage]) -> None:
        """Allow the server to trim what is in the tables."""
        for journal in journals:
            if not journal.is_ended and journal.group == (self.group or self.queue or ""):
                self._hold(journal.reached)

    def _hold(self, position: int) -> None:
        """Register the reader, unless it is at this position already: each move of it is an event."""
        with self.server.client() as client:
            if all((each.name, each.position) != (self.reader, position) for each in client.readers(queue=self.queue)):
                client.set_reader(self.reader, position, queue=self.queue)


def _check_continued(journal: ServerJournal, known: JournalCoverage) -> None:
    """Raise JournalMismatch if the last event in the tables is another one in the journal now.

    That is what a restored backup looks like that has grown again, if it was not declared as restored. If the journal
    does not have these sequences any more, or none of them is an event, there is nothing to compare.
    """
    last = known.covered[-1] if known.covered else None
    if last is None or last.last_ms is None:
        return
    tail = ReadRange(after=max(last.last - _TAIL, 0), until=last.last, journal_id=known.journal_id)
    batches = list(journal.read(tail, Selection(columns=("sequence", "at_ms"))))
    if batches and (at_ms := batches[-1].column("at_ms")[-1].as_py()) != last.last_ms:
        raise JournalMismatch(
            f"Journal {known.journal_id} has another event at {last.last} than the tables: of {at_ms} ms, not "
            f"{last.last_ms} ms. Its store was restored from a backup; `fairlane store restored` gives it a new id."
        )


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """The journals of all groups and partitions of a cluster, each up to its present end.

    Groups that come into being are found by the next run. Each journal has a reader of the same name.

    Attributes:
        server: nodes of the cluster.
        reader: the name of the readers.
    """

    server: ServerAddress
    reader: str = READER

    def journals(self) -> list[JournalOffer]:
        """Return the journals of the groups there are now."""
        return [offer for group in self._groups() for offer in group.journals()]

    def new(self, journals: Sequence[JournalCoverage]) -> list[Segment]:
        """Return what the groups have after all that is covered."""
        known = {each.group for each in journals}
        return [segment for group in self._groups() if group.group in known for segment in group.new(journals)]

    def read(self, spark: SparkSession, segments: Sequence[Segment]) -> DataFrame:
        """Return the events of the stretches that are new."""
        return read_stretches(spark, self.server, segments)

    def done(self, journals: Sequence[JournalCoverage]) -> None:
        """Allow the groups to trim what is in the tables."""
        for group in self._groups():
            group.done(journals)

    def _groups(self) -> list[LiveJournal]:
        with self.server.client() as client:
            view = client.cluster()
        return [
            LiveJournal(self.server, self.reader, _named(group.queues[0], view.splits), group.name)
            for group in view.groups
            if group.queues
        ]


def _named(queue: str, splits: Mapping[str, Split]) -> str:
    """Return a queue's name as its own journal is asked for: the plain name of a split queue means all partitions."""
    return partition_name(queue, 0) if queue in splits else queue


def read_stretches(spark: SparkSession, server: ServerAddress, segments: Sequence[Segment]) -> DataFrame:
    """Return the events of stretches on a server or cluster, each read by tasks of its own."""
    spark.dataSource.register(FairlaneDataSource)
    return reduce(DataFrame.unionByName, [_stretch(spark, server, segment) for segment in segments])


def _stretch(spark: SparkSession, server: ServerAddress, segment: Segment) -> DataFrame:
    ((first, last),) = segment.wanted
    options = server.options() | ({} if segment.queue is None else {"queue": segment.queue})
    reader = spark.read.format("fairlane").options(
        kind="journal", after=str(first - 1), until=str(last), journal_id=segment.journal_id
    )
    return events(reader.options(**options).load())
