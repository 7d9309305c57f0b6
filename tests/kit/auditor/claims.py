"""Enters registered consumers and their claims into the books, and checks the answers to them."""

from __future__ import annotations

from typing import Any

from fairlane.errors import ClaimNotFound, ConsumerFenced, ConsumerNotFound
from fairlane.journal import records as r
from fairlane.model.claims import Claim, Claimed
from fairlane.model.message import NEVER_MS
from tests.kit.auditor.books import Books, ClaimNote, ConsumerBook, QueueBook, violated
from tests.kit.ids import numbered


class ClaimRecords:
    """Enters records about registered consumers."""

    _books: Books

    def _consumer_set(self, record: r.ConsumerSet, at_ms: int) -> None:
        consumers = self._books.queues[record.queue].consumers
        consumer = consumers.setdefault(record.name, ConsumerBook(record.name))
        consumer.epoch, consumer.idle_ms, consumer.heard_ms = record.sequence, record.idle_ms, at_ms
        self._books.changed_at[record.queue, record.name] = record.sequence

    def _consumer_removed(self, record: r.ConsumerRemoved, _at_ms: int) -> None:
        if self._books.queues[record.queue].consumers.pop(record.name).claim is not None:
            violated(f"consumer {record.name} of {record.queue} is gone, with what it has claimed")
        self._books.changed_at[record.queue, record.name] = record.sequence

    def _enter_claim(self, record: r.Leased, number: int, at_ms: int) -> None:
        consumer = self._books.queues[record.queue].consumers.get(record.owner or "")
        if consumer is None or consumer.claim is not None or number != consumer.claimed + 1:
            violated(f"claim {number} in {record.queue} is made for {consumer}")
        if record.expires_ms != NEVER_MS:
            violated(f"claim {number} of {consumer.name} ends at {record.expires_ms}")
        consumer.claimed, consumer.heard_ms = number, at_ms
        consumer.claim = ClaimNote(number, record.sequence, list(record.numbers))
        self._books.claims[record.queue, consumer.name, number] = consumer.claim

    def _claims_ended(self, record: r.ClaimsEnded, at_ms: int) -> None:
        book = self._books.queues[record.queue]
        consumer = book.consumers[record.name]
        if consumer.claim is None or consumer.claim.number != record.through:
            violated(f"claims of {consumer} are ended through {record.through}")
        left = book.held_under(consumer.claim)
        if left:
            violated(f"claim {record.through} of {consumer.name} has ended, and {left} are leased under it")
        consumer.done, consumer.heard_ms, consumer.claim = record.through, at_ms, None


def told_claim(books: Books, asked: tuple[str, str, int, int], outcome: Any) -> None:
    """Check the answer to a claim, called with queue, consumer, epoch and the completed claim."""
    queue, name, epoch, done = asked
    book = books.queues.get(queue)
    consumer = None if book is None else book.consumers.get(name)
    is_settled = books.changed_at.get((queue, name), 0) < books.commit_first
    if isinstance(outcome, Claim):
        made = books.claims.get((queue, name, outcome.number))
        if outcome.count and (made is None or len(made.numbers) != outcome.count):
            violated(f"claim {asked} was answered {outcome}, and made was {made}")
        if not outcome.count and outcome.number != done:
            violated(f"claim {asked} was answered {outcome}")
        if consumer is not None and is_settled and consumer.claim is not None and consumer.claim.number <= done:
            violated(f"claim {asked} was answered {outcome}, and what is done is open: {consumer.claim}")
    elif (isinstance(outcome, ConsumerFenced) and is_settled and consumer is not None and consumer.epoch == epoch) or (
        isinstance(outcome, ConsumerNotFound) and is_settled and consumer is not None
    ):
        violated(f"claim {asked} was refused: {outcome!r}")


def told_claimed(book: QueueBook | None, asked: tuple[str, int, int, int], outcome: Any) -> None:
    """Check the messages read from a claim: exactly those that are still leased, in order."""
    name, number, start, count = asked
    consumer = None if book is None else book.consumers.get(name)
    claim = None if consumer is None else consumer.claim
    if isinstance(outcome, Claimed):
        if book is None or claim is None or claim.number != number:
            violated(f"claim {asked} was read, and is {claim}")
        got = [(numbered(one.id), one.token) for one in outcome.deliveries]
        expected = [(entry.number, entry.token) for entry in book.held_under(claim, start, start + count)]
        if (got, outcome.total) != (expected, len(claim.numbers)):
            violated(f"claim {asked} was read as {got}, and is {expected}")
    elif isinstance(outcome, ClaimNotFound) and claim is not None and claim.number == number:
        violated(f"claim {asked} was not found, and is {claim}")


def check_present(books: Books, heard: dict[tuple[str, str], int], opened_ms: int, now_ms: int) -> None:
    """Check that no claim is open whose consumer was silent for longer than its timeout."""
    for book in books.queues.values():
        for consumer in book.consumers.values():
            if consumer.claim is None or consumer.idle_ms is None:
                continue
            last_ms = max(consumer.heard_ms, heard.get((book.name, consumer.name), 0), opened_ms)
            if last_ms + consumer.idle_ms <= now_ms:
                violated(f"at {now_ms} {consumer} of {book.name} has its claim, and was last heard of at {last_ms}")


def picture_of_consumer(consumer: Any) -> tuple[object, ...]:
    """Return a comparable picture of a consumer, from a book or from a record."""
    claim = consumer.claim
    return (
        *(consumer.name, consumer.epoch, consumer.claimed, consumer.done, consumer.heard_ms, consumer.idle_ms),
        None if claim is None else (claim.number, claim.token, list(claim.numbers)),
    )
