"""Enters fan-outs into the books, and checks that each continuation comes once, and with the end of the last member."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fairlane.journal import records as r
from fairlane.verbs.fan_outs import FannedOutIds, FanOut
from tests.kit.auditor.books import Books, Entry, FanOutBook, QueueBook, named, violated
from tests.kit.auditor.terms import expected_terms
from tests.kit.ids import numbered

BEFORE = "fairlane-before"
"""The header by which a continuation names its members."""


class FanOutRecords:
    """Enters records about fan-outs."""

    _books: Books

    def _fanned_out(self, record: r.FannedOut, at_ms: int) -> None:
        books, members = self._books, {number for runs in record.members.values() for number in expanded(runs)}
        new = set(range(books.commit_first, record.sequence))
        if not members <= new or record.number not in books.queues[record.queue].staged:
            violated(f"{record} waits for messages that did not come with it")
        for queue, runs in record.members.items():
            if not books.queues[queue].entries.keys() >= set(expanded(runs)):
                violated(f"{record} waits for messages that are not in {queue}")
        told = books.births[record.number].message.headers.get(BEFORE, "[]")
        before = [(queue, [(numbered(first), count)]) for queue, first, count in json.loads(told)]
        if before != [(queue, runs) for queue, runs in record.members.items() if runs]:
            violated(f"the continuation of {record} names other members: {told}")
        name = books.queues[record.queue].staged[record.number].path[0], record.name  # a name is its tenant's alone
        for other in books.fan_outs.values():
            if (other.queue, other.name) == (record.queue, name) and other.counts_at(at_ms):
                violated(f"{record} repeats {other} at {at_ms}")
        books.fan_outs[record.number] = FanOutBook(
            record.queue, name, record.number, members, record.runs_anyway, record.window_ms
        )

    def _take_places(self, record: r.Enqueued) -> None:
        """Put what a member has forwarded in its place."""
        for fan_out in self._books.fan_outs.values():
            if record.cause in fan_out.acked:
                fan_out.open.update(range(record.sequence, record.sequence + record.count))

    def _publish_held(self, record: r.Published, at_ms: int) -> None:
        for number in record.numbers:
            fan_out = self._books.fan_outs[number]
            if fan_out.ended_ms is not None:
                violated(f"the continuation of {fan_out} is published again, at {at_ms}")
            fan_out.ended_ms, fan_out.ended_at = at_ms, record.sequence

    def _check_fan_outs(self) -> None:
        """Check, at the end of a commit, what has become of the continuations whose members have ended."""
        books = self._books
        for fan_out in books.fan_outs.values():
            if fan_out.ended_ms is None and not fan_out.open:
                violated(f"all members of {fan_out} have ended, and its continuation still waits")
            if fan_out.ended_at < books.commit_first:
                continue
            fate = books.fates.get(fan_out.number)
            if fan_out.open and fate != "removed:cancelled":
                violated(f"the continuation of {fan_out} did not wait for its members: {fate}")
            entry = _find(books.queues.values(), fan_out.number)
            is_dead = entry is not None and entry.dead_reason == "members"
            if entry is not None and is_dead != (bool(fan_out.failed) and not fan_out.runs_anyway):
                violated(f"the continuation of {fan_out} is {entry}")


def _find(books: Iterable[QueueBook], number: int) -> Entry | None:
    return next((book.entries[number] for book in books if number in book.entries), None)


def expanded(runs: r.Runs) -> list[int]:
    """Return the numbers of runs."""
    return [number for first, count in runs for number in range(first, first + count)]


def check_fan_outs(books: Books, images: Iterable[r.FanOutImage], now_ms: int) -> None:
    """Check that these are the fan-outs that are open or whose names are known, and that they are as in the books."""
    told = {image.order.number: image for image in images}
    for number, image in told.items():
        book = books.fan_outs.get(number)
        opened = {member: queue for queue, runs in image.open.items() for member in expanded(runs)}
        if book is None or (set() if book.ended_ms is not None else book.open) != set(opened):
            violated(f"fan-out {image} should be {book}")
        if named(image.order.name) != book.name:
            violated(f"fan-out {image} is known as {image.order.name!r}, not as {book.name}")
        if book.ended_ms is None and (book.done, book.failed) != (image.done, image.failed):
            violated(f"fan-out {image} should be {book}")
        for member, queue in opened.items():
            if member not in books.queues[queue].entries:
                violated(f"member {member} of {image} is not in {queue}")
    missing = [book for number, book in books.fan_outs.items() if number not in told and book.counts_at(now_ms)]
    if missing:
        violated(f"fan-outs {missing} are not known")


def told_fanned_out(books: Books, request: FanOut, outcome: FannedOutIds, *, since: int) -> None:
    """Check the answer to a fan-out: the ids are those of durable messages, which are those that were sent.

    Under a name that is known already they are those of the tenant's earlier fan-out. ``since`` is the sequence at
    which the request was sent.
    """
    if outcome.is_repeat and numbered(outcome.id) in books.fan_outs:
        _check_name(books, request, books.fan_outs[numbered(outcome.id)], since)
        return
    if outcome.is_repeat and books.is_new(request.queue):
        return  # the same commit has deleted the queue, and with it what was known
    sent = [(queue, message) for queue, messages in request.messages.items() for message in messages]
    for message_id, (queue, message) in zip(
        [*outcome.ids, outcome.id], [*sent, (request.queue, request.then)], strict=True
    ):
        birth = books.births.get(numbered(message_id))
        if birth is None or (birth.queue, birth.message.payload) != (queue, message.payload):
            violated(f"{message.payload[:20]!r} of fan-out {request.name} was answered {message_id}, which is {birth}")


def _check_name(books: Books, request: FanOut, known: FanOutBook, since: int) -> None:
    """Check that a fan-out is known by this name, to the tenant of this continuation."""
    book = books.queues.get(request.queue)
    has_counted = known.counts_at(books.at_ms) or known.ended_at >= books.commit_first  # it ended after the answer
    if (known.queue, known.name[1]) != (request.queue, request.name) or not has_counted:
        violated(f"fan-out {request.name} of {request.queue} was answered with {known}")
    if book is None or max(book.set_at, book.made_at) >= since:
        return  # another policy may have told another tenant
    tenant = expected_terms(book.name, book.policy, request.then, books.at_ms)["path"][0]
    if tenant != known.name[0]:
        violated(f"fan-out {request.name} of {tenant} was answered with {known}")
