"""Which new messages are accepted, and on which terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from fairlane.core.checks import are_bare, are_plainly_sound, message_fault
from fairlane.core.commands import Given
from fairlane.core.decide.numbers import numbered, repeated
from fairlane.core.decide.repeats import known_messages, repeating
from fairlane.core.decide.room import QueueRoom, fits
from fairlane.core.decide.uploads import upload_refusals, uploads_of
from fairlane.core.decision import Deciders, Decision, no_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.producer import forbidden
from fairlane.core.terms import resolve, take_rows
from fairlane.errors import FairlaneError, FullError, InvalidArgument
from fairlane.journal.bodies import chunk_starts, encode_head, pack, pack_plain
from fairlane.journal.records import Enqueued, Terms
from fairlane.model.bounds import excess
from fairlane.model.ids import MessageIds
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import NewMessage
from fairlane.verbs.columns import EnqueuedIds, MessageColumns, Payloads
from fairlane.verbs.messages import Enqueue, EnqueueResult

Outcome = list[EnqueueResult | FairlaneError]
Partial = list[EnqueueResult | int | FairlaneError | None]
"""For each message a result or an error, the row of the message that it repeats, or None while it is undecided."""


def enqueue(
    ledger: Ledger,
    request: Enqueue,
    now_ms: int,
    given: Given,
    *,
    sequence: int | None = None,
    cause: int | None = None,
    leaving: Sequence[Message] = (),
    coming: Sequence[Enqueued] = (),
) -> Decision[Outcome]:
    """Take in each message that is valid, not known already and within the limits. The outcome has one result each.

    An enqueue that is part of a forward says which sequence its record will have, what caused it, which messages have
    left before it and which have come.
    """
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return refuse(no_queue(request.queue))
    messages: Sequence[NewMessage] = request.messages
    if len(messages) > BATCH_MAX:
        return refuse(InvalidArgument(excess("messages", "BATCH_MAX")))
    is_bare = are_bare(messages)
    is_plain = is_bare and given.faults is None and are_plainly_sound(messages, ledger.limits.payload_bytes_max)
    outcome, rows, terms = _taken(
        ledger, queue, request, given, now_ms, is_bare=is_bare, is_plain=is_plain, leaving=leaving
    )
    if len(rows) < len(messages):
        messages = [messages[row] for row in rows]
    uploads = None if is_bare else uploads_of(queue, messages)
    if uploads is not None:
        refused = upload_refusals(queue, messages, given)
        if refused:
            messages = [message for at, message in enumerate(messages) if at not in refused]
            rows, terms = _left(outcome, rows, terms, refused)
    if coming or uploads is not None or ledger.may_be_full(queue, len(messages)):
        kept = _within_limits(QueueRoom(ledger, queue, leaving=leaving, coming=coming), messages, terms, outcome, rows)
        if len(kept) < len(rows):
            rows, messages = [rows[at] for at in kept], [messages[at] for at in kept]
            terms = take_rows(terms, kept)
    first = ledger.next_sequence if sequence is None else sequence
    taken = _with_ids(outcome, rows, messages, queue.ids, first)
    if not rows:
        return Decision([], taken)
    sizes, starts, bodies, heads = packed(messages, first, is_plain=is_plain)
    record = Enqueued(first, queue.name, sizes, starts, terms, heads=heads)
    if uploads is not None:
        _take_uploads(record, queue, messages)
    _add_ids(record, queue, messages, now_ms, is_plain=is_plain)
    if request.producer is not None and queue.policy.dedup_window_ms:
        record.numbered = numbered(request, request.producer, given, rows)
        record.dedup_until_ms = now_ms + queue.policy.dedup_window_ms
    record.cause = cause
    return Decision([record], taken, bodies)


def _taken(
    ledger: Ledger,
    queue: Queue,
    request: Enqueue,
    given: Given,
    now_ms: int,
    *,
    is_bare: bool = False,
    is_plain: bool = False,
    leaving: Sequence[Message] = (),
) -> tuple[Partial, list[int], Terms]:
    """Return the outcome so far, the rows of the messages that only limits can still refuse, and the terms of those.

    The terms come before rights, dedup ids and unique keys: the key that a message gets decides what its producer may
    do, and whose id and unique key it has.
    """
    messages: Sequence[NewMessage] = request.messages
    outcome: Partial = [None] * len(messages) if is_plain else _faults(ledger, messages, given)
    before = {} if request.producer is None else repeated(ledger, request, request.producer, given, now_ms)
    for row, result in before.items():
        outcome[row] = result
    rows, answers = list(range(len(messages))), given.answers
    if (before or not is_plain) and outcome.count(None) < len(outcome):
        rows = [row for row in rows if outcome[row] is None]
        messages = [messages[row] for row in rows]
        answers = None if answers is None else [answers[row] for row in rows]
    terms = resolve(queue, messages, answers, now_ms, is_bare=is_bare)
    if given.producer is not None or not queue.policy.producer_weights:
        refused = forbidden(queue, messages, terms.keys, given.producer)
        if refused:
            messages = [message for at, message in enumerate(messages) if at not in refused]
            rows, terms = _left(outcome, rows, terms, refused)
    if type(messages) is MessageColumns or (
        is_bare and [message.dedup_id for message in messages].count(None) == len(messages)
    ):
        return outcome, rows, terms  # nothing by which one of them could repeat another
    known = known_messages(queue, messages, terms.keys, rows, now_ms, leaving)
    return outcome, *(_left(outcome, rows, terms, known) if known else (rows, terms))


def _faults(ledger: Ledger, messages: Sequence[NewMessage], given: Given) -> Partial:
    if given.faults is not None:
        return list(given.faults)
    return [message_fault(message, ledger.limits.payload_bytes_max) for message in messages]


def _left(
    outcome: Partial, rows: Sequence[int], terms: Terms, settled: Mapping[int, EnqueueResult | int | FairlaneError]
) -> tuple[list[int], Terms]:
    """Put what is settled into the outcome, and return the rows and terms that are left."""
    for at, result in settled.items():
        outcome[rows[at]] = result
    kept = [at for at in range(len(rows)) if at not in settled]
    return [rows[at] for at in kept], take_rows(terms, kept)


def _with_ids(
    outcome: Partial, rows: Sequence[int], messages: Sequence[NewMessage], known: MessageIds, first: int
) -> Outcome:
    """Return the outcome with the ids of the messages that are taken in, numbered from the first on.

    Messages that came as columns, all of which are taken in, have their ids as columns too.
    """
    numbers = range(first, first + len(rows))
    if type(messages) is MessageColumns and len(rows) == len(outcome):
        journal = known.journal_of(numbers)
        if journal is not None:
            return cast("Outcome", EnqueuedIds(journal, first, len(rows)))
    results = [
        EnqueueResult(id=own, correlation_id=message.correlation_id or own)
        for own, message in zip(known.ids_of(numbers), messages, strict=True)
    ]
    if len(rows) == len(outcome):
        return [*results]
    for row, result in zip(rows, results, strict=True):
        outcome[row] = result
    return [repeating(outcome[result]) if isinstance(result, int) else result for result in outcome]  # type: ignore[misc, arg-type] # all are filled in


class Packed(NamedTuple):
    """The bodies of new messages.

    Attributes:
        sizes: those of their payloads.
        starts: with which of them each chunk begins.
        chunks: the chunks, by number.
        heads: the largest head in each chunk; None if no message has one.
    """

    sizes: list[int]
    starts: list[int]
    chunks: list[tuple[int, bytes]]
    heads: list[int] | None = None


def packed(messages: Sequence[NewMessage], sequence: int, *, is_plain: bool = False) -> Packed:
    """Pack the bodies of new messages. Plain messages have neither headers nor correlation ids."""
    if is_plain and type(messages) is MessageColumns:
        return _packed_columns(messages.payloads, sequence)
    if is_plain and len(messages) == 1:
        payload = messages[0].payload
        return Packed([len(payload)], [0], [(sequence, pack_plain((len(payload),), payload))])
    payloads = [message.payload for message in messages]
    sizes = [len(payload) for payload in payloads]
    if is_plain:
        heads = [b""] * len(messages)
        starts = chunk_starts(sizes)
    else:
        heads = [
            encode_head(message.headers, message.correlation_id) if message.headers or message.correlation_id else b""
            for message in messages
        ]
        starts = chunk_starts([size + len(head) for size, head in zip(sizes, heads, strict=True)])
    ends = [*starts[1:], len(sizes)]
    bodies = [
        (sequence + start, pack(heads[start:end], payloads[start:end])) for start, end in zip(starts, ends, strict=True)
    ]
    if not any(heads):
        return Packed(sizes, starts, bodies)
    largest = [max(map(len, heads[start:end])) for start, end in zip(starts, ends, strict=True)]
    return Packed(sizes, starts, bodies, largest)


def _packed_columns(payloads: Payloads, sequence: int) -> Packed:
    """Return the same for messages whose payloads lie one after the other already."""
    sizes, begins, blob = list(payloads.sizes), payloads.begins(), payloads.blob
    starts = chunk_starts(sizes)
    bodies = []
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        bodies.append((sequence + start, pack_plain(sizes[start:end], blob[begins[start] : begins[end]])))
    return Packed(sizes, starts, bodies)


def _take_uploads(record: Enqueued, queue: Queue, messages: Sequence[NewMessage]) -> None:
    """Record which uploads have the payloads of messages, and how large they are."""
    taken = uploads_of(queue, messages)
    if taken is not None:
        record.uploads = [None if upload is None else upload.number for upload in taken]
        record.sizes = [
            size if upload is None else upload.size for size, upload in zip(record.sizes, taken, strict=True)
        ]


def _add_ids(record: Enqueued, queue: Queue, messages: Sequence[NewMessage], now_ms: int, *, is_plain: bool) -> None:
    if type(messages) is MessageColumns:
        return
    dedup_ids = [message.dedup_id for message in messages]
    if dedup_ids.count(None) < len(dedup_ids):
        record.dedup_ids = dedup_ids
        record.dedup_until_ms = now_ms + queue.policy.dedup_window_ms
    if is_plain:
        return
    correlation_ids = [message.correlation_id for message in messages]
    if correlation_ids.count(None) < len(correlation_ids):
        record.correlation_ids = correlation_ids


# ------------------------------------------------------------------------------------------------------------- room


def terms_if_room_helps(ledger: Ledger, queue: Queue, request: Enqueue, given: Given, now_ms: int) -> Terms | None:
    """Return the terms of a request's single message if only limits keep it out; None if room would change nothing.

    So it is if the message is not valid, not allowed, known already, or too large for the limits on its own.
    """
    _, rows, terms = _taken(ledger, queue, request, given, now_ms)
    size = size_of(queue, request.messages[0]) if rows else 0
    mosts = (queue.policy.waiting_bytes_max, queue.policy.key_waiting_bytes_max, ledger.limits.waiting_bytes_max)
    return terms if rows and all(fits(size, most) for most in mosts) else None


def outcome_behind(
    ledger: Ledger, request: Enqueue, given: Given, now_ms: int, *, ahead: FullError
) -> list[EnqueueResult | FairlaneError]:
    """Return the outcome of an enqueue that takes nothing in, because ``ahead`` keeps out an earlier one.

    What capacity can't help has its result. Each other message has a refusal of its own, with its key and cost.
    """
    queue = ledger.queues[request.queue]
    outcome, rows, terms = _taken(ledger, queue, request, given, now_ms)
    room = QueueRoom(ledger, queue)
    refused = refusals(room, [request.messages[row] for row in rows], terms)
    for at, row in enumerate(rows):
        outcome[row] = refusal = refused.get(at) or room.refusal_behind(ahead)
        if isinstance(refusal, FullError):
            refusal.key, refusal.cost = terms.keys[at], 1 if terms.costs is None else terms.costs[at]
    return [outcome[result] if isinstance(result, int) else result for result in outcome]  # type: ignore[misc] # all are filled in


def size_of(queue: Queue, message: NewMessage) -> int:
    """Return the size of the payload of a new message, which may have been uploaded."""
    if message.upload is None:
        return len(message.payload)
    number = queue.ids.number_of(message.upload)
    upload = None if number is None else queue.uploads.get(number)
    return 0 if upload is None else upload.size


def refusals(room: QueueRoom, messages: Sequence[NewMessage], terms: Terms) -> dict[int, FairlaneError]:
    """Return the messages there is no room for, each with why: not now, or never."""
    sizes = [size_of(room.queue, message) for message in messages]
    if room.has_for(len(messages), sum(sizes)):
        return {}
    # The broker has the bytes of an upload already; only the queue and the key get them now.
    held = [0 if message.upload is None else size for message, size in zip(messages, sizes, strict=True)]
    costs = terms.costs or [1] * len(messages)
    refused: dict[int, FairlaneError] = {}
    refusal: FairlaneError | None = None
    before = None
    for at, asked in enumerate(zip(terms.keys, sizes, held, costs, strict=True)):
        if refusal is None or asked != before:  # a refusal takes no room, so one like it is refused likewise
            key, size, own, cost = before = asked
            refusal = room.too_large(size) or room.take(key, size, held=own)
        if refusal is not None:
            if isinstance(refusal, FullError):
                refusal.cost = cost
            refused[at] = refusal
    return refused


def _within_limits(
    room: QueueRoom,
    messages: Sequence[NewMessage],
    terms: Terms,
    outcome: Partial,
    rows: Sequence[int],
) -> list[int]:
    """Return which messages are within the limits, and put a refusal into the outcome for each of the others.

    A message that repeats one of the same batch shares its refusal.
    """
    refused = refusals(room, messages, terms)
    for at, refusal in refused.items():
        outcome[rows[at]] = refusal
    if refused:
        for row, result in enumerate(outcome):
            if isinstance(result, int) and isinstance(outcome[result], FairlaneError):
                outcome[row] = outcome[result]
    return [at for at in range(len(rows)) if at not in refused]


DECIDERS: Final[Deciders] = {Enqueue: enqueue}
