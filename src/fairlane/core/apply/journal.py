"""What records of the journal's own affairs change: readers, segments, and what was carried forward."""

from __future__ import annotations

from array import array

from fairlane.core.apply.claims import revive_consumer
from fairlane.core.apply.counting import count_in, enter_leased, recount, tally_in
from fairlane.core.apply.dedups import carry_caller, enter_dedups, enter_unique, leave_dedups
from fairlane.core.apply.schedules import revive_schedule
from fairlane.core.apply.staging import count_staged, revive_sink
from fairlane.core.apply.uploads import revive_upload
from fairlane.core.dead_letters import has_died
from fairlane.core.dedup_ids import DedupHome
from fairlane.core.ledger import PRIORITIES, Ledger, Message, Queue
from fairlane.core.pauses import PauseLog
from fairlane.core.rows.chunks import ChunkHome, homes_of_carried
from fairlane.core.rows.shelves import PlainRow
from fairlane.core.states.redrives import RedriveState
from fairlane.core.states.uploads import Pieces
from fairlane.journal import records
from fairlane.model.message import NEVER_MS, FailedAttempt
from fairlane.model.names import is_dlq
from fairlane.scheduler.item import Priority
from fairlane.verbs.templates import templates_in


def reader_set(ledger: Ledger, record: records.ReaderSet, _at_ms: int) -> list[Message]:
    """Move a reader to a position, or remove it."""
    if record.position is None:
        ledger.readers.pop(record.name, None)
    else:
        ledger.readers[record.name] = records.ReaderImage(record.name, record.position, record.at_ms)
    return []


def opened(ledger: Ledger, record: records.Opened, _at_ms: int) -> list[Message]:
    """Note the id of the journal. A journal that had another one until now was restored from a backup."""
    if record.journal_id and record.journal_id != ledger.journal_id:
        ledger.ids.rename(record.sequence, record.journal_id)
        if ledger.journal_id:
            ledger.journal_since = record.sequence
        ledger.journal_id = record.journal_id
    return []


def skipped(_ledger: Ledger, _record: records.Skipped, _at_ms: int) -> list[Message]:
    """Change nothing: only numbers are used up."""
    return []


def sealed(ledger: Ledger, record: records.Sealed, _at_ms: int) -> list[Message]:
    """Seal the present segment, and begin the next."""
    ledger.segments.append(
        records.SegmentImage(record.first, record.sequence, record.first_ms, record.last_ms, record.size)
    )
    ledger.segment_first = record.sequence
    ledger.segment_first_ms = record.last_ms
    return []


def trimmed(ledger: Ledger, record: records.Trimmed, _at_ms: int) -> list[Message]:
    """Forget the trimmed beginning of the journal."""
    ledger.trimmed = max(ledger.trimmed, record.to)
    while ledger.segments and ledger.segments[0].end <= ledger.trimmed:
        ledger.segments.popleft()
    return []


def carried(ledger: Ledger, record: records.Carried, at_ms: int) -> list[Message]:
    """Give messages, dedup ids and producers a later home, or restore them if recovery began after their enqueue."""
    _carry_messages(ledger, record)
    _carry_dedups(ledger, record)
    for image in record.callers:
        carry_caller(ledger, image, record.sequence, at_ms)
    for finished in record.finished:
        ledger.finished.carry(finished, record.sequence)
    return []


def _carry_messages(ledger: Ledger, record: records.Carried) -> None:
    homes = homes_of_carried(ledger.chunks, record.messages, record.sequence)
    for image, home in zip(record.messages, homes, strict=True):
        queue = ledger.queues[image.queue]
        before = _move_home(queue, image.number, home)
        if before is None:
            if ledger.keeps_rows(queue) and _is_plain(queue, image):
                _revive_row(ledger, queue, image, home)
            else:
                _revive(ledger, queue, image, home)
        elif before is not home:
            before.live -= 1
            if not before.live:
                ledger.chunks.remove(before)
    ledger.chunks.move_to_later(dict.fromkeys(homes))


def _move_home(queue: Queue, number: int, home: ChunkHome) -> ChunkHome | None:
    """Set the home of a message, and return the one before. Return None if there is none of that number."""
    staged = queue.staged.get(number)
    if staged is None:
        return queue.messages.move_home(number, home)
    before, staged.chunk = staged.chunk, home
    return before


def _is_plain(queue: Queue, image: records.MessageImage) -> bool:
    """Return whether a message has nothing but a key and a payload, and has been waiting ever since its enqueue."""
    nothing = (
        *(image.due_ms, image.deadline_ms, image.cap, image.origin, image.state, image.max_attempts),
        *(image.visibility_ms, image.result_ttl_ms, image.pieces, image.order_key, image.unique_key),
    )
    return (
        image.joined == image.number
        and not (image.attempts or image.weight or image.throttles or image.errors)
        and image.cost == 1
        and image.priority == Priority.NORMAL
        and image.since_ms in (0, image.enqueued_ms)
        and nothing.count(None) == len(nothing)
        and not queue.is_strict
        and not is_dlq(queue.name)
    )


def _revive_row(ledger: Ledger, queue: Queue, image: records.MessageImage, chunk: ChunkHome) -> None:
    if image.correlation_id is not None:
        _restore_correlation_id(chunk, image.number, image.correlation_id)
    queue.messages.add_row(image.number, PlainRow(image.key, chunk, image.size, image.enqueued_ms))
    queue.size += image.size
    ledger.size += image.size
    ledger.messages += 1
    tally_in(queue, image.key, image.size)


def _revive(ledger: Ledger, queue: Queue, image: records.MessageImage, chunk: ChunkHome) -> None:
    """Restore a message as it was when it was carried, since recovery began after its enqueue."""
    message = Message(
        image.number,
        queue,
        chunk,
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
    message.joined, message.since_ms = image.joined, image.since_ms or image.enqueued_ms
    message.attempts, message.failures = image.attempts, image.failures
    message.token, message.expires_ms, message.owner = image.token, image.expires_ms, image.owner
    message.leased_ms = image.leased_ms
    own = (image.origin, image.state, image.cap, image.max_attempts, image.visibility_ms, image.result_ttl_ms)
    is_rare = image.errors or image.pieces is not None or image.order_key is not None or image.unique_key is not None
    if is_rare or own.count(None) < len(own):
        after = message.aftermath()
        details = image.details or [None] * len(image.errors)
        after.errors = tuple(FailedAttempt(*one, detail) for one, detail in zip(image.errors, details, strict=True))
        after.origin, after.dead_reason, after.dead_ms = image.origin, image.dead_reason, image.dead_ms
        after.dead_at = image.dead_at
        after.state, after.state_bytes, after.cap = image.state, image.state_bytes, image.cap
        after.expiries, after.late_token = image.expiries, image.late_token
        after.max_attempts, after.visibility_ms = image.max_attempts, image.visibility_ms
        after.result_ttl_ms = image.result_ttl_ms
        after.order_key, after.unique_key = image.order_key, image.unique_key
        if image.pieces is not None:
            after.pieces = Pieces(image.pieces.piece_bytes, array("Q", image.pieces.numbers))
    if image.correlation_id is not None:
        _restore_correlation_id(message.chunk, image.number, image.correlation_id)
    if not image.joined:
        queue.staged[image.number] = message
        count_staged(ledger, queue, [message], image.size)
        return
    queue.messages[image.number] = message
    enter_unique(message)
    queue.leased += 1 if image.token else 0
    queue.claimed += 1 if message.is_claimed else 0
    if image.token:
        enter_leased(queue, [message])
    queue.dead_letters += has_died(message)
    count_in(ledger, queue, [message], image.size)


def _restore_correlation_id(chunk: ChunkHome, number: int, correlation_id: str) -> None:
    known = chunk.correlation_ids = chunk.correlation_ids or []
    at = number - chunk.number
    known.extend([None] * (at + 1 - len(known)))
    known[at] = correlation_id


def _carry_dedups(ledger: Ledger, record: records.Carried) -> None:
    while ledger.dedup_homes and ledger.dedup_homes[0].home < record.dedups_before:
        leave_dedups(ledger, ledger.dedup_homes.popleft())
    for image in record.dedups:
        home = DedupHome(image.queue, image.numbers, image.until_ms, record.sequence)
        enter_dedups(ledger, ledger.queues[image.queue], home)


def _revive_queue(ledger: Ledger, image: records.QueueImage) -> None:
    queue = ledger.queues[image.name] = Queue(image.name, image.policy, image.created_ms, ledger.ids)
    queue.is_paused = image.is_paused
    queue.paused_keys = set(image.paused_keys)
    queue.pauses = PauseLog.of(image.pauses)
    queue.refused = image.refused
    for consumer in image.consumers:
        revive_consumer(queue, consumer)
    for sink in image.sinks:
        revive_sink(queue, sink)
    for schedule in image.schedules:
        revive_schedule(queue, schedule)
    for upload in image.uploads:
        revive_upload(ledger, queue, upload)
    recount(queue)


def baseline(ledger: Ledger, record: records.Baseline, _at_ms: int) -> list[Message]:
    """Set everything besides messages. It is so already, unless recovery begins here."""
    for image in record.queues:
        if image.name not in ledger.queues:
            _revive_queue(ledger, image)
    ledger.config.clear()  # in place: the schedule reads it too
    ledger.config.update(record.config)
    ledger.templates = templates_in(ledger.config)
    ledger.temporary = {image.key: image for image in record.temporary}
    ledger.config_due_ms = min((image.expires_ms for image in record.temporary), default=NEVER_MS)
    for known in record.redrives:
        ledger.redrives.setdefault(known.order.sequence, _redrive(known))  # not replaced: the broker goes on with it
    ledger.readers = {reader.name: reader for reader in record.readers}
    ledger.segments = type(ledger.segments)(record.segments)
    ledger.segment_first, ledger.segment_first_ms = record.segment_first, record.segment_first_ms
    ledger.trimmed = record.trimmed
    ledger.journal_id, ledger.journal_since = record.journal_id, record.journal_since
    ledger.ids.restore(record.journals or [(0, record.journal_id)])
    if not ledger.fan_outs.by_number:
        for fan_out in record.fan_outs:
            ledger.fan_outs.add(fan_out)
    if not ledger.discarded.entries:
        ledger.discarded.add(record.sequence, record.discarded)
    ledger.discarded.move(record.sequence)
    ledger.baseline = record.sequence
    ledger.chunks.end_sharing()
    return []


def _redrive(image: records.RedriveImage) -> RedriveState:
    return RedriveState(image.order, image.started_ms, image.moved, image.end)
