"""The journal as a source of Spark: an offset is a journal and a sequence, and what lies between two never changes.

So a batch that is read again has the same rows, whatever was killed meanwhile, and with a sink that takes a batch once
every event counts exactly once. A named reader tells the broker how far it is, so that the journal is kept for it and
its lag shows. It moves on when Spark says that a batch is done, and whenever Spark asks for what comes after one: Spark
says the former only once there is a next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fairlane.client import Client
from fairlane.errors import FairlaneError, InvalidArgument, JournalMismatch, JournalTrimmed
from fairlane.journal.schema import NAMES
from fairlane.journal.selection import Selection
from fairlane.spark.executors import Versions, check_versions, versions
from fairlane.spark.source.journal_files import JournalFiles
from fairlane.spark.source.journal_server import ServerJournal, check_journal
from fairlane.spark.source.message_columns import laid_out
from fairlane.spark.source.options import BEGINNING, END, JournalOptions
from fairlane.spark.source.pushdown import Wanted, pushed
from fairlane.spark.source.ranges import JournalBounds, ReadRange

SEQUENCE: Final = "sequence"
JOURNAL: Final = "journal_id"
Offset: TypeAlias = dict[str, Any]
"""A position of a stream: a sequence, and the journal that it is of."""
_FOR_EVER: Final = 2**63 - 1
_IDLE_S: Final = 0.1
"""A pause for an idle stream: without new events Spark asks forty times a second."""


@dataclass(frozen=True)
class JournalPartition(InputPartition):
    """What one task reads, and the versions it must run."""

    part: ReadRange
    selection: Selection
    driver: Versions


class _JournalReading:
    """The base of the batch and streaming readers."""

    def __init__(self, options: JournalOptions, layout: pa.Schema) -> None:
        self._options = options
        self._layout = layout
        self._journal = _journal_of(options)
        columns = {*layout.names, SEQUENCE}
        self._selection = Selection(
            kinds=options.kinds,
            queues=options.queues,
            message_ids=options.message_ids,
            since_ms=options.since_ms,
            until_ms=options.until_ms,
            columns=_in_order(columns),
        )

    def _planned(self, after: int, until: int, selection: Selection, *, journal_id: str | None) -> list[InputPartition]:
        span = self._journal.span(max(0, min(after, until)))
        check_journal(span.journal_id, journal_id, "This query")
        after = max(after, span.first)
        if after < span.beginning:
            if self._options.on_trimmed == "fail":
                raise JournalTrimmed(
                    f"The journal begins after position {span.beginning}, but the query reads from {after}. "
                    "The events in between are gone; set the option on_trimmed=skip to skip them."
                )
            after = span.beginning
        parts = self._journal.parts(after, until, least=self._options.partitions)
        return [JournalPartition(replace(part, journal_id=span.journal_id), selection, versions()) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a partition. Repeated calls, anywhere, give the same events."""
        if not isinstance(partition, JournalPartition):  # Spark's way to say that there are none
            return
        check_versions(partition.driver)
        for batch in self._journal.read(partition.part, partition.selection):
            yield laid_out(batch, self._layout)


class JournalReader(_JournalReading, DataSourceReader):
    """Reads a range of the journal once."""

    def __init__(self, options: JournalOptions, layout: pa.Schema) -> None:
        super().__init__(options, layout)
        if options.after == END:
            raise InvalidArgument(
                "A batch cannot start at the end of the journal. Use a stream, or another value of after."
            )
        self._wanted = Wanted(
            after=options.after if isinstance(options.after, int) else -1,
            until=_FOR_EVER if options.until is None else options.until,
            selection=self._selection,
        )

    def partitions(self) -> list[InputPartition]:
        """Return the range in parts; without ``after`` the whole journal."""
        span = self._journal.span()
        wanted = self._wanted
        after = max(wanted.after, span.beginning) if self._options.after in (None, BEGINNING) else wanted.after
        return self._planned(after, min(wanted.until, span.end), wanted.selection, journal_id=self._options.journal_id)


class FilteringJournalReader(JournalReader):
    """Reads a range of the journal once, with filters pushed down.

    For a frame that is used once only: Spark (seen in 4.3) keeps the filters of one use for the next uses of the frame,
    and for the other uses in the same query, which then lack rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Push down the filters that save work; return the others."""
        self._wanted, left = pushed(self._wanted, filters)
        return left


class JournalStreamReader(_JournalReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the journal."""

    def __init__(self, options: JournalOptions, layout: pa.Schema) -> None:
        super().__init__(options, layout)
        if options.until is not None:
            raise InvalidArgument("Option until applies to batches only; a stream has no end.")
        self._client: Client | None = None
        self._told = -1
        self._goal: int | None = None

    # ----------------------------------------------------------------------------------------------- what Spark calls

    def initialOffset(self) -> Offset:
        """Return the start of a new query: the option ``after``, the reader's position, or the beginning."""
        after = self._options.after
        span = self._journal.span()
        check_journal(span.journal_id, self._options.journal_id, "This query")
        if isinstance(after, int):
            return _offset(after, span)
        known = self._position_of_reader()
        if known is not None:
            return _offset(known, span)
        position = span.end if after == END else span.beginning
        self._tell(position)
        return _offset(position, span)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of one batch."""
        return ReadAllAvailable() if self._options.rows_max is None else ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Use the current end of the journal as the end of the stream."""
        self._goal = self._journal.span().end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch. Everything before ``start`` is done.

        Raises:
            JournalMismatch: the journal is not the one of ``start``, and no new epoch was declared.
        """
        span = self._journal.span(start[SEQUENCE])
        position = self._position_in(span, start)
        self._tell(position)
        end = self._next_end(position, limit, span)
        if end == position and self._goal is None:
            threading.Event().wait(_IDLE_S)
            span = self._journal.span(position)
            end = self._next_end(position, limit, span)
        return start if end == position else _offset(end, span)

    def reportLatestOffset(self) -> Offset:
        """Return the end of the journal."""
        span = self._journal.span()
        return _offset(span.end, span)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the events between two offsets in parts. A new epoch begins where the journal got its id."""
        if start == end:
            return []
        wanted, after = end[JOURNAL], start[SEQUENCE]
        if start.get(JOURNAL) and start[JOURNAL] != wanted:
            after = self._journal.since()
        return self._planned(after, end[SEQUENCE], self._selection, journal_id=wanted)

    def commit(self, end: Offset) -> None:
        """Move the journal reader forward."""
        self._tell(end[SEQUENCE])

    def stop(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(FairlaneError):
                client.close()

    # ------------------------------------------------------------------------------------------------------- positions

    def _position_in(self, span: JournalBounds, start: Offset) -> int:
        """Return where to read on in the journal that there is now."""
        position, known = int(start[SEQUENCE]), start.get(JOURNAL)
        if not known or not span.journal_id:  # a folder without files is of no journal
            return position
        if span.journal_id != known:
            if not self._options.new_epoch:
                check_journal(span.journal_id, known, "This query's checkpoint")
            return self._journal.since()
        if position > span.end and self._options.path is None:
            raise JournalMismatch(
                f"Journal {known} ends at {span.end}, but this query has read it up to {position}. "
                "Its store was restored from a backup."
            )
        return position

    def _next_end(self, position: int, limit: ReadLimit, span: JournalBounds) -> int:
        if self._goal is not None:
            span = span._replace(end=self._goal)
        end = max(position, span.end)
        if isinstance(limit, ReadMaxRows):
            end = min(end, max(position, span.beginning) + limit.max_rows)
        if end == position or not self._journal.has_news(max(position, span.beginning), end):
            return position
        return end

    def _position_of_reader(self) -> int | None:
        if self._options.reader is None:
            return None
        for reader in self._connected().readers(queue=self._options.queue):
            if reader.name == self._options.reader:
                return reader.position
        return None

    def _tell(self, position: int) -> None:
        """Register the journal reader, so that the broker keeps the journal from this position on."""
        if self._options.reader is None or position <= self._told:
            return
        known = self._position_of_reader()
        if known is None or known < position:
            self._connected().set_reader(self._options.reader, position, queue=self._options.queue)
        self._told = position

    def _connected(self) -> Client:
        """Return the driver's client, created on first use, since executors have a copy of this object."""
        if self._client is None:
            if self._options.place is None:
                raise InvalidArgument("Option reader needs the option server.")
            client = self._options.place.client()
            client.connect()
            self._client = client
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


def _journal_of(options: JournalOptions) -> ServerJournal | JournalFiles:
    if options.path is not None:
        return JournalFiles(options.path, on_trimmed=options.on_trimmed, journal_id=options.journal_id)
    if options.place is None:
        raise InvalidArgument("Set either the option server or the option path.")
    return ServerJournal(options.place, on_trimmed=options.on_trimmed, queue=options.queue)


def _in_order(columns: set[str]) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name in columns)


def _offset(position: int, span: JournalBounds) -> Offset:
    return {SEQUENCE: position, JOURNAL: span.journal_id}
