"""A ledger as plain values for comparison; it reads only the fields of the ledger."""

from __future__ import annotations

from typing import Any

from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.producer_numbers import ProducerNumbers
from fairlane.core.states.aftermath import Aftermath
from fairlane.core.states.claims import RegisteredConsumer
from fairlane.core.states.sinks import SinkState
from fairlane.journal import codec
from fairlane.model.broker_limits import Limits
from fairlane.ports.store import Store


def message_picture(message: Message) -> dict[str, Any]:
    after = message.after if message.after is not None else Aftermath()
    return {
        "number": message.number,
        "queue": message.queue.name,
        "chunk": message.body_number,
        "size": message.size,
        "terms": (message.key, message.weight, message.cost, int(message.priority), tuple(message.throttles)),
        "times": (message.enqueued_ms, message.due_ms, message.deadline_ms, message.joined),
        "lease": (message.token, message.expires_ms, message.owner),
        "attempts": (message.attempts, message.failures, message.expiries),
        "errors": tuple(after.errors),
        "dead": (after.origin, after.dead_reason, after.dead_ms),
        "state": (after.state, after.state_bytes),
        "delivered": message.delivered_bytes,
        "cap": after.cap,
        "unique": after.unique_key,
    }


def consumer_picture(consumer: RegisteredConsumer) -> dict[str, Any]:
    claim = consumer.claim
    return {
        "numbers": (consumer.epoch, consumer.claimed, consumer.done),
        "times": (consumer.heard_ms, consumer.idle_ms),
        "claim": None if claim is None else (claim.number, claim.token, list(claim.numbers)),
    }


def sink_picture(sink: SinkState) -> dict[str, Any]:
    return {
        "published": (sink.batch, sink.messages),
        "heard_ms": sink.heard_ms,
        "parts": {place: (part.numbers(), part.count, part.size) for place, part in sink.parts.items()},
    }


def queue_picture(queue: Queue, at_ms: int) -> dict[str, Any]:
    tallies = queue.tallies
    return {
        "policy": queue.policy,
        "created_ms": queue.created_ms,
        "paused": (queue.is_paused, sorted(queue.paused_keys, key=str)),
        "messages": {number: message_picture(message) for number, message in queue.messages.items()},
        "consumers": {name: consumer_picture(consumer) for name, consumer in queue.consumers.items()},
        "sinks": {name: sink_picture(sink) for name, sink in queue.sinks.items()},
        "staged": {number: message_picture(message) for number, message in queue.staged.items()},
        "counts": (queue.leased, queue.claimed, queue.size, queue.staged_size),
        "uniques": dict(queue.uniques),
        "dedups": {name: entry for name, entry in queue.dedups.items() if entry[1] > at_ms},
        "tallies": None if tallies is None else {key: (tally.messages, tally.size) for key, tally in tallies.items()},
    }


def _numbers_picture(numbers: ProducerNumbers, at_ms: int) -> list[tuple[Any, ...]]:
    runs = [(*owner.name, owner.floor, run) for owner, run in numbers.all_runs() if run.until_ms > at_ms]
    floors = [(*known.name, known.floor, known.floor_until_ms) for known in numbers.floors()]
    return [*runs, *(floor for floor in floors if floor[-1] > at_ms)]


def contents(ledger: Ledger) -> dict[str, Any]:
    """Return what users see: queues with their messages, and config."""
    return {
        "queues": {name: queue_picture(queue, ledger.at_ms) for name, queue in ledger.queues.items()},
        "config": dict(ledger.config),
        "temporary": {key: (one.expires_ms, one.before) for key, one in ledger.temporary.items()},
        "counts": (ledger.messages, ledger.size),
    }


def picture(ledger: Ledger) -> dict[str, Any]:
    """Return everything that the journal determines, including its own state."""
    homes = [home for home in ledger.dedup_homes if home.until_ms > ledger.at_ms]
    return {
        **contents(ledger),
        "sequence": (ledger.next_sequence, ledger.at_ms),
        "journal": (ledger.journal_id, ledger.journal_since),
        "readers": dict(ledger.readers),
        "segments": (list(ledger.segments), ledger.segment_first, ledger.segment_first_ms),
        "bases": (ledger.trimmed, ledger.base, ledger.baseline),
        "chunks": [(chunk.queue, chunk.number, chunk.home, chunk.live) for chunk in ledger.chunks.values()],
        "callers": [
            (caller, known.home, numbers)
            for caller, known in ledger.producer_numbers.items()
            if (numbers := _numbers_picture(known, ledger.at_ms))
        ],
        "dedup_homes": [(home.queue, home.until_ms, home.home, dict(home.numbers)) for home in homes],
    }


def folded(store: Store, base: int, limits: Limits) -> Ledger:
    """Return the fold of the journal from the base on, starting with an empty ledger."""
    ledger = Ledger(limits)
    ledger.next_sequence = ledger.base = base
    for stored in store.pages(base - 1):
        page = codec.decode(stored.page)
        for record in page.records:
            if record.sequence >= base:
                apply(ledger, record, page.at_ms)
    return ledger
