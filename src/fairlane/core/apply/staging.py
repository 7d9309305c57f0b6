"""What records of sinks and of what is staged for them change."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.core.apply.counting import tally_in, tally_out
from fairlane.core.apply.fan_outs import end_fan_outs, settle_members
from fairlane.core.apply.finished import remember
from fairlane.core.apply.messages import drop_chunk, take_in, take_out
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.states.sinks import Part, SinkState
from fairlane.journal.records import Published, Removed, SinkImage, SinkRemoved, SinkSet, Staged


def staged(ledger: Ledger, record: Staged, at_ms: int) -> list[Message]:
    """Stage new messages until their batch is published."""
    queue = ledger.queues[record.queue]
    messages = take_in(ledger, queue, record, at_ms, among=queue.staged)
    size = sum(record.sizes)
    count_staged(ledger, queue, messages, size)
    if not record.sink:
        return []  # it waits for the members of its fan-out, and belongs to no batch
    sink = _sink(queue, record.sink)
    part = sink.parts.get((record.batch, record.part))
    if part is None:
        part = sink.parts[record.batch, record.part] = Part()
    part.add(record.sequence, len(messages))
    part.size += size
    sink.heard_ms = at_ms
    return []


def count_staged(ledger: Ledger, queue: Queue, messages: list[Message], size: int) -> None:
    """Add messages that are staged to the sums, and let them be in no line."""
    for message in messages:
        message.joined = 0
        tally_in(queue, message.key, message.size)
    queue.staged_size += size
    ledger.size += size
    ledger.messages += len(messages)


def _sink(queue: Queue, name: str) -> SinkState:
    sink = queue.sinks.get(name)
    if sink is None:
        sink = queue.sinks[name] = SinkState(name)
    return sink


def published(ledger: Ledger, record: Published, at_ms: int) -> list[Message]:
    """Move staged messages to their queue, as if they had just been enqueued."""
    queue = ledger.queues[record.queue]
    pop, waiting, terms = queue.staged.pop, queue.messages, record.terms
    messages: list[Message] = []
    size = 0
    for line, number in enumerate(record.numbers, record.sequence):
        message = pop(number, None)
        if message is not None:
            message.joined = line
            message.enqueued_ms = message.since_ms = at_ms
            size += message.size
            waiting[number] = message
            messages.append(message)
    if terms.due_ms is not None or terms.deadlines_ms is not None:
        _set_times(record, messages)
    queue.staged_size -= size
    queue.size += size
    end_fan_outs(ledger, record, at_ms)
    return messages


def _set_times(record: Published, messages: list[Message]) -> None:
    nothing: list[int | None] = [None] * len(record.numbers)
    due_ms, deadlines_ms = record.terms.due_ms or nothing, record.terms.deadlines_ms or nothing
    times = dict(zip(record.numbers, zip(due_ms, deadlines_ms, strict=True), strict=True))
    for message in messages:
        due, deadline = times[message.number]
        message.set_times(due_ms=due, deadline_ms=deadline)


def removed(ledger: Ledger, record: Removed, _at_ms: int) -> list[Message]:
    """Remove messages."""
    if record.reason != "unstaged":
        if record.finished is not None:
            remember(ledger, record.finished, record.sequence)
        settle_members(ledger, record, is_done=False)
        return take_out(ledger, record)
    unstage(ledger, ledger.queues[record.queue], record.numbers)
    return []


def unstage(ledger: Ledger, queue: Queue, numbers: Iterable[int]) -> None:
    """Drop staged messages, and their chunks from the store."""
    pop = queue.staged.pop
    for number in numbers:
        message = pop(number, None)
        if message is None:
            continue
        queue.staged_size -= message.size
        ledger.size -= message.size
        ledger.messages -= 1
        tally_out(queue, message.key, message.size)
        chunk = message.chunk
        chunk.live -= 1
        if chunk.is_shared or not chunk.live:
            drop_chunk(ledger, message)


def sink_set(ledger: Ledger, record: SinkSet, at_ms: int) -> list[Message]:
    """Note up to which batch a sink has published."""
    sink = _sink(ledger.queues[record.queue], record.name)
    sink.batch, sink.messages, sink.heard_ms = record.batch, record.messages, at_ms
    sink.parts = {place: part for place, part in sink.parts.items() if place[0] > record.through}
    return []


def sink_removed(ledger: Ledger, record: SinkRemoved, _at_ms: int) -> list[Message]:
    """Forget a sink."""
    del ledger.queues[record.queue].sinks[record.name]
    return []


def revive_sink(queue: Queue, image: SinkImage) -> None:
    """Restore a sink from a baseline, where recovery begins."""
    sink = _sink(queue, image.name)
    sink.batch, sink.messages, sink.heard_ms = image.batch, image.messages, image.heard_ms
    for known in image.parts:
        part = sink.parts[known.batch, known.name] = Part()
        for first, count in known.runs:
            part.add(first, count)
        part.size = known.size
