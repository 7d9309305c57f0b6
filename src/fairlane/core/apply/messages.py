"""What records of messages change: enqueued, leased, given back, dead, gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from msgspec.structs import replace

from fairlane.core.apply.claims import enter_claim
from fairlane.core.apply.counting import enter_leased, known, leave_leased, numbered, tally_all, tally_in, tally_out
from fairlane.core.apply.dedups import enter_dedups, enter_numbers, enter_unique, forget_dedups, leave_unique
from fairlane.core.apply.fan_outs import settle_members, take_places
from fairlane.core.apply.finished import remember
from fairlane.core.apply.uploads import adopt
from fairlane.core.apply.workflow_state import drop_state
from fairlane.core.dead_letters import has_died
from fairlane.core.dedup_ids import DedupHome, remembered
from fairlane.core.ledger import PRIORITIES, Ledger, Message, Queue, TermsRow
from fairlane.core.rows.chunks import ChunkHome
from fairlane.core.states.aftermath import Aftermath
from fairlane.journal import records
from fairlane.model.limits import ERRORS_KEPT_MAX
from fairlane.model.message import FailedAttempt
from fairlane.model.names import is_dlq
from fairlane.scheduler.item import Priority

_NORMAL = Priority.NORMAL
_NO_THROTTLES: list[tuple[str, ...]] = [()]


def enqueued(ledger: Ledger, record: records.Enqueued, at_ms: int) -> list[Message]:
    """Add new messages to their queue. Returns none if they are rows, as plain messages are."""
    queue = ledger.queues[record.queue]
    homes = ledger.dedup_homes
    if homes and homes[0].until_ms <= at_ms:
        forget_dedups(ledger, at_ms)
    messages: list[Message] = []
    if ledger.keeps_rows(queue) and _are_plain(queue, record):
        _take_in_rows(ledger, queue, record, at_ms)
    else:
        messages = take_in(ledger, queue, record, at_ms, among=queue.messages.objects)
    size = sum(record.sizes)
    queue.size += size
    ledger.size += size
    ledger.messages += len(record.sizes)
    tally_all(queue, record.terms.keys, record.sizes)
    if record.dedup_ids is not None:
        names = remembered(record.terms.keys, record.dedup_ids)
        _remember(ledger, queue, names, record.dedup_until_ms, record.sequence)
    if record.numbered is not None:
        enter_numbers(ledger, record, record.numbered, at_ms)
    if record.cause is not None or record.uploads is not None or record.terms.unique_keys is not None:
        _note_rarities(ledger, queue, record, messages)
    return messages


def _note_rarities(ledger: Ledger, queue: Queue, record: records.Enqueued, messages: Sequence[Message]) -> None:
    """Note what few new messages have: a unique key, a place in a fan-out, an uploaded payload."""
    if record.terms.unique_keys is not None:
        for message in messages:
            enter_unique(message)
    if record.cause is not None:
        take_places(ledger, record)
    if record.uploads is not None:
        for message, upload in zip(messages, record.uploads, strict=True):
            if upload is not None:
                adopt(ledger, queue, message, upload)


def _are_plain(queue: Queue, record: records.Enqueued) -> bool:
    """Return whether new messages have nothing but a key and a payload, and no order to keep."""
    terms = record.terms
    columns = (
        *(terms.weights, terms.costs, terms.priorities, terms.throttles, terms.due_ms, terms.deadlines_ms),
        *(terms.caps, terms.max_attempts, terms.visibilities_ms, terms.result_ttls_ms, terms.order_keys),
        terms.unique_keys,
        record.uploads,
    )
    return columns.count(None) == len(columns) and not queue.is_strict and not is_dlq(queue.name)


def _take_in_rows(ledger: Ledger, queue: Queue, record: records.Enqueued, at_ms: int) -> None:
    """Make rows of the messages of a record, and the chunks that hold their bodies."""
    sizes, keys, known = record.sizes, record.terms.keys, record.correlation_ids
    home, heads = record.sequence, record.heads or repeat(0)
    if len(sizes) == 1 and known is None and record.heads is None:
        queue.messages.add_rows(home, sizes, keys, ledger.chunks.enter_single(queue.name, home), at_ms)
        return
    for start, end, head in zip(record.chunks, [*record.chunks[1:], len(sizes)], heads, strict=False):
        number = home + start
        chunk = ledger.chunks[number] = ChunkHome(
            queue.name, number, home, end - start, None if known is None else known[start:end], head
        )
        queue.messages.add_rows(number, sizes[start:end], keys[start:end], chunk, at_ms)


def take_in(
    ledger: Ledger, queue: Queue, record: records.Enqueued | records.Staged, at_ms: int, *, among: dict[int, Message]
) -> list[Message]:
    """Make the messages of a record, and the chunks that hold their bodies."""
    messages: list[Message] = []
    ends = [*record.chunks[1:], len(record.sizes)]
    rows = iter(rows_of(record.terms))
    home, heads = record.sequence, record.heads or repeat(0)
    known = record.correlation_ids
    number = home
    for start, end, head in zip(record.chunks, ends, heads, strict=False):
        if known is None and not head and len(record.sizes) == 1:
            chunk: ChunkHome = ledger.chunks.enter_single(queue.name, number)
        else:
            own = None if known is None else known[start:end]
            chunk = ledger.chunks[number] = ChunkHome(queue.name, number, home, end - start, own, head)
        for size, row in zip(record.sizes[start:end], rows, strict=False):
            message = among[number] = Message(number, queue, chunk, size, at_ms, row)
            messages.append(message)
            number += 1
    terms = record.terms
    rare = (terms.caps, terms.max_attempts, terms.visibilities_ms, terms.result_ttls_ms, terms.order_keys)
    if terms.unique_keys is not None or rare.count(None) < len(rare):
        _set_rare_terms(enumerate(messages), terms)
    return messages


def rows_of(terms: records.Terms) -> Iterable[TermsRow]:
    """Return the terms of each message."""
    n = len(terms.keys)
    keys = terms.keys
    if (
        terms.priorities is None
        and terms.throttles is None
        and terms.due_ms is None
        and terms.deadlines_ms is None
        and terms.weights is None
        and terms.costs is None
    ):
        return [(key, 0, 1, _NORMAL, (), None, None) for key in keys]
    nothing: list[int | None] = [None] * n
    return zip(
        keys,
        terms.weights or [0] * n,
        terms.costs or [1] * n,
        [_NORMAL] * n if terms.priorities is None else [PRIORITIES[priority] for priority in terms.priorities],
        _NO_THROTTLES * n if terms.throttles is None else [tuple(names) for names in terms.throttles],
        terms.due_ms or nothing,
        terms.deadlines_ms or nothing,
        strict=True,
    )


def _set_rare_terms(messages: Iterable[tuple[int, Message]], terms: records.Terms) -> None:
    """Set the terms that few messages have; each message comes with its row."""
    columns: tuple[tuple[str, Sequence[object] | None], ...] = (
        ("cap", terms.caps),
        ("max_attempts", terms.max_attempts),
        ("visibility_ms", terms.visibilities_ms),
        ("result_ttl_ms", terms.result_ttls_ms),
        ("order_key", terms.order_keys),
        ("unique_key", terms.unique_keys),
    )
    found = [(name, column) for name, column in columns if column is not None]
    if not found:
        return
    for row, message in messages:
        for name, column in found:
            if column[row] is not None:
                setattr(message.aftermath(), name, column[row])


def _remember(ledger: Ledger, queue: Queue, names: Sequence[str | None], until_ms: int, home: int) -> None:
    numbers = {name: home + at for at, name in enumerate(names) if name is not None}
    enter_dedups(ledger, queue, DedupHome(queue.name, numbers, until_ms, home))


# ---------------------------------------------------------------------------------------------------------- leases


def leased(ledger: Ledger, record: records.Leased, at_ms: int) -> list[Message]:
    """Lease messages."""
    known = ledger.queues[record.queue].messages
    get, promote = known.objects.get, known.promote  # a broker picks objects, recovery finds rows
    messages = [message for number in record.numbers if (message := get(number) or promote(number)) is not None]
    expires_ms, owner = record.expires_ms, record.owner
    is_whole = len(messages) == len(record.numbers)
    for token, message in enumerate(messages, record.sequence) if is_whole else numbered(record, messages):
        message.token = token
        message.expires_ms = expires_ms
        message.owner = owner
        message.leased_ms = at_ms
        message.attempts += 1
    if record.ends_ms is not None:
        ends_ms = dict(zip(record.numbers, record.ends_ms, strict=True))
        for message in messages:
            message.expires_ms = ends_ms[message.number]
    if messages:
        queue = messages[0].queue
        queue.leased += len(messages)
        if queue.leased_groups is not None:
            enter_leased(queue, messages)
    if record.claim is not None:
        enter_claim(ledger.queues[record.queue], record, record.claim, messages, at_ms)
    return messages


def extended(ledger: Ledger, record: records.Extended, _at_ms: int) -> list[Message]:
    """Set another end for leases."""
    messages = known(ledger, record)
    for message in messages:
        message.expires_ms = record.expires_ms
    return messages


def acked(ledger: Ledger, record: records.Acked, _at_ms: int) -> list[Message]:
    """Remove acknowledged messages."""
    if record.finished is not None:
        remember(ledger, record.finished, record.sequence)
    if ledger.fan_outs.members or ledger.fan_outs.left:
        settle_members(ledger, record, is_done=True)
    return take_out(ledger, record)


def returned(ledger: Ledger, record: records.Returned, at_ms: int) -> list[Message]:
    """Return leased messages to their queue."""
    messages = known(ledger, record)
    position = {number: at for at, number in enumerate(record.numbers)}
    is_strict = ledger.queues[record.queue].is_strict
    for message in messages:
        at = position[message.number]
        if record.reason != "defer":
            _note_attempt(message, record, record.reason, at, at_ms)
        due_ms = record.due_ms[at] if record.due_ms is not None else None
        _end_lease(message, is_lost=record.reason in records.LOST)
        message.since_ms = at_ms
        if not is_strict:
            message.joined = record.sequence + at
        message.set_times(due_ms=due_ms or None, deadline_ms=message.deadline_ms)
    return messages


def _note_attempt(message: Message, record: records.Returned | records.Dead, reason: str, at: int, at_ms: int) -> None:
    """Note an attempt that failed or was lost. The traceback of the one before goes: they take memory."""
    after = message.aftermath()
    if reason in records.LOST:
        after.expiries += 1
    else:
        message.failures += 1
    error = "" if record.errors is None else record.errors[at]
    attempt = FailedAttempt(at_ms, message.attempts, reason, error, record.detail)
    after.errors = (*map(_without_traceback, after.errors), attempt)[-ERRORS_KEPT_MAX:]


def _without_traceback(attempt: FailedAttempt) -> FailedAttempt:
    detail = attempt.detail
    if detail is None or not detail.traceback:
        return attempt
    return replace(attempt, detail=replace(detail, traceback=""))


def _end_lease(message: Message, *, is_lost: bool) -> None:
    if message.after is not None:
        message.after.late_token = message.token if is_lost else 0
    if message.token:
        if message.is_claimed:
            message.queue.claimed -= 1
        leave_leased(message.queue, [message])
        message.token = 0
        message.expires_ms = 0
        message.owner = None
        message.queue.leased -= 1


# ------------------------------------------------------------------------------------------- dead letters and removal


def dead(ledger: Ledger, record: records.Dead, at_ms: int) -> list[Message]:
    """Move messages to the dead-letter queue."""
    settle_members(ledger, record, is_done=False)
    messages = known(ledger, record)
    dlq = ledger.queues[record.dlq]
    position = {number: at for at, number in enumerate(record.numbers)}
    for message in messages:
        at = position[message.number]
        if record.ended is not None:
            _note_attempt(message, record, record.ended, at, at_ms)
        _end_lease(message, is_lost=False)
        after = message.aftermath()
        after.dead_reason, after.dead_ms = record.reason, at_ms
        after.dead_at = message.joined = record.sequence + at
        message.since_ms = at_ms
        message.set_times(due_ms=None, deadline_ms=None)  # among the dead letters neither delay nor deadline counts
        if not is_dlq(dlq.name):  # its attempts count from zero there, by that queue's policy; its errors stay
            message.failures = after.expiries = 0
        _leave(message)
        after.origin = record.queue
        _join(message, dlq)
    return messages


def _leave(message: Message) -> None:
    origin = message.queue
    del origin.messages[message.number]
    origin.size -= message.size
    origin.dead_letters -= has_died(message)
    tally_out(origin, message.key, message.size)
    leave_unique(message)


def _join(message: Message, target: Queue) -> None:
    message.queue = target
    message.chunk.note(target.name)
    target.messages[message.number] = message
    target.size += message.size
    target.dead_letters += has_died(message)
    tally_in(target, message.key, message.size)


def redriven(ledger: Ledger, record: records.Redriven, at_ms: int) -> list[Message]:
    """Move dead letters to a queue, under new terms."""
    messages = known(ledger, record)
    target = ledger.queues[record.target]
    rows = dict(zip(record.numbers, rows_of(record.terms), strict=True))
    for at, message in numbered(record, messages):
        _leave(message)
        message.key, message.weight, message.cost, message.priority, message.throttles, due_ms, deadline_ms = rows[
            message.number
        ]
        before, message.after = message.after, None
        if before is not None and (before.state is not None or before.pieces is not None):
            message.after = Aftermath(state=before.state, pieces=before.pieces)
        _join(message, target)
        message.attempts = message.failures = 0
        message.joined, message.since_ms = at, at_ms
        message.set_times(due_ms=due_ms, deadline_ms=deadline_ms)
    rows_by_number = {number: row for row, number in enumerate(record.numbers)}
    _set_rare_terms(((rows_by_number[message.number], message) for message in messages), record.terms)
    redrive = None if record.redrive is None else ledger.redrives.get(record.redrive)
    if redrive is not None:
        redrive.moved += len(record.numbers)
    return messages


def take_out(ledger: Ledger, record: records.OfMessages) -> list[Message]:
    """Remove messages from their queue, and their chunks from the store."""
    queue = ledger.queues[record.queue]
    messages = queue.messages.take_all(record.numbers)
    size = leased = 0
    if queue.leased_groups is not None:
        leave_leased(queue, messages)
    if queue.claimed:
        queue.claimed -= sum(1 for message in messages if message.is_claimed)
    for message in messages:
        size += message.size
        if message.token:
            leased += 1
            message.token = 0
        (chunk := message.chunk).live -= 1
        if chunk.is_shared or not chunk.live:
            drop_chunk(ledger, message)
        if message.after is not None:
            _drop_rarities(ledger, message, message.after)
    queue.leased -= leased
    queue.size -= size
    ledger.size -= size
    ledger.messages -= len(messages)
    if queue.tallies is not None:
        for message in messages:
            tally_out(queue, message.key, message.size)
    return messages


def drop_chunk(ledger: Ledger, message: Message) -> None:
    """Drop the chunk of a message that was the last of it."""
    chunk = message.chunk
    if chunk.live or ledger.chunks.pop(chunk.number, None) is not None:
        ledger.dropped.append(message.number if chunk.is_shared else chunk.number)


def _drop_rarities(ledger: Ledger, message: Message, after: Aftermath) -> None:
    """Drop what few messages have: something in the store besides their chunk, or a past in another queue."""
    message.queue.dead_letters -= has_died(message)
    leave_unique(message)
    drop_state(ledger, after)
    if after.pieces is not None:
        ledger.discarded.add(message.chunk.home, after.pieces.numbers)
