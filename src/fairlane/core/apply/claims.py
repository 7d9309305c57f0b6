"""What records of registered consumers and their claims change."""

from __future__ import annotations

from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.states.claims import OpenClaim, RegisteredConsumer
from fairlane.journal.records import ClaimsEnded, ConsumerImage, ConsumerRemoved, ConsumerSet, Leased


def consumer_set(ledger: Ledger, record: ConsumerSet, at_ms: int) -> list[Message]:
    """Register a consumer, in a new epoch."""
    consumers = ledger.queues[record.queue].consumers
    consumer = consumers.get(record.name)
    if consumer is None:
        consumer = consumers[record.name] = RegisteredConsumer(record.name)
    consumer.epoch, consumer.idle_ms, consumer.heard_ms = record.sequence, record.idle_ms, at_ms
    return []


def consumer_removed(ledger: Ledger, record: ConsumerRemoved, _at_ms: int) -> list[Message]:
    """Forget a registered consumer."""
    del ledger.queues[record.queue].consumers[record.name]
    return []


def claims_ended(ledger: Ledger, record: ClaimsEnded, at_ms: int) -> list[Message]:
    """End the claims of a consumer."""
    consumer = ledger.queues[record.queue].consumers[record.name]
    consumer.done, consumer.heard_ms, consumer.claim = record.through, at_ms, None
    return []


def enter_claim(queue: Queue, record: Leased, number: int, messages: list[Message], at_ms: int) -> None:
    """Make messages that have just been leased the open claim of their owner."""
    consumer = queue.consumers[record.owner or ""]
    consumer.claim = OpenClaim(number, record.sequence, record.numbers)
    consumer.claimed, consumer.heard_ms = number, at_ms
    queue.claimed += len(messages)


def revive_consumer(queue: Queue, image: ConsumerImage) -> None:
    """Restore a consumer from a baseline, where recovery begins."""
    consumer = queue.consumers[image.name] = RegisteredConsumer(image.name)
    consumer.epoch, consumer.claimed, consumer.done = image.epoch, image.claimed, image.done
    consumer.heard_ms, consumer.idle_ms = image.heard_ms, image.idle_ms
    if image.claim is not None:
        consumer.claim = OpenClaim(image.claim.number, image.claim.token, image.claim.numbers)
