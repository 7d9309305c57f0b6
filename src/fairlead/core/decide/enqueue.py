"""Which new messages are taken in, and on which terms."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.checks import are_bare, are_plainly_sound, message_fault
from fairlead.core.commands import Enqueue
from fairlead.core.decision import Decision, known_queue, refuse
from fairlead.core.ledger import Ledger, Message, Queue
from fairlead.core.terms import resolve, take_rows
from fairlead.errors import FairleadError, GlobalFull, InvalidArgument, KeyFull, QueueFull
from fairlead.journal.bodies import chunk_starts, encode_head, pack
from fairlead.journal.records import Enqueued, Terms
from fairlead.model.limits import BATCH_MAX
from fairlead.model.message import Key, NewMessage
from fairlead.model.names import id_of

Outcome = list[str | FairleadError]


def enqueue(ledger: Ledger, command: Enqueue, now_ms: int) -> Decision:
    """Take in each message that is sound, not known already and has room. The outcome has an id or error for each."""
    return enqueue_at(ledger, command, now_ms, sequence=ledger.next_sequence, cause=None)


def enqueue_at(
    ledger: Ledger,
    command: Enqueue,
    now_ms: int,
    *,
    sequence: int,
    cause: int | None,
    leaving: Sequence[Message] = (),
    coming: Sequence[Enqueued] = (),
) -> Decision:
    """Decide an enqueue whose record will have a certain sequence, after some messages have left and others come."""
    queue = known_queue(ledger, command.queue)
    if isinstance(queue, FairleadError):
        return refuse(queue)
    messages = command.messages
    if len(messages) > BATCH_MAX:
        return refuse(InvalidArgument(f"One request enqueues at most {BATCH_MAX} messages, not {len(messages)}."))
    is_bare = are_bare(messages)
    outcome, rows = _sound(ledger, queue, command, now_ms, is_bare=is_bare)
    answers = command.answers
    if len(rows) < len(messages):
        messages = [messages[row] for row in rows]
        answers = None if answers is None else [answers[row] for row in rows]
    terms = resolve(queue, messages, answers, now_ms, is_bare=is_bare)
    room = Room(ledger, queue, leaving=leaving, coming=coming)
    refusals = _refusals(room, messages, terms)
    if refusals:
        _note_refusals(outcome, rows, refusals)
        kept = [at for at in range(len(rows)) if at not in refusals]
        rows = [rows[at] for at in kept]
        messages = [messages[at] for at in kept]
        terms = take_rows(terms, kept)
    if not rows:
        return Decision([], _with_ids(outcome, rows, sequence))
    record, bodies = _record(queue, messages, terms, sequence)
    if not is_bare:
        _add_ids(record, queue, messages, now_ms)
    record.cause = cause
    return Decision([record], _with_ids(outcome, rows, sequence), bodies)


def _sound(
    ledger: Ledger, queue: Queue, command: Enqueue, now_ms: int, *, is_bare: bool
) -> tuple[list[str | int | FairleadError | None], list[int]]:
    """Return for each message a fault, the id of the one it repeats, the row of that one in this batch, or None."""
    messages = command.messages
    payload_bytes_max = ledger.limits.payload_bytes_max
    outcome: list[str | int | FairleadError | None]
    if command.faults is not None:
        outcome = list(command.faults)
    elif is_bare and are_plainly_sound(messages, payload_bytes_max):
        return [None] * len(messages), list(range(len(messages)))
    else:
        outcome = [message_fault(message, payload_bytes_max) for message in messages]
    dedups = queue.dedups
    first_rows: dict[str, int] = {}
    for row, message in enumerate(messages):
        dedup_id = message.dedup_id
        if dedup_id is not None and outcome[row] is None:
            known = dedups.get(dedup_id)
            if known is not None and known[1] > now_ms:
                outcome[row] = id_of(known[0])
            elif dedup_id in first_rows:
                outcome[row] = first_rows[dedup_id]
            else:
                first_rows[dedup_id] = row
    return outcome, [row for row, known in enumerate(outcome) if known is None]


def _with_ids(outcome: list[str | int | FairleadError | None], rows: Sequence[int], sequence: int) -> Outcome:
    """Return the outcome with the ids of the rows that are taken in."""
    if len(rows) == len(outcome):
        return [id_of(number) for number in range(sequence, sequence + len(rows))]
    for at, row in enumerate(rows):
        outcome[row] = id_of(sequence + at)
    return [outcome[result] if isinstance(result, int) else result for result in outcome]  # type: ignore[misc] # all are filled in


def _record(
    queue: Queue, messages: Sequence[NewMessage], terms: Terms, sequence: int
) -> tuple[Enqueued, list[tuple[int, bytes]]]:
    payloads = [message.payload for message in messages]
    sizes = [len(payload) for payload in payloads]
    heads = [encode_head(message.headers, message.correlation_id) for message in messages]
    starts = chunk_starts([size + len(head) for size, head in zip(sizes, heads, strict=True)])
    ends = [*starts[1:], len(sizes)]
    bodies = [
        (sequence + start, pack(heads[start:end], payloads[start:end])) for start, end in zip(starts, ends, strict=True)
    ]
    return Enqueued(sequence, queue.name, sizes, starts, terms), bodies


def _add_ids(record: Enqueued, queue: Queue, messages: Sequence[NewMessage], now_ms: int) -> None:
    if any(message.dedup_id is not None for message in messages):
        record.dedup_ids = [message.dedup_id for message in messages]
        record.dedup_until_ms = now_ms + queue.policy.dedup_window_ms
    if any(message.correlation_id is not None for message in messages):
        record.correlation_ids = [message.correlation_id for message in messages]


# ------------------------------------------------------------------------------------------------------------- room


def needs_room(ledger: Ledger, queue: Queue, command: Enqueue, now_ms: int) -> bool:
    """Tell whether a single message is sound, not known already, and not too large for the limits on its own."""
    _, rows = _sound(ledger, queue, command, now_ms, is_bare=False)
    size = len(command.messages[0].payload) if rows else 0
    mosts = (queue.policy.waiting_bytes_max, queue.policy.key_waiting_bytes_max, ledger.limits.waiting_bytes_max)
    return bool(rows) and all(_fits(size, most) for most in mosts)


def _refusals(room: Room, messages: Sequence[NewMessage], terms: Terms) -> dict[int, FairleadError]:
    """Return the messages there is no room for, each with why."""
    if room.has_for(len(messages), sum(len(message.payload) for message in messages)):
        return {}
    tried = (room.take(key, len(message.payload)) for key, message in zip(terms.keys, messages, strict=True))
    return {at: refusal for at, refusal in enumerate(tried) if refusal is not None}


def _note_refusals(
    outcome: list[str | int | FairleadError | None], rows: list[int], refusals: dict[int, FairleadError]
) -> None:
    """Note refusals in the outcome; a message that repeats one of the same batch shares its refusal."""
    for at, refusal in refusals.items():
        outcome[rows[at]] = refusal
    for row, result in enumerate(outcome):
        if isinstance(result, int) and isinstance(outcome[result], FairleadError):
            outcome[row] = outcome[result]


def _fits(count: int, most: int | None) -> bool:
    return most is None or count <= most


class Room:
    """How much room is left while one message after another of a batch takes some of it."""

    def __init__(
        self, ledger: Ledger, queue: Queue, *, leaving: Sequence[Message] = (), coming: Sequence[Enqueued] = ()
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._messages = sum(record.count for record in coming)
        self._size = sum(sum(record.sizes) for record in coming)
        self._in_queue = 0
        self._size_in_queue = 0
        self._keys: dict[Key, tuple[int, int]] = {}
        for message in leaving:
            self._messages -= 1
            self._size -= message.size
            if message.queue is queue:
                self._add(message.key, -1, -message.size)

    def has_for(self, count: int, size: int) -> bool:
        """Tell whether there certainly is room for so many messages and bytes, whatever their keys."""
        queue, policy, ledger, limits = self._queue, self._queue.policy, self._ledger, self._ledger.limits
        return (
            not queue.counts_keys
            and _fits(len(queue.messages) + self._in_queue + count, policy.waiting_max)
            and _fits(queue.size + self._size_in_queue + size, policy.waiting_bytes_max)
            and _fits(ledger.messages + self._messages + count, limits.waiting_max)
            and _fits(ledger.size + self._size + size, limits.waiting_bytes_max)
        )

    def take(self, key: Key, size: int) -> FairleadError | None:
        """Take room for one message, or return why there is none."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size) or self._global_refusal(size)
        if refusal is None:
            self._messages += 1
            self._size += size
            self._add(key, 1, size)
        return refusal

    def take_in_queue(self, key: Key, size: int) -> FairleadError | None:
        """Take room for one message that comes from another queue, or return why there is none."""
        refusal = self._key_refusal(key, size) or self._queue_refusal(size)
        if refusal is None:
            self._add(key, 1, size)
        return refusal

    def _add(self, key: Key, count: int, size: int) -> None:
        self._in_queue += count
        self._size_in_queue += size
        messages, total = self._keys.get(key, (0, 0))
        self._keys[key] = (messages + count, total + size)

    def _key_refusal(self, key: Key, size: int) -> FairleadError | None:
        policy, tallies = self._queue.policy, self._queue.tallies
        if tallies is None:
            return None
        tally = tallies.get(key)
        messages, total = self._keys.get(key, (0, 0))
        messages += 1 + (tally.messages if tally is not None else 0)
        total += size + (tally.size if tally is not None else 0)
        if not _fits(messages, policy.key_waiting_max):
            return KeyFull(f"Key {key!r:.100} of queue {self._queue.name!r} has key_waiting_max messages.")
        if not _fits(total, policy.key_waiting_bytes_max):
            return KeyFull(f"Key {key!r:.100} of queue {self._queue.name!r} has key_waiting_bytes_max bytes.")
        return None

    def _queue_refusal(self, size: int) -> FairleadError | None:
        queue, policy = self._queue, self._queue.policy
        if not _fits(len(queue.messages) + self._in_queue + 1, policy.waiting_max):
            return QueueFull(f"Queue {queue.name!r} has waiting_max messages, {policy.waiting_max}.")
        if not _fits(queue.size + self._size_in_queue + size, policy.waiting_bytes_max):
            return QueueFull(f"Queue {queue.name!r} has waiting_bytes_max bytes, {policy.waiting_bytes_max}.")
        return None

    def _global_refusal(self, size: int) -> FairleadError | None:
        ledger, limits = self._ledger, self._ledger.limits
        if not _fits(ledger.messages + self._messages + 1, limits.waiting_max):
            return GlobalFull(f"All queues together have waiting_max messages, {limits.waiting_max}.")
        if not _fits(ledger.size + self._size + size, limits.waiting_bytes_max):
            return GlobalFull(f"All queues together have waiting_bytes_max bytes, {limits.waiting_bytes_max}.")
        return None
