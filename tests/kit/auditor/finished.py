"""Enters how messages have ended into the books, with their results, and checks what callers are told of that."""

from __future__ import annotations

from typing import Any

from fairlane.core.finished import FinishedMessages
from fairlane.errors import FairlaneError, MessageNotFound
from fairlane.journal import records as r
from fairlane.model.status import ResultView, StatusView
from tests.kit.auditor.books import Books, Entry, FinishedNote, path_of, violated
from tests.kit.ids import numbered

SWEEP_MS = 1_000
"""How much longer than its time a message may be remembered."""
ENDINGS = {
    "acked": "done",
    "removed:deadline": "expired",
    "removed:dropped": "dropped",
    "removed:purged": "purged",
    "removed:queue": "purged",
    "removed:unstaged": "purged",
    "removed:cancelled": "cancelled",
}


class FinishedRecords:
    """Enters records about messages that are remembered after their end."""

    _books: Books
    _bodies: dict[int, bytes]

    def _remember(self, record: r.Acked | r.Removed, entries: list[Entry], fate: str, at_ms: int) -> None:
        """Check that a record remembers exactly the messages that it should, before they are taken out."""
        told = {image.number: image for image in record.finished or ()}
        for at, entry in enumerate(entries):
            expected = self._kept_until(entry, fate, at_ms)
            image = told.pop(entry.number, None)
            if (0 if image is None else image.until_ms) not in expected:
                violated(f"message {entry.number} that is {fate} is remembered as {image}, should be until {expected}")
            if image is not None:
                self._note(entry, image, fate, record.sequence + at, at_ms)
        if told:
            violated(f"{record} remembers messages that have not ended: {told}")

    def _kept_until(self, entry: Entry, fate: str, at_ms: int) -> tuple[int, ...]:
        """Return until when a message that ends may be remembered; 0 for not at all."""
        policy = self._books.queues[entry.queue].policy
        ttl_ms = policy.result_ttl_ms if entry.ttl_ms is None else entry.ttl_ms
        until_ms = at_ms + ttl_ms if ttl_ms else 0
        revoked_ms = entry.revoked_until_ms if entry.returned_at >= self._books.commit_first else 0
        if fate != "removed:cancelled" or revoked_ms <= at_ms:
            return (until_ms,)
        # Its consumer may have returned it a moment before, in the same commit.
        return (until_ms, max(until_ms, revoked_ms))

    def _note(self, entry: Entry, image: r.FinishedImage, fate: str, sequence: int, at_ms: int) -> None:
        result = self._bodies.get(sequence) if image.body else None
        expected = (
            *(entry.queue, entry.path, ENDINGS[fate], entry.enqueued_ms, at_ms, entry.attempts),
            *((sequence, len(result)) if result is not None else (0, 0)),
        )
        found = (
            *(image.queue, path_of(image.key), image.ending, image.enqueued_ms, image.finished_ms, image.attempts),
            *(image.body, image.size),
        )
        if found != expected:
            violated(f"message {entry.number} has ended as {found}, should be {expected}")
        note = FinishedNote(ENDINGS[fate], image.until_ms, image.body, result, image.note, sequence)
        self._books.finished[entry.number] = note

    def _results_swept(self, record: r.ResultsSwept, at_ms: int) -> None:
        if record.through_ms > at_ms:
            violated(f"at {at_ms} results are swept until {record.through_ms}, and there are not too many of them")
        gone = [number for number, note in self._books.finished.items() if note.until_ms <= record.through_ms]
        for number in gone:
            del self._books.finished[number]

    def _check_carried(self, images: list[r.FinishedImage]) -> None:
        for image in images:
            note = self._books.finished.get(image.number)
            if note is None or (note.ending, note.until_ms, note.body) != (image.ending, image.until_ms, image.body):
                violated(f"carried as {image}, is {note}")


def check_finished(finished: FinishedMessages, books: Books) -> None:
    """Check that the broker remembers what the books do."""
    found = {number: (one.ending, one.until_ms, one.body) for number, one in finished.known.items()}
    expected = {number: (note.ending, note.until_ms, note.body) for number, note in books.finished.items()}
    if found != expected:
        violated(f"the ledger remembers {found}, the books {expected}")
    if finished.size != sum(len(note.result or b"") for note in books.finished.values()):
        violated(f"the ledger counts {finished.size} bytes of results")


def check_swept(books: Books, now_ms: int) -> None:
    """Check that no message is remembered for much longer than it should be."""
    for number, note in books.finished.items():
        if note.until_ms + SWEEP_MS < now_ms:
            violated(f"at {now_ms} message {number} is still remembered: {note}")


def told_status(books: Books, message_id: str, outcome: Any, now_ms: int) -> None:
    """Check what a caller is told of a message: where it is, or how it ended."""
    number = numbered(message_id)
    entry = next((entry for entry in books.alive() if entry.number == number), None)
    if isinstance(outcome, MessageNotFound):
        if entry is not None and entry.line < books.commit_first:
            violated(f"message {number} was not found, and is {entry}")
        return
    if isinstance(outcome, FairlaneError):
        return
    stage, fate, note = outcome.status, books.fates.get(number), books.finished.get(number)
    if fate is not None:
        if stage != ENDINGS[fate]:
            violated(f"message {number} is said to be {stage}, and is {fate}")
    elif entry is not None and not _is_stage(entry, stage):
        violated(f"message {number} is said to be {stage}, and is {entry}")
    if (
        isinstance(outcome, ResultView)
        and note is not None
        and note.until_ms > now_ms
        and outcome.result != note.result
    ):
        violated(f"message {number} is said to have the result {outcome.result!r}, and has {note.result!r}")
    if isinstance(outcome, StatusView) and entry is not None and entry.token and outcome.since_ms != entry.leased_ms:
        violated(f"message {number} is said to run since {outcome.since_ms}, and is {entry}")


def _is_stage(entry: Entry, stage: str) -> bool:
    if entry.token:
        return stage == "running"
    if entry.origin is not None:
        return stage == "dead"
    return stage in (("failed",) if entry.failures else ("waiting", "delayed"))
