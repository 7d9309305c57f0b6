"""Enters sinks and staged messages into the books, and checks the answers to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from fairlane.errors import StageMismatch
from fairlane.journal import records as r
from fairlane.model.limits import SINK_SILENCE_MS_MAX
from fairlane.model.staging import PublishResult, StageResult
from tests.kit.auditor.books import Books, QueueBook, SinkBook, path_of, violated

Known: TypeAlias = tuple[SinkBook | None, int]


class SinkRecords:
    """Enters records about sinks."""

    _books: Books

    def _publish_held(self, record: r.Published, at_ms: int) -> None:
        raise NotImplementedError

    def _stage(self, record: r.Staged, at_ms: int) -> None:
        """Assign staged messages, which are in the books already, to their sink."""
        sink = self._books.queues[record.queue].sinks.setdefault(record.sink, SinkBook(record.sink))
        if sink.batch is not None and record.batch <= sink.batch:
            violated(f"staged for batch {record.batch} of {sink}, which is published")
        numbers = sink.parts.setdefault((record.batch, record.part), [])
        numbers.extend(range(record.sequence, record.sequence + record.count))
        sink.heard_ms = at_ms

    def _published(self, record: r.Published, at_ms: int) -> None:
        if record.sink:
            self._check_batch(record)
        else:
            self._publish_held(record, at_ms)
        book = self._books.queues[record.queue]
        rows = rows_of(record.terms)
        for at, number in enumerate(record.numbers):
            entry = book.staged.pop(number)
            waited_ms = at_ms - entry.enqueued_ms
            entry.due_ms = None if entry.due_ms is None else entry.due_ms + waited_ms
            entry.deadline_ms = None if entry.deadline_ms is None else entry.deadline_ms + waited_ms
            told = {name: getattr(entry, name) for name in TERM_NAMES}
            if rows[at] != told or record.sizes[at] != entry.size:
                violated(f"message {number} is published as {rows[at]}, and is {told}")
            entry.enqueued_ms, entry.line = at_ms, record.sequence + at
            entry.is_fresh = entry.due_ms is None
            self._books.add(entry)

    def _check_batch(self, record: r.Published) -> None:
        sink = self._books.queues[record.queue].sinks[record.sink]
        if sink.batch is not None and record.batch <= sink.batch:
            violated(f"batch {record.batch} of {sink} is published again")
        parts = [numbers for (batch, _), numbers in sink.parts.items() if batch == record.batch]
        if not _is_joined(record.numbers, parts):
            violated(f"published are {record.numbers}, which are no whole parts of batch {record.batch}: {parts}")

    def _sink_set(self, record: r.SinkSet, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        sink = book.sinks.setdefault(record.name, SinkBook(record.name))
        if sink.batch is not None and (record.batch is None or record.batch < sink.batch):
            violated(f"{sink} goes back to batch {record.batch}")
        left = [number for place, part in sink.parts.items() if place[0] <= record.through for number in part]
        if any(number in book.staged for number in left):
            violated(f"{sink} has published {record.batch}, and {left} are staged")
        sink.batch, sink.messages, sink.heard_ms = record.batch, record.messages, at_ms
        sink.parts = {place: part for place, part in sink.parts.items() if place[0] > record.through}

    def _sink_removed(self, record: r.SinkRemoved, _at_ms: int) -> None:
        book = self._books.queues[record.queue]
        sink = book.sinks.pop(record.name)
        self._books.sink_removed_at[record.queue, record.name] = record.sequence
        if any(number in book.staged for part in sink.parts.values() for number in part):
            violated(f"{sink} is gone, and something is staged for it")


def _is_joined(numbers: list[int], parts: list[list[int]]) -> bool:
    """Return whether the numbers are the concatenation of some of the parts."""
    by_first = {part[0]: part for part in parts}
    at = 0
    while at < len(numbers):
        part = by_first.pop(numbers[at], None)
        if part is None or numbers[at : at + len(part)] != part:
            return False
        at += len(part)
    return True


TERM_NAMES = (
    "path",
    "weight",
    "cost",
    "priority",
    "throttles",
    "due_ms",
    "deadline_ms",
    "cap",
    "attempts_max",
    "visibility_ms",
    "ttl_ms",
    "order_key",
    "unique_key",
)


def rows_of(terms: r.Terms) -> list[dict[str, Any]]:
    """Return the terms of each message, with defaults filled in."""
    count = len(terms.keys)
    columns = (
        [path_of(key) for key in terms.keys],
        terms.weights or [0] * count,
        terms.costs or [1] * count,
        [1] * count if terms.priorities is None else terms.priorities,
        [()] * count if terms.throttles is None else [tuple(names) for names in terms.throttles],
        terms.due_ms or [None] * count,
        terms.deadlines_ms or [None] * count,
        terms.caps or [None] * count,
        terms.max_attempts or [None] * count,
        terms.visibilities_ms or [None] * count,
        terms.result_ttls_ms or [None] * count,
        terms.order_keys or [None] * count,
        terms.unique_keys or [None] * count,
    )
    return [dict(zip(TERM_NAMES, row, strict=True)) for row in zip(*columns, strict=True)]


# ------------------------------------------------------------------------------------------------------------- answers


def told_staged(books: Books, asked: tuple[str, str, int, str], count: int, outcome: Any) -> None:
    """Check the answer to a staging, called with queue, sink, batch and part: ``count`` are durable, or published."""
    queue, name, batch, part = asked
    book = books.queues.get(queue)
    sink = None if book is None else book.sinks.get(name)
    if not isinstance(outcome, StageResult) or book is None:
        return
    if outcome.count != count:
        violated(f"staging {asked} was answered {outcome}, not {count}")
    if sink is None or (sink.batch is not None and batch <= sink.batch):
        return  # published since, or dropped
    if len(sink.parts.get((batch, part), ())) < count and books.counts["SinkRemoved"] == 0:
        violated(f"staging {asked} was answered {outcome}, and is {sink}")


def told_published(books: Books, queue: str, asked: tuple[str, int], known: Known, outcome: Any) -> None:
    """Check the answer to a publication of a sink's batch.

    Args:
        books: the books, with everything that the cycle which answers has committed.
        queue: the sink's queue.
        asked: the sink and the batch.
        known: the sink when the driver asked, and the last batch it had published by then.
        outcome: the answer.
    """
    name, batch = asked
    book = books.queues.get(queue)
    sink = None if book is None else book.sinks.get(name)
    if sink is None or books.sink_removed_at.get((queue, name), 0) >= books.commit_first:
        return  # dropped, or dropped and created again by the commit that answers
    if isinstance(outcome, PublishResult):
        sink.answered = max(sink.answered, batch)
        is_wrong = sink.batch is None or sink.batch < batch or (sink.batch == batch and sink.messages != outcome.count)
        if is_wrong:
            violated(f"publishing {asked} was answered {outcome}, and the sink is {sink}")
    # ``sink.batch`` alone would be unfair: a later request of the same cycle may have set it. Answers come in order
    # of decision, so what was answered before, or known when the driver asked, was published before the refusal.
    # A sink that was dropped meanwhile and has come back has another book, and owes nothing to the batches before.
    elif isinstance(outcome, StageMismatch):
        before = known[1] if sink is known[0] else -1
        if batch <= max(before, sink.answered):
            violated(f"publishing {asked} was refused, and the sink is {sink}: {outcome!r}")


def known_of(book: QueueBook | None, name: str) -> Known:
    """Return a sink and its last batch that the journal shows as published, -1 for none."""
    sink = None if book is None else book.sinks.get(name)
    return sink, -1 if sink is None or sink.batch is None else sink.batch


def check_heard(books: Books, opened_ms: int, now_ms: int) -> None:
    """Check that nothing is staged for a sink that was silent for too long."""
    for book in books.queues.values():
        for sink in book.sinks.values():
            if sink.parts and max(sink.heard_ms, opened_ms) + SINK_SILENCE_MS_MAX <= now_ms:
                violated(f"at {now_ms} something is staged for {sink}")


def pictures_of_sinks(sinks: Iterable[Any]) -> list[tuple[object, ...]]:
    """Return a comparable picture of sinks, from the ledger or from a record."""
    return sorted((sink.name, sink.batch, sink.messages, sink.heard_ms, sorted(_parts(sink))) for sink in sinks)


def _parts(sink: Any) -> list[tuple[int, str, list[int]]]:
    if isinstance(sink, SinkBook):
        return [(batch, name, numbers) for (batch, name), numbers in sink.parts.items()]
    if isinstance(sink, r.SinkImage):
        runs = {(part.batch, part.name): part.runs for part in sink.parts}
        return [(*place, [n for at, many in found for n in range(at, at + many)]) for place, found in runs.items()]
    return [(batch, name, part.numbers()) for (batch, name), part in sink.parts.items()]
