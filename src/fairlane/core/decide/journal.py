"""The journal's own affairs: readers, segments, trimming, and moving the point that recovery begins at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final

from fairlane.core.checks import text_fault, whole_fault
from fairlane.core.commands import Carry, Given, MoveBase, Open, Seal, Trim
from fairlane.core.decision import Deciders, Decision, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.rows.chunks import ChunkHome
from fairlane.core.states.claims import RegisteredConsumer
from fairlane.core.states.schedules import ScheduleState
from fairlane.core.states.sinks import SinkState
from fairlane.errors import InvalidArgument, ReaderNotFound
from fairlane.journal.bodies import CHUNK_COUNT_MAX
from fairlane.journal.records import (
    AnyRecord,
    Baseline,
    CallerImage,
    Carried,
    ClaimImage,
    ConsumerImage,
    DedupImage,
    FinishedImage,
    MessageImage,
    Opened,
    PartImage,
    QueueImage,
    ReaderSet,
    ScheduleImage,
    Sealed,
    SinkImage,
    Skipped,
    Trimmed,
)
from fairlane.model.message import FailedAttempt, FailureDetail
from fairlane.model.names import dlq_of
from fairlane.verbs.journal import RemoveReader, SetReader
from fairlane.verbs.verb import Done

_READER_NAME_LENGTH_MAX = 128
_PIECES_PER_MESSAGE = 16  # the numbers of 16 pieces take about as much as a message


def set_reader(ledger: Ledger, request: SetReader, now_ms: int, _given: Given) -> Decision[Done]:
    """Register a reader or advance it, at most to the end of the journal. 0 is the beginning of any journal."""
    if (fault := text_fault("A reader's name", request.name, most=_READER_NAME_LENGTH_MAX)) is not None:
        return refuse(InvalidArgument(fault))
    if (fault := whole_fault("position", request.position, least=0, most=ledger.next_sequence - 1)) is not None:
        return refuse(InvalidArgument(fault))
    position = max(request.position, ledger.counts_from)
    return Decision([ReaderSet(ledger.next_sequence, request.name, position, now_ms)], Done())


def remove_reader(ledger: Ledger, request: RemoveReader, now_ms: int, _given: Given) -> Decision[Done]:
    """Delete a reader, so that nothing is kept for it."""
    if request.name not in ledger.readers:
        return refuse(ReaderNotFound(f"Journal reader {request.name!r:.150}."))
    return Decision([ReaderSet(ledger.next_sequence, request.name, None, now_ms)], Done())


def opened(ledger: Ledger, command: Open, _now_ms: int, _given: Given) -> Decision[None]:
    """Record that the schedule starts over, after the sequences that may have been issued already."""
    first, end = ledger.next_sequence, command.reserved
    if end <= first:
        return Decision([Opened(first, command.built_ms, command.journal_id)], None)
    return Decision([Skipped(first, end - first), Opened(end, command.built_ms, command.journal_id)], None)


def seal(ledger: Ledger, command: Seal, now_ms: int, _given: Given) -> Decision[None]:
    """Close the present segment."""
    record = Sealed(ledger.next_sequence, ledger.segment_first, ledger.segment_first_ms, now_ms, command.size)
    return Decision([record], None)


def trim(ledger: Ledger, command: Trim, _now_ms: int, _given: Given) -> Decision[None]:
    """Trim the journal before a position."""
    return Decision([Trimmed(ledger.next_sequence, command.to, command.passed)], None)


def move_base(ledger: Ledger, _command: MoveBase, _now_ms: int, _given: Given) -> Decision[None]:
    """Write down everything besides messages."""
    record = Baseline(
        ledger.next_sequence,
        [_queue_image(queue) for queue in ledger.queues.values()],
        dict(ledger.config),
        list(ledger.readers.values()),
        list(ledger.segments),
        ledger.segment_first,
        ledger.segment_first_ms,
        ledger.trimmed,
        ledger.journal_id,
        ledger.journal_since,
        list(ledger.temporary.values()),
        list(ledger.ids.journals),
        [redrive.image() for redrive in ledger.redrives.values()],
        list(ledger.discarded),
        ledger.fan_outs.images(),
    )
    return Decision([record], None)


def _queue_image(queue: Queue) -> QueueImage:
    return QueueImage(
        queue.name,
        queue.policy,
        queue.created_ms,
        queue.is_paused,
        sorted(queue.paused_keys, key=str),
        [_consumer_image(consumer) for consumer in queue.consumers.values()],
        [_sink_image(sink) for sink in queue.sinks.values()],
        queue.pauses.images(),
        queue.refused,
        [_schedule_image(schedule) for schedule in queue.schedules.values()],
        [upload.image() for upload in queue.uploads.values()],
    )


def _consumer_image(consumer: RegisteredConsumer) -> ConsumerImage:
    opened = consumer.claim
    return ConsumerImage(
        consumer.name,
        consumer.epoch,
        consumer.claimed,
        consumer.done,
        consumer.heard_ms,
        consumer.idle_ms,
        None if opened is None else ClaimImage(opened.number, opened.token, opened.numbers),
    )


def _sink_image(sink: SinkState) -> SinkImage:
    parts = [PartImage(batch, name, list(part.runs), part.size) for (batch, name), part in sink.parts.items()]
    return SinkImage(sink.name, sink.batch, sink.messages, sink.heard_ms, parts)


def _schedule_image(schedule: ScheduleState) -> ScheduleImage:
    return ScheduleImage(*(getattr(schedule, name) for name in ScheduleImage.__struct_fields__))


def carry(ledger: Ledger, command: Carry, now_ms: int, _given: Given) -> Decision[None]:
    """Write down again the oldest chunks' messages, dedup ids and producers with a home before the latest baseline."""
    messages: list[Message] = []
    count = 0
    # Chunks are kept in the order of their homes, and carrying one moves it to the end: so the oldest are in front, and
    # the first with a home after the baseline ends the work. Whole chunks only: a chunk has one home.
    for chunk in ledger.chunks.values():
        if chunk.home >= ledger.baseline or count >= command.count:
            break
        found = _messages_of(ledger, chunk)
        messages += found
        count += chunk.live + sum(_carried_pieces(message) for message in found)
    dedups, before = _old_dedups(ledger, command.count, now_ms)
    callers = _old_callers(ledger, command.count)
    finished = _old_finished(ledger, command.count)
    if not messages and not before and not callers and not finished:
        return Decision([], None)
    records: list[AnyRecord] = [
        Carried(ledger.next_sequence, [_image(message) for message in messages], dedups, before, callers, finished)
    ]
    return Decision(records, None)


def _carried_pieces(message: Message) -> int:
    """Return how many messages the pieces of a message count as."""
    return 0 if message.pieces is None else len(message.pieces.numbers) // _PIECES_PER_MESSAGE


def _messages_of(ledger: Ledger, chunk: ChunkHome) -> list[Message]:
    """Return the messages of a home. Their numbers are near each other, and they may be in several queues."""
    found = []
    names = [name for plain in (chunk.queue, *chunk.others) for name in (plain, dlq_of(plain))]
    queues = [ledger.queues[name] for name in names if name in ledger.queues]
    for messages in (*(queue.messages for queue in queues), *(queue.staged for queue in queues)):
        if not messages:
            continue
        for at in range(chunk.number, chunk.number + CHUNK_COUNT_MAX):
            message = messages.get(at)
            if message is not None and message.chunk is chunk:
                found.append(message)
    return found


def _old_dedups(ledger: Ledger, count: int, now_ms: int) -> tuple[list[DedupImage], int]:
    images: list[DedupImage] = []
    before = 0
    for home in ledger.dedup_homes:
        # What has one home goes together: the record says only up to where it speaks for all.
        if home.home >= ledger.baseline or (len(images) >= count and home.home >= before):
            break
        before = home.home + 1
        if home.until_ms > now_ms:
            images.append(DedupImage(home.queue, home.until_ms, home.numbers))
    return images, before


def _old_callers(ledger: Ledger, count: int) -> list[CallerImage]:
    """Return the producers of callers, each whole. Its runs are encoded as they are, so a large image costs little."""
    images: list[CallerImage] = []
    runs = 0
    for caller, known in ledger.producer_numbers.items():
        if known.home >= ledger.baseline or runs >= count:
            break
        images.append(known.image(caller))
        runs += len(known)
    return images


def _old_finished(ledger: Ledger, count: int) -> list[FinishedImage]:
    oldest = islice(ledger.finished.known.values(), count)
    return [finished.image() for finished in takewhile(lambda one: one.home < ledger.baseline, oldest)]


def _image(message: Message) -> MessageImage:
    after = message.after
    return MessageImage(
        message.number,
        message.queue.name,
        message.body_number,
        message.size,
        message.key,
        message.weight,
        message.cost,
        int(message.priority),
        list(message.throttles),
        message.due_ms,
        message.deadline_ms,
        after.cap if after is not None else None,
        message.enqueued_ms,
        message.joined,
        message.attempts,
        message.failures,
        message.token,
        message.expires_ms,
        message.owner,
        [_fields(failed) for failed in after.errors] if after is not None else [],
        after.origin if after is not None else None,
        after.dead_reason if after is not None else None,
        after.dead_ms if after is not None else 0,
        after.state if after is not None else None,
        message.since_ms,
        message.correlation_id,
        message.expiries,
        after.late_token if after is not None else 0,
        after.max_attempts if after is not None else None,
        after.visibility_ms if after is not None else None,
        after.dead_at if after is not None else 0,
        message.leased_ms,
        after.result_ttl_ms if after is not None else None,
        _details(after.errors) if after is not None else None,
        None if after is None or after.pieces is None else after.pieces.image(),
        after.order_key if after is not None else None,
        after.unique_key if after is not None else None,
        message.chunk.head_bytes,
        after.state_bytes if after is not None else 0,
    )


def _details(errors: Sequence[FailedAttempt]) -> list[FailureDetail | None] | None:
    details = [failed.detail for failed in errors]
    return details if details.count(None) < len(details) else None


def _fields(failed: FailedAttempt) -> tuple[int, int, str, str]:
    return failed.at_ms, failed.attempt, failed.reason, failed.error


DECIDERS: Final[Deciders] = {
    SetReader: set_reader,
    RemoveReader: remove_reader,
    Open: opened,
    Seal: seal,
    Trim: trim,
    MoveBase: move_base,
    Carry: carry,
}
