"""What each record changes in the ledger. This is the only code that changes it, live and on recovery alike.

``apply`` believes the record: whether something may happen was decided before it was written down. It returns the
messages that the record speaks of, so that the schedule can follow.

On recovery the journal is read from the base on, so a record may speak of messages that were gone when the base was
set. Such messages are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlead.core.ledger import PRIORITIES, Aftermath, ChunkHome, DedupHome, KeyTally, Ledger, Message, Queue, Row
from fairlead.journal.records import (
    Acked,
    AnyRecord,
    Baseline,
    Carried,
    ConfigSet,
    Dead,
    Enqueued,
    Extended,
    Leased,
    MessageImage,
    OfMessages,
    Opened,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    ReaderImage,
    ReaderSet,
    Redriven,
    Removed,
    Returned,
    Sealed,
    SegmentImage,
    StateRemoved,
    StateSet,
    Terms,
    Trimmed,
)
from fairlead.model.limits import ERRORS_KEPT_MAX
from fairlead.model.message import FailedAttempt
from fairlead.model.names import dlq_of
from fairlead.scheduler.item import Priority

_NORMAL = Priority.NORMAL
_NO_THROTTLES: list[tuple[str, ...]] = [()]


def apply(ledger: Ledger, record: AnyRecord, at_ms: int) -> list[Message]:
    """Let a record be true, and return the messages it speaks of."""
    messages = _APPLIERS[type(record)](ledger, record, at_ms)
    ledger.next_sequence = record.sequence + record.count
    ledger.at_ms = at_ms
    if not ledger.segment_first_ms:
        ledger.segment_first_ms = at_ms
    return messages


# ----------------------------------------------------------------------------------------------------- new messages


def _enqueued(ledger: Ledger, record: Enqueued, at_ms: int) -> list[Message]:
    queue = ledger.queues[record.queue]
    _forget_dedups(ledger, at_ms)
    home = record.sequence
    messages: list[Message] = []
    ends = [*record.chunks[1:], len(record.sizes)]
    rows = iter(_rows(record.terms))
    number = home
    for start, end in zip(record.chunks, ends, strict=True):
        chunk = ledger.chunks[number] = ChunkHome(queue.name, number, home, end - start)
        for size, row in zip(record.sizes[start:end], rows, strict=False):
            message = queue.messages[number] = Message(number, queue, chunk, size, at_ms, row)
            messages.append(message)
            number += 1
    if record.terms.caps is not None:
        _set_caps(messages, record.terms.caps)
    _count_in(ledger, queue, messages, sum(record.sizes))
    if record.dedup_ids is not None:
        _remember(ledger, queue, record.dedup_ids, record.dedup_until_ms, home)
    return messages


def _rows(terms: Terms) -> Iterable[Row]:
    """Return the terms of each message."""
    n = len(terms.keys)
    if _is_plain(terms) and terms.weights is None and terms.costs is None:
        return [(key, 1, 1, _NORMAL, (), None, None) for key in terms.keys]
    nothing: list[int | None] = [None] * n
    return zip(
        terms.keys,
        terms.weights or [1] * n,
        terms.costs or [1] * n,
        [_NORMAL] * n if terms.priorities is None else [PRIORITIES[priority] for priority in terms.priorities],
        _NO_THROTTLES * n if terms.throttles is None else [tuple(names) for names in terms.throttles],
        terms.due_ms or nothing,
        terms.deadlines_ms or nothing,
        strict=True,
    )


def _is_plain(terms: Terms) -> bool:
    """Tell whether no message needs more of the scheduler than its key, weight and cost."""
    return terms.priorities is None and terms.throttles is None and terms.due_ms is None and terms.deadlines_ms is None


def _set_caps(messages: list[Message], caps: list[int | None]) -> None:
    for message, cap in zip(messages, caps, strict=True):
        if cap is not None:
            message.aftermath().cap = cap


def _remember(ledger: Ledger, queue: Queue, dedup_ids: list[str | None], until_ms: int, home: int) -> None:
    numbers = {dedup_id: home + at for at, dedup_id in enumerate(dedup_ids) if dedup_id is not None}
    _enter_dedups(ledger, queue, DedupHome(queue.name, numbers, until_ms, home))


def _forget_dedups(ledger: Ledger, at_ms: int) -> None:
    """Forget the oldest dedup ids, as far as their window is over."""
    homes = ledger.dedup_homes
    while homes and homes[0].until_ms <= at_ms:
        _leave_dedups(ledger, homes.popleft())


def _leave_dedups(ledger: Ledger, home: DedupHome) -> None:
    dedups = ledger.queues[home.queue].dedups
    for dedup_id, number in home.numbers.items():
        if dedup_id in dedups and dedups[dedup_id][0] == number:
            del dedups[dedup_id]


def _enter_dedups(ledger: Ledger, queue: Queue, dedups: DedupHome) -> None:
    queue.dedups.update((dedup_id, (number, dedups.until_ms)) for dedup_id, number in dedups.numbers.items())
    ledger.dedup_homes.append(dedups)


# ---------------------------------------------------------------------------------------------------------- leases


def _leased(ledger: Ledger, record: Leased, _at_ms: int) -> list[Message]:
    messages = _known(ledger, record)
    expires_ms, owner = record.expires_ms, record.owner
    for token, message in _numbered(record, messages):
        message.token = token
        message.expires_ms = expires_ms
        message.owner = owner
        message.attempts += 1
    if messages:
        messages[0].queue.leased += len(messages)
    return messages


def _extended(ledger: Ledger, record: Extended, _at_ms: int) -> list[Message]:
    messages = _known(ledger, record)
    for message in messages:
        message.expires_ms = record.expires_ms
    return messages


def _acked(ledger: Ledger, record: Acked, _at_ms: int) -> list[Message]:
    return _take_out(ledger, record)


def _returned(ledger: Ledger, record: Returned, at_ms: int) -> list[Message]:
    messages = _known(ledger, record)
    position = {number: at for at, number in enumerate(record.numbers)}
    for message in messages:
        at = position[message.number]
        if record.reason != "defer":
            _note_failure(message, record.reason, record.errors[at] if record.errors is not None else "", at_ms)
        due_ms = record.due_ms[at] if record.due_ms is not None else None
        _end_lease(message)
        message.line = record.sequence + at
        message.set_times(due_ms=due_ms or None, deadline_ms=message.deadline_ms)
    return messages


def _note_failure(message: Message, reason: str, error: str, at_ms: int) -> None:
    message.failures += 1
    after = message.aftermath()
    attempt = FailedAttempt(at_ms, message.attempts, reason, error)
    after.errors = (*after.errors, attempt)[-ERRORS_KEPT_MAX:]


def _end_lease(message: Message) -> None:
    if message.token:
        message.token = 0
        message.expires_ms = 0
        message.owner = None
        message.queue.leased -= 1


# ------------------------------------------------------------------------------------------- dead letters and removal


def _dead(ledger: Ledger, record: Dead, at_ms: int) -> list[Message]:
    messages = _known(ledger, record)
    dlq = ledger.queues[dlq_of(record.queue)]
    position = {number: at for at, number in enumerate(record.numbers)}
    for message in messages:
        at = position[message.number]
        if record.ended is not None:
            _note_failure(message, record.ended, record.errors[at] if record.errors is not None else "", at_ms)
        _end_lease(message)
        after = message.aftermath()
        after.origin, after.dead_reason, after.dead_ms = record.queue, record.reason, at_ms
        message.line = record.sequence + at
        message.set_times(due_ms=None, deadline_ms=None)  # among the dead letters neither delay nor deadline counts
        _leave(message)
        _join(message, dlq)
    return messages


def _leave(message: Message) -> None:
    origin = message.queue
    del origin.messages[message.number]
    origin.size -= message.size
    _untally(origin, message)


def _join(message: Message, target: Queue) -> None:
    message.queue = target
    target.messages[message.number] = message
    target.size += message.size
    _tally(target, message)


def _removed(ledger: Ledger, record: Removed, _at_ms: int) -> list[Message]:
    return _take_out(ledger, record)


def _redriven(ledger: Ledger, record: Redriven, _at_ms: int) -> list[Message]:
    messages = _known(ledger, record)
    target = ledger.queues[record.target]
    rows = dict(zip(record.numbers, _rows(record.terms), strict=True))
    caps = dict(zip(record.numbers, record.terms.caps or [None] * len(record.numbers), strict=True))
    for at, message in _numbered(record, messages):
        _leave(message)
        message.key, message.weight, message.cost, message.priority, message.throttles, due_ms, deadline_ms = rows[
            message.number
        ]
        _join(message, target)
        state = message.after.state if message.after is not None else None
        message.after = None
        if state is not None or caps[message.number] is not None:
            message.aftermath().state = state
            message.aftermath().cap = caps[message.number]
        message.attempts = message.failures = 0
        message.line = at
        message.set_times(due_ms=due_ms, deadline_ms=deadline_ms)
    return messages


def _take_out(ledger: Ledger, record: OfMessages) -> list[Message]:
    """Let messages be gone, from their queue and from the store."""
    queue = ledger.queues[record.queue]
    pop = queue.messages.pop
    messages = [message for number in record.numbers if (message := pop(number, None)) is not None]
    size = leased = 0
    for message in messages:
        size += message.size
        if message.token:
            leased += 1
            message.token = 0
        chunk = message.chunk
        chunk.live -= 1
        if not chunk.live:
            _drop_chunk(ledger, chunk)
        if message.after is not None:
            _drop_state(ledger, message.after)
    queue.leased -= leased
    queue.size -= size
    ledger.size -= size
    ledger.messages -= len(messages)
    if queue.tallies is not None:
        for message in messages:
            _untally(queue, message)
    return messages


def _drop_chunk(ledger: Ledger, chunk: ChunkHome) -> None:
    if ledger.chunks.pop(chunk.number, None) is not None:
        ledger.dropped.append(chunk.number)


def _drop_state(ledger: Ledger, after: Aftermath) -> None:
    if after.state is not None:
        ledger.dropped.append(after.state)
        after.state = None


# --------------------------------------------------------------------------------------------------- workflow state


def _state_set(ledger: Ledger, record: StateSet, _at_ms: int) -> list[Message]:
    message = ledger.find(record.queue, record.number)
    if message is None:
        return []
    after = message.aftermath()
    _drop_state(ledger, after)
    after.state = record.sequence
    return [message]


def _state_removed(ledger: Ledger, record: StateRemoved, _at_ms: int) -> list[Message]:
    message = ledger.find(record.queue, record.number)
    if message is None or message.after is None:
        return []
    _drop_state(ledger, message.after)
    return [message]


# ------------------------------------------------------------------------------------------------ queues and config


def _queue_set(ledger: Ledger, record: QueueSet, at_ms: int) -> list[Message]:
    queue = ledger.queues.get(record.queue)
    if queue is None:
        queue = ledger.queues[record.queue] = Queue(record.queue, record.policy, at_ms)
    queue.set_policy(record.policy)
    _recount_keys(queue)
    return []


def _recount_keys(queue: Queue) -> None:
    if not queue.counts_keys:
        queue.tallies = None
    elif queue.tallies is None:
        queue.tallies = {}
        for message in queue.messages.values():
            _tally(queue, message)


def _queue_removed(ledger: Ledger, record: QueueRemoved, _at_ms: int) -> list[Message]:
    queue = ledger.queues[record.queue]
    everything = Removed(record.sequence, record.queue, list(queue.messages), "purged")
    messages = _take_out(ledger, everything)
    del ledger.queues[record.queue]
    ledger.dedup_homes = type(ledger.dedup_homes)(home for home in ledger.dedup_homes if home.queue != record.queue)
    return messages


def _queue_paused(ledger: Ledger, record: QueuePaused, _at_ms: int) -> list[Message]:
    queue = ledger.queues[record.queue]
    if record.key is None:
        queue.is_paused = record.is_paused
    elif record.is_paused:
        queue.paused_keys.add(record.key)
    else:
        queue.paused_keys.discard(record.key)
    return []


def _config_set(ledger: Ledger, record: ConfigSet, _at_ms: int) -> list[Message]:
    if record.value is None:
        ledger.config.pop(record.key, None)
    else:
        ledger.config[record.key] = record.value
    return []


# ----------------------------------------------------------------------------------------------- the journal's own


def _reader_set(ledger: Ledger, record: ReaderSet, _at_ms: int) -> list[Message]:
    if record.position is None:
        ledger.readers.pop(record.name, None)
    else:
        ledger.readers[record.name] = ReaderImage(record.name, record.position, record.at_ms)
    return []


def _opened(_ledger: Ledger, _record: Opened, _at_ms: int) -> list[Message]:
    return []


def _sealed(ledger: Ledger, record: Sealed, _at_ms: int) -> list[Message]:
    ledger.segments.append(SegmentImage(record.first, record.sequence, record.first_ms, record.last_ms, record.size))
    ledger.segment_first = record.sequence
    ledger.segment_first_ms = record.last_ms
    return []


def _trimmed(ledger: Ledger, record: Trimmed, _at_ms: int) -> list[Message]:
    ledger.trimmed = max(ledger.trimmed, record.to)
    while ledger.segments and ledger.segments[0].end <= ledger.trimmed:
        ledger.segments.popleft()
    return []


def _carried(ledger: Ledger, record: Carried, _at_ms: int) -> list[Message]:
    _carry_messages(ledger, record)
    _carry_dedups(ledger, record)
    return []


def _carry_messages(ledger: Ledger, record: Carried) -> None:
    chunks: dict[int, ChunkHome] = {}
    for image in record.messages:
        chunk = chunks.get(image.chunk)
        if chunk is None:
            chunk = ledger.chunks.get(image.chunk) or ChunkHome(image.queue, image.chunk, 0, 0)
            chunk.home, chunk.live = record.sequence, 0
            chunks[image.chunk] = chunk
        chunk.live += 1
    for number, chunk in chunks.items():
        ledger.chunks[number] = chunk
        ledger.chunks.move_to_end(number)
    for image in record.messages:
        queue = ledger.queues[image.queue]
        if image.number not in queue.messages:
            _revive(ledger, queue, image)


def _revive(ledger: Ledger, queue: Queue, image: MessageImage) -> None:
    """Let a message be as it was when it was carried: recovery began after its enqueue."""
    message = Message(
        image.number,
        queue,
        ledger.chunks[image.chunk],
        image.size,
        image.enqueued_ms,
        (
            image.key,
            image.weight,
            image.cost,
            PRIORITIES[image.priority],
            tuple(image.throttles),
            image.due_ms,
            image.deadline_ms,
        ),
    )
    message.line = image.line
    message.attempts, message.failures = image.attempts, image.failures
    message.token, message.expires_ms, message.owner = image.token, image.expires_ms, image.owner
    if image.errors or image.origin is not None or image.state is not None or image.cap is not None:
        after = message.aftermath()
        after.errors = tuple(image.errors)
        after.origin, after.dead_reason, after.dead_ms = image.origin, image.dead_reason, image.dead_ms
        after.state, after.cap = image.state, image.cap
    queue.messages[image.number] = message
    queue.leased += 1 if image.token else 0
    _count_in(ledger, queue, [message], image.size)


def _carry_dedups(ledger: Ledger, record: Carried) -> None:
    while ledger.dedup_homes and ledger.dedup_homes[0].home < record.dedups_before:
        _leave_dedups(ledger, ledger.dedup_homes.popleft())
    for image in record.dedups:
        home = DedupHome(image.queue, image.numbers, image.until_ms, record.sequence)
        _enter_dedups(ledger, ledger.queues[image.queue], home)


def _baseline(ledger: Ledger, record: Baseline, _at_ms: int) -> list[Message]:
    for image in record.queues:
        queue = ledger.queues.get(image.name)
        if queue is None:
            queue = ledger.queues[image.name] = Queue(image.name, image.policy, image.created_ms)
            queue.is_paused = image.is_paused
            queue.paused_keys = set(image.paused_keys)
            _recount_keys(queue)
    ledger.config.clear()  # in place: the schedule reads it too
    ledger.config.update(record.config)
    ledger.readers = {reader.name: reader for reader in record.readers}
    ledger.segments = type(ledger.segments)(record.segments)
    ledger.segment_first, ledger.segment_first_ms = record.segment_first, record.segment_first_ms
    ledger.trimmed = record.trimmed
    ledger.baseline = record.sequence
    return []


# ------------------------------------------------------------------------------------------------------- counting


def _known(ledger: Ledger, record: OfMessages) -> list[Message]:
    get = ledger.queues[record.queue].messages.get
    return [message for number in record.numbers if (message := get(number)) is not None]


def _numbered(record: OfMessages, messages: list[Message]) -> Iterable[tuple[int, Message]]:
    """Pair messages with the sequence numbers the record has for them."""
    if len(messages) == len(record.numbers):
        return enumerate(messages, record.sequence)
    position = {number: at for at, number in enumerate(record.numbers, record.sequence)}
    return [(position[message.number], message) for message in messages]


def _count_in(ledger: Ledger, queue: Queue, messages: list[Message], size: int) -> None:
    queue.size += size
    ledger.size += size
    ledger.messages += len(messages)
    if queue.tallies is not None:
        for message in messages:
            _tally(queue, message)


def _tally(queue: Queue, message: Message) -> None:
    if queue.tallies is not None:
        tally = queue.tallies.get(message.key)
        if tally is None:
            tally = queue.tallies[message.key] = KeyTally()
        tally.messages += 1
        tally.size += message.size


def _untally(queue: Queue, message: Message) -> None:
    if queue.tallies is not None:
        tally = queue.tallies[message.key]
        tally.messages -= 1
        tally.size -= message.size
        if not tally.messages:
            del queue.tallies[message.key]


_APPLIERS: dict[type[AnyRecord], Callable[[Ledger, Any, int], list[Message]]] = {
    Enqueued: _enqueued,
    Leased: _leased,
    Extended: _extended,
    Acked: _acked,
    Returned: _returned,
    Dead: _dead,
    Removed: _removed,
    Redriven: _redriven,
    StateSet: _state_set,
    StateRemoved: _state_removed,
    QueueSet: _queue_set,
    QueueRemoved: _queue_removed,
    QueuePaused: _queue_paused,
    ConfigSet: _config_set,
    ReaderSet: _reader_set,
    Opened: _opened,
    Sealed: _sealed,
    Trimmed: _trimmed,
    Carried: _carried,
    Baseline: _baseline,
}
