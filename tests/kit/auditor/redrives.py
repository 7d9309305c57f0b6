"""Checks redrives: each dead letter that one was ordered for is moved exactly once, whatever crashes in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlane.journal import records as r
from tests.kit.auditor.books import Books, Entry, path_of, violated


@dataclass(slots=True)
class RedriveBook:
    """A redrive: which dead letters it may move, and which of these it must.

    Attributes:
        eligible: those that were in the queue when it was ordered and that its filter matches.
        due: of these, those that are still there and have been free all the time.
        homes: for each, the queue that it goes to.
        gone: queues that were missing at some time since.
    """

    order: r.RedriveStarted
    started_ms: int
    eligible: set[int]
    due: set[int]
    homes: dict[int, str]
    gone: set[str] = field(default_factory=set)
    moved: int = 0
    end: r.RedriveEnd | None = None


class RedriveRecords:
    """Enters records about redrives."""

    _books: Books

    def _redrive_started(self, record: r.RedriveStarted, at_ms: int) -> None:
        entries = self._books.queues[record.queue].entries.values()
        if record.target is not None and record.target not in self._books.queues:
            violated(f"redrive {record.sequence} is ordered to queue {record.target}, which does not exist")
        letters = (entry for entry in entries if entry.origin is not None or record.queue.endswith(".dlq"))
        meant = [entry for entry in letters if _matches(record, entry, at_ms)]
        homes = {entry.number: record.target or entry.origin or record.queue.removesuffix(".dlq") for entry in meant}
        due = {entry.number for entry in meant if not entry.token}
        gone = {home for home in homes.values() if home not in self._books.queues}
        self._books.redrives[record.sequence] = RedriveBook(record, at_ms, set(homes), due, homes, gone)

    def _note_redriven(self, record: r.Redriven) -> None:
        """Check that a redrive runs, and moves only what it was ordered for."""
        book = None if record.redrive is None else self._books.redrives.get(record.redrive)
        if book is None or book.end is not None or book.order.queue != record.queue:
            violated(f"{record} is not a move of a redrive that runs: {book}")
        for number in record.numbers:
            if number not in book.eligible or book.homes[number] != record.target:
                violated(f"redrive {record.redrive} moves message {number} to {record.target}: {book.order}")
            book.eligible.discard(number)
        book.moved += len(record.numbers)
        if book.order.most is not None and book.moved > book.order.most:
            violated(f"redrive {record.redrive} has moved {book.moved} of at most {book.order.most}")
        self._excuse(record.queue, record.numbers)

    def _excuse(self, queue: str, numbers: list[int]) -> None:
        """Note that messages left a queue, or were leased there: no redrive has to move them any more."""
        for book in self._books.redrives.values():
            if book.end is None and book.order.queue == queue:
                book.due.difference_update(numbers)

    def _note_gone(self, queue: str) -> None:
        """Check that no redrive from or to a deleted queue runs."""
        for number, book in self._books.redrives.items():
            if book.end is None and queue in (book.order.queue, book.order.target):
                violated(f"queue {queue} is deleted, and redrive {number} runs")
            book.gone.add(queue)

    def _redrive_ended(self, record: r.RedriveEnded, at_ms: int) -> None:
        book = self._books.redrives.get(record.number)
        if book is None or book.end is not None or record.end.ended_ms != at_ms:
            violated(f"{record} ends no redrive that runs: {book}")
        book.end = record.end
        present = self._books.queues[record.queue].entries
        left = [number for number in book.due if number in present and book.homes[number] not in book.gone]
        is_full = book.order.most is not None and book.moved >= book.order.most
        # A dead letter counts towards the most to move when it is found; it may be leased before it moves.
        was_found = book.order.most is not None and record.end.matched >= book.order.most
        if record.end.status == "done" and left and not is_full and not was_found:
            violated(f"redrive {record.number} is done, and {left} have not moved")


def check_redrives(books: Books, images: Iterable[r.RedriveImage]) -> None:
    """Check what a baseline or the broker's memory has of redrives: all that run, and the last that ended."""
    said = {image.order.sequence: (image.started_ms, image.moved, image.end) for image in images}
    known = {number: (book.started_ms, book.moved, book.end) for number, book in books.redrives.items()}
    ended = [number for number, book in books.redrives.items() if book.end is not None]
    if said != {number: known[number] for number in known if number not in ended[:-100]}:
        violated(f"redrives are {said}; true is {known}")


def _matches(record: r.RedriveStarted, entry: Entry, at_ms: int) -> bool:
    wanted, age_ms = record.wanted, at_ms - (entry.dead_ms or entry.enqueued_ms)
    return (
        (wanted.fairness_key is None or path_of(wanted.fairness_key) == entry.path)
        and (wanted.error is None or any(wanted.error in error for *_, error in entry.errors))
        and (wanted.reason is None or entry.dead_reason == wanted.reason)
        and (wanted.origin is None or wanted.origin == (entry.origin or record.queue.removesuffix(".dlq")))
        and (wanted.older_than_ms is None or age_ms >= wanted.older_than_ms)
        and (wanted.newer_than_ms is None or age_ms <= wanted.newer_than_ms)
    )
