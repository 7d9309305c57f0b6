"""Events: the journal as a flat table with one row for each sequence number, for readers outside the broker.

A record describes many messages at once and leaves out defaults, which suits a log but not a table. Here each message
of a record becomes a row with defaults filled in, so that a row means the same whatever it was decided together with.
Columns that a kind does not use are null; ``journal/schema.py`` defines them.

``Carried`` and ``Baseline`` repeat earlier records for recovery, ``PiecesDeleted`` follows the store's progress, and
``Skipped`` only uses up numbers. They give no events, so the sequence numbers they take are missing in the table: a
missing number does not mean that something is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlane.journal import records
from fairlane.journal.codec import Page
from fairlane.journal.other_events import OF_OTHERS, json_text, path_of
from fairlane.journal.records import AnyRecord, FinishedImage, OfMessages, Picking, Terms
from fairlane.journal.schema import NAMES
from fairlane.model.ids import number_text
from fairlane.model.message import NEVER_MS, PRIORITY_NAMES
from fairlane.model.waits import HOLDS

NUMBERED = ("message_id", "cause_id")
"""The columns that ``Columns`` holds as numbers of messages; a table has their ids."""


class Columns:
    """Events as columns, filled page by page.

    Columns of a record are copied as a whole. A column that a record does not use costs nothing: it is padded with None
    only when it is next needed. Fairness keys are held as paths, messages as numbers.
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in NAMES}
        self.count = 0
        """The number of events."""

    def append(self, page: Page) -> None:
        """Add the events of a page."""
        columns, at_ms = self._columns, page.at_ms
        sequences, instants = columns["sequence"], columns["at_ms"]
        kinds, firsts = columns["kind"], columns["record"]
        for record in page.records:
            told = _TELLERS.get(type(record))
            if told is None:
                continue
            kind, tell = told
            first, count = record.sequence, record.count
            tell(self, record, count)
            if count == 1:
                sequences.append(first)
                kinds.append(kind)
                firsts.append(first)
            else:
                sequences += range(first, first + count)
                kinds += [kind] * count
                firsts += [first] * count
            self.count += count
        instants += [at_ms] * (self.count - len(instants))

    def put(self, name: str, values: Iterable[Any] | None) -> None:
        """Append the values of the current record's events to a column; None leaves the column out."""
        if values is None:
            return
        column = self._columns[name]
        if len(column) != self.count:
            column += [None] * (self.count - len(column))
        column += values

    def fill(self, name: str, value: object, count: int) -> None:
        """Append one value for all events of the current record to a column; None leaves the column out."""
        if value is None:
            return
        column = self._columns[name]
        if len(column) != self.count:
            column += [None] * (self.count - len(column))
        if count == 1:
            column.append(value)
        else:
            column += [value] * count

    def column(self, name: str) -> list[Any] | None:
        """Return a column with a value for each event; None for an empty column."""
        column = self._columns[name]
        if not column:
            return None
        column.extend([None] * (self.count - len(column)))
        return column


def rows(page: Page) -> list[dict[str, Any]]:
    """Return the events of a page as rows without nulls: unused columns are left out."""
    columns = Columns()
    columns.append(page)
    filled = [(name, _as_shown(name, column)) for name in NAMES if (column := columns.column(name)) is not None]
    names = [name for name, _ in filled]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*(column for _, column in filled), strict=True)
    ]


def _as_shown(name: str, column: list[Any]) -> list[Any]:
    if name in NUMBERED:
        return [None if number is None else number_text(number) for number in column]
    if name in ("fairness_key", "throttles"):
        return [None if texts is None else list(texts) for texts in column]
    return column


# ------------------------------------------------------------------------------------------------- about messages


def _put_new(columns: Columns, record: records.Enqueued | records.Staged, count: int) -> None:
    columns.fill("queue", record.queue, count)
    columns.put("message_id", range(record.sequence, record.sequence + count))
    columns.put("size_bytes", record.sizes)
    _put_terms(columns, record.terms, count)
    columns.put("correlation_id", record.correlation_ids)


def _enqueued(columns: Columns, record: records.Enqueued, count: int) -> None:
    _put_new(columns, record, count)
    columns.put("dedup_id", record.dedup_ids)
    columns.fill("cause_id", record.cause, count)


def _staged(columns: Columns, record: records.Staged, count: int) -> None:
    _put_new(columns, record, count)
    _put_batch(columns, record, count)
    columns.fill("value", record.part, count)


def _published(columns: Columns, record: records.Published, count: int) -> None:
    _put_messages(columns, record, count)
    columns.put("size_bytes", record.sizes)
    _put_terms(columns, record.terms, count)
    _put_batch(columns, record, count)


def _put_batch(columns: Columns, record: records.Staged | records.Published, count: int) -> None:
    if record.sink:  # a continuation of a fan-out belongs to no batch
        columns.fill("name", record.sink, count)
        columns.fill("position", record.batch, count)


def _put_terms(columns: Columns, terms: Terms, count: int) -> None:
    columns.put("fairness_key", map(path_of, terms.keys))
    columns.put("weight", _without_zeros(terms.weights))  # 0 in a record means that the message brought none
    _put_or_fill(columns, "cost", terms.costs, 1, count)
    names = None if terms.priorities is None else [PRIORITY_NAMES[priority] for priority in terms.priorities]
    _put_or_fill(columns, "priority", names, "normal", count)
    _put_or_fill(columns, "throttles", terms.throttles, (), count)
    told = (("due_ms", terms.due_ms), ("deadline_ms", terms.deadlines_ms), ("cap", terms.caps))
    for name, values in (*told, ("order_key", terms.order_keys), ("unique_key", terms.unique_keys)):
        columns.put(name, values)


def _without_zeros(values: list[Any] | None) -> list[Any] | None:
    """Return values with null for 0 and for an empty text: both mean that there is none."""
    return None if values is None else [value or None for value in values]


def _put_or_fill(columns: Columns, name: str, values: list[Any] | None, default: object, count: int) -> None:
    if values is not None:
        columns.put(name, values)
    else:
        columns.fill(name, default, count)


def _put_messages(columns: Columns, record: OfMessages, count: int) -> None:
    columns.fill("queue", record.queue, count)
    columns.put("message_id", record.numbers)


def _leased(columns: Columns, record: records.Leased, count: int) -> None:
    _put_messages(columns, record, count)
    columns.put("token", range(record.sequence, record.sequence + count))
    if record.ends_ms is not None:
        columns.put("expires_ms", record.ends_ms)
    elif record.expires_ms != NEVER_MS:
        columns.fill("expires_ms", record.expires_ms, count)
    columns.fill("owner", record.owner, count)
    picking = record.picking
    columns.fill("asked", count if picking is None else picking.asked, count)
    if picking is not None:
        _put_picking(columns, picking, count)
    columns.fill("claim", record.claim, count)


def _put_picking(columns: Columns, picking: Picking, count: int) -> None:
    for name in HOLDS:
        columns.put(name, _without_zeros(getattr(picking, name)))
    columns.put("is_single", [True] * count if picking.is_single else None)
    if picking.moves is not None:
        columns.put("value", [json_text(picking.moves), *[None] * (count - 1)])


def _extended(columns: Columns, record: records.Extended, count: int) -> None:
    _put_messages(columns, record, count)
    columns.fill("expires_ms", record.expires_ms, count)


def _acked(columns: Columns, record: records.Acked, count: int) -> None:
    _put_messages(columns, record, count)
    columns.put("cost", record.costs)
    if record.is_late:
        columns.fill("reason", "late", count)
    if record.finished is not None:
        _put_finished(columns, record, record.finished)


def _put_finished(columns: Columns, record: OfMessages, finished: list[FinishedImage]) -> None:
    """Put the sizes of results, and until when it is remembered how the messages have ended."""
    known = {image.number: image for image in finished}
    images = [known.get(number) for number in record.numbers]
    columns.put("expires_ms", [image and image.until_ms for image in images])
    columns.put("size_bytes", [image.size if image is not None and image.body else None for image in images])


def _returned(columns: Columns, record: records.Returned, count: int) -> None:
    _put_messages(columns, record, count)
    columns.fill("reason", record.reason, count)
    columns.put("due_ms", _without_zeros(record.due_ms))  # 0 in a record means immediately
    _put_failures(columns, record, count)


def _put_failures(columns: Columns, record: records.Returned | records.Dead, count: int) -> None:
    columns.put("error", _without_zeros(record.errors))
    columns.fill("value", None if record.detail is None else json_text(record.detail), count)


def _dead(columns: Columns, record: records.Dead, count: int) -> None:
    _put_messages(columns, record, count)
    columns.fill("reason", record.reason, count)
    columns.fill("target", record.dlq, count)
    columns.fill("ended", record.ended, count)
    _put_failures(columns, record, count)


def _removed(columns: Columns, record: records.Removed, count: int) -> None:
    _put_messages(columns, record, count)
    columns.fill("reason", record.reason, count)
    columns.fill("value", record.note, count)
    columns.fill("by", record.by, count)
    if record.finished is not None:
        _put_finished(columns, record, record.finished)


def _redriven(columns: Columns, record: records.Redriven, count: int) -> None:
    _put_messages(columns, record, count)
    columns.fill("target", record.target, count)
    _put_terms(columns, record.terms, count)
    columns.fill("by", record.by, count)
    columns.fill("position", record.redrive, count)


# -------------------------------------------------------------------------------------------------- about all else


def _refused(columns: Columns, record: records.RefusedMessages, count: int) -> None:
    columns.fill("queue", record.queue, count)
    columns.put("fairness_key", [None if key is None else path_of(key) for key in record.keys])
    columns.put("cost", record.costs)
    columns.fill("reason", record.code, count)
    columns.put("messages", record.messages)


_OF_MESSAGES: dict[type[AnyRecord], Callable[[Columns, Any, int], None]] = {
    records.Enqueued: _enqueued,
    records.Leased: _leased,
    records.Extended: _extended,
    records.Acked: _acked,
    records.Returned: _returned,
    records.Dead: _dead,
    records.Removed: _removed,
    records.Redriven: _redriven,
    records.Staged: _staged,
    records.Published: _published,
    records.RefusedMessages: _refused,
}
"""How records about messages become events: each writes its columns."""


def _teller(values_of: Callable[[Any], dict[str, object]]) -> Callable[[Columns, Any, int], None]:
    def tell(columns: Columns, record: AnyRecord, _count: int) -> None:
        for name, value in values_of(record).items():
            columns.fill(name, value, 1)

    return tell


_TELLERS: dict[type[AnyRecord], tuple[str, Callable[[Columns, Any, int], None]]] = {
    kind: (str(kind.__struct_config__.tag), tell)
    for kind, tell in (_OF_MESSAGES | {kind: _teller(values_of) for kind, values_of in OF_OTHERS.items()}).items()
}
KIND_OF = {record: kind for record, (kind, _) in _TELLERS.items()}
"""The kind of event that a record becomes."""
KINDS = tuple(KIND_OF.values())
"""The kinds of events."""
