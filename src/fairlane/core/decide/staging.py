"""Staging and publishing: batches whose messages arrive part by part, and enter the queue at once and once only.

A part grows by what is appended to it, and every request says where it begins, so one that is repeated changes nothing.
A sink remembers the latest batch it has published, so a batch that is published again changes nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fairlane.core.checks import are_bare, message_fault, text_fault, whole_fault
from fairlane.core.commands import Given, Unstage
from fairlane.core.decide.enqueue import packed, refusals
from fairlane.core.decide.room import QueueRoom, fits
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.producer import forbidden, forbidden_sink
from fairlane.core.states.sinks import SinkState
from fairlane.core.terms import collapse, resolve
from fairlane.errors import FairlaneError, FullError, InvalidArgument, SinkNotFound, StageMismatch
from fairlane.journal import records
from fairlane.journal.records import AnyRecord, Removed, SinkRemoved, SinkSet, Terms
from fairlane.model import limits
from fairlane.model.bounds import excess_of
from fairlane.model.message import NewMessage
from fairlane.model.staging import PublishResult, StageResult
from fairlane.verbs.batches import DropSink, Publish, Stage
from fairlane.verbs.queues import MessageCount

_BATCH_MOST = 1 << 53


# ------------------------------------------------------------------------------------------------------------- staging


def stage(ledger: Ledger, request: Stage, now_ms: int, given: Given) -> Decision[StageResult]:
    """Append messages to a part, unless they are there already. The outcome is how many it has then."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (forbids := forbidden_sink(queue.name, request.sink, given.producer)) is not None:
        return refuse(forbids)
    if (fault := _stage_fault(queue, request)) is not None:
        return refuse(InvalidArgument(fault))
    sink = queue.sinks.get(request.sink)
    part = None if sink is None else sink.parts.get((request.batch, request.part))
    there, messages = (0 if part is None else part.count), request.messages
    answer = StageResult(count=request.at + len(messages))
    if _is_published(sink, request.batch) or answer.count <= there:
        return Decision([], answer)
    if request.at != there:
        cause = f"Part {request.part!r} of batch {request.batch} has {there} messages, but these begin at {request.at}."
        return refuse(StageMismatch(cause))
    if (error := _first_fault(ledger, request, given)) is not None:
        return refuse(error)
    terms = resolve(queue, messages, given.answers, now_ms, is_bare=are_bare(messages))
    if (error := _refusal(ledger, queue, messages, terms, given)) is not None:
        return refuse(error)
    sequence, place = ledger.next_sequence, (request.sink, request.batch, request.part)
    sizes, starts, bodies, heads = packed(messages, sequence)
    record = records.Staged(sequence, queue.name, sizes, starts, terms, *place, _correlation_ids(messages), heads)
    return Decision([record], answer, bodies)


def _is_published(sink: SinkState | None, batch: int) -> bool:
    return sink is not None and sink.batch is not None and batch <= sink.batch


def _stage_fault(queue: Queue, request: Stage) -> str | None:
    fault = (
        _sink_fault(queue, request.sink)
        or whole_fault("batch", request.batch, least=0, most=_BATCH_MOST)
        or text_fault("A part", request.part, most=limits.PART_NAME_LENGTH_MAX)
        or whole_fault("at", request.at, least=0, most=_BATCH_MOST)
    )
    if fault is None:
        fault = excess_of("messages", request.messages, "BATCH_MAX")
    sink = queue.sinks.get(request.sink)
    is_new = sink is not None and (request.batch, request.part) not in sink.parts
    if fault is None and sink is not None and is_new and len(sink.parts) >= limits.PARTS_MAX:
        fault = f"Sink {sink.name!r} has {limits.PARTS_MAX} parts (PARTS_MAX). Publish them first."
    return fault


def _sink_fault(queue: Queue, name: str) -> str | None:
    fault = text_fault("A sink's name", name, most=limits.SINK_NAME_LENGTH_MAX)
    if fault is None and name not in queue.sinks and len(queue.sinks) >= limits.SINKS_MAX:
        fault = f"Queue {queue.name!r} has {limits.SINKS_MAX} sinks (SINKS_MAX). Drop one first."
    return fault


def _first_fault(ledger: Ledger, request: Stage, given: Given) -> FairlaneError | None:
    faults: Iterable[FairlaneError | None] | None = given.faults
    if faults is None:
        faults = (message_fault(message, ledger.limits.payload_bytes_max) for message in request.messages)
    error = next((fault for fault in faults if fault is not None), None)
    if error is None and any(message.dedup_id is not None for message in request.messages):
        error = InvalidArgument("A staged message cannot have a dedup id: its part and position make it unique.")
    if error is None and any(message.unique_key is not None for message in request.messages):
        error = InvalidArgument(
            "A staged message cannot have a unique key: only when it is published is it known to be unique."
        )
    if error is None and any(message.upload is not None for message in request.messages):
        error = InvalidArgument("A staged message must include its payload; to stream payloads, use enqueue.")
    return error


def _refusal(
    ledger: Ledger, queue: Queue, messages: Sequence[NewMessage], terms: Terms, given: Given
) -> FairlaneError | None:
    """Return why valid messages are not staged: their producer may not enqueue one, or there is no room for it."""
    refused: Mapping[int, FairlaneError] = {}
    if given.producer is not None or not queue.policy.producer_weights:
        refused = forbidden(queue, messages, terms.keys, given.producer)
    refused = refused or refusals(QueueRoom(ledger, queue), messages, terms)
    refusal = next(iter(refused.values()), None)
    return _never_fits(ledger, queue, messages) or refusal if isinstance(refusal, FullError) else refusal


def _never_fits(ledger: Ledger, queue: Queue, messages: Sequence[NewMessage]) -> InvalidArgument | None:
    """Return the limit that messages exceed because they come as a whole, or None if they may find room later."""
    size = sum(len(message.payload) for message in messages)
    count = len(messages)
    for whose, known in ((f"of queue {queue.name!r}", queue.policy), ("of all queues together", ledger.limits)):
        for name, amount, most in (
            ("waiting_max", count, known.waiting_max),
            ("waiting_bytes_max", size, known.waiting_bytes_max),
        ):
            if not fits(amount, most):
                cause = f"{count} messages of {size} bytes must be staged together, but {name} {whose} is {most}."
                return InvalidArgument(f"{cause} Stage fewer at a time, or raise the limit.")
    return None


def _correlation_ids(messages: Sequence[NewMessage]) -> list[str | None] | None:
    ids = [message.correlation_id for message in messages]
    return ids if ids.count(None) < len(ids) else None


# ---------------------------------------------------------------------------------------------------------- publishing


def publish(ledger: Ledger, request: Publish, now_ms: int, given: Given) -> Decision[PublishResult]:
    """Publish the named parts of a batch, and drop everything else that is staged up to this batch."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (forbids := forbidden_sink(queue.name, request.sink, given.producer)) is not None:
        return refuse(forbids)
    if (fault := _publish_fault(queue, request)) is not None:
        return refuse(InvalidArgument(fault))
    sink = queue.sinks.get(request.sink) or SinkState(request.sink)
    if _is_published(sink, request.batch):
        count = sink.messages if request.batch == sink.batch else 0
        return Decision([], PublishResult(count=count, was_published=True))
    missing = [part for part in request.parts if (request.batch, part) not in sink.parts]
    if missing:
        cause = f"Batch {request.batch} of sink {sink.name!r} has no staged part {missing[0]!r:.150}."
        return refuse(StageMismatch(cause))
    numbers = [number for part in request.parts for number in sink.parts[request.batch, part].numbers()]
    found = _unstaged(ledger, queue, sink, through=request.batch, but=(request.batch, set(request.parts)))
    sequence = ledger.next_sequence + sum(record.count for record in found)
    if numbers:
        messages = [queue.staged[number] for number in numbers]
        sizes, terms = [message.size for message in messages], terms_of(messages, now_ms)
        found.append(records.Published(sequence, queue.name, numbers, sink.name, request.batch, sizes, terms))
        sequence += len(numbers)
    found.append(SinkSet(sequence, queue.name, sink.name, request.batch, len(numbers), request.batch))
    return Decision(found, PublishResult(count=len(numbers), was_published=False))


def _publish_fault(queue: Queue, request: Publish) -> str | None:
    fault = _sink_fault(queue, request.sink) or whole_fault("batch", request.batch, least=0, most=_BATCH_MOST)
    if fault is not None:
        return fault
    parts = request.parts
    if not isinstance(parts, (list, tuple)) or not all(type(part) is str for part in parts):
        return f"parts must be a list of names, not {parts!r:.100}."
    if len(set(parts)) < len(parts):
        return "parts must not name a part twice."
    if (fault := excess_of("parts", parts, "PARTS_MAX")) is not None:
        return fault
    return None


def _unstaged(
    ledger: Ledger, queue: Queue, sink: SinkState, *, through: int | None, but: tuple[int, set[str]] = (0, set())
) -> list[AnyRecord]:
    """Return the records by which what is staged up to a batch, but for some parts of one, is gone."""
    numbers = [
        number
        for (batch, name), part in sink.parts.items()
        if (through is None or batch <= through) and not (batch == but[0] and name in but[1])
        for number in part.numbers()
    ]
    return [Removed(ledger.next_sequence, queue.name, numbers, "unstaged")] if numbers else []


def terms_of(messages: Sequence[Message], now_ms: int) -> Terms:
    """Return the terms of staged messages, with delays and deadlines counted from now."""
    terms = Terms(
        [message.key for message in messages],
        [message.weight for message in messages],
        [message.cost for message in messages],
    )
    if not all([message.after is None for message in messages]):  # noqa: C419 - a list is faster, and this may be long
        terms.caps = [None if message.after is None else message.after.cap for message in messages]
        terms.max_attempts = [None if message.after is None else message.after.max_attempts for message in messages]
        terms.visibilities_ms = [None if message.after is None else message.after.visibility_ms for message in messages]
        terms.result_ttls_ms = [None if message.after is None else message.after.result_ttl_ms for message in messages]
        terms.order_keys = [None if message.after is None else message.after.order_key for message in messages]
    if not all([message.plain for message in messages]):  # noqa: C419 - see above
        terms.priorities = [int(message.priority) for message in messages]
        terms.throttles = [list(message.throttles) for message in messages]
        terms.due_ms = [None if m.due_ms is None else m.due_ms + now_ms - m.enqueued_ms for m in messages]
        terms.deadlines_ms = [
            None if m.deadline_ms is None else m.deadline_ms + now_ms - m.enqueued_ms for m in messages
        ]
    return collapse(terms)


def _later(instants_ms: list[int | None], by_ms: list[int]) -> list[int | None]:
    return [None if at_ms is None else at_ms + more for at_ms, more in zip(instants_ms, by_ms, strict=True)]


# -------------------------------------------------------------------------------------------------------- letting go


def unstage(ledger: Ledger, request: Unstage, _now_ms: int, _given: Given) -> Decision[None]:
    """Drop what is staged for a sink. The sink still knows what it has published."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    sink = queue.sinks.get(request.sink)
    if sink is None or not sink.parts:
        return Decision([], None)
    found = _unstaged(ledger, queue, sink, through=None)
    sequence = ledger.next_sequence + sum(record.count for record in found)
    through = max(batch for batch, _ in sink.parts)
    return Decision([*found, SinkSet(sequence, queue.name, sink.name, sink.batch, sink.messages, through)], None)


def drop(ledger: Ledger, request: DropSink, _now_ms: int, given: Given) -> Decision[MessageCount]:
    """Drop what is staged for a sink, and forget the sink. The outcome is the number of messages that were staged."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    sink = queue.sinks.get(request.sink)
    if sink is None:
        return refuse(SinkNotFound(f"Queue {queue.name!r} has no sink {request.sink!r:.150}."))
    found = _unstaged(ledger, queue, sink, through=None)
    count = sum(record.count for record in found)
    return Decision(
        [*found, SinkRemoved(ledger.next_sequence + count, queue.name, sink.name, given.by)], MessageCount(count=count)
    )


DECIDERS: Final[Deciders] = {Stage: stage, Publish: publish, Unstage: unstage, DropSink: drop}
