"""Registered consumers: who may claim, what a claim holds, and how it ends.

A consumer has at most one open claim. It is answered again until the consumer says that it is done, which acks what is
still leased under it; only then another is made. So a consumer that dies and comes back finds what it had.
"""

from __future__ import annotations

from fairlane.core.checks import text_fault, whole_fault
from fairlane.core.commands import Claim, RegisterConsumer, ReleaseConsumer, Unclaim
from fairlane.core.decision import Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, OpenClaim, Queue, RegisteredConsumer
from fairlane.errors import ConsumerFenced, ConsumerNotFound, FairlaneError, InvalidArgument
from fairlane.journal.records import Acked, AnyRecord, ClaimsEnded, ConsumerRemoved, ConsumerSet, Leased, Returned
from fairlane.model import claims, limits
from fairlane.model.message import NEVER_MS


def register(ledger: Ledger, command: RegisterConsumer, now_ms: int) -> Decision:
    """Register a consumer. The outcome is what it is now; claims it had before are still its own."""
    queue = known_queue(ledger, command.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _registration_fault(queue, command)) is not None:
        return refuse(InvalidArgument(fault))
    sequence = ledger.next_sequence
    known = queue.consumers.get(command.consumer) or RegisteredConsumer(command.consumer)
    view = claims.ConsumerView(
        queue=queue.name,
        name=known.name,
        epoch=sequence,
        claimed=known.claimed,
        done=known.done,
        open_messages=0 if known.claim is None else len(known.claim.held(queue)),
        heard_ms=now_ms,
        idle_ms=command.idle_ms,
    )
    return Decision([ConsumerSet(sequence, queue.name, command.consumer, command.idle_ms)], view)


def _registration_fault(queue: Queue, command: RegisterConsumer) -> str | None:
    fault = text_fault("A consumer's name", command.consumer, most=limits.CONSUMER_NAME_LENGTH_MAX)
    if fault is None and command.idle_ms is not None:
        fault = whole_fault("idle_ms", command.idle_ms, least=1, most=limits.TIMESPAN_MS_MAX)
    is_new = command.consumer not in queue.consumers
    if fault is None and is_new and len(queue.consumers) >= limits.CONSUMERS_MAX:
        fault = f"Queue {queue.name!r} has CONSUMERS_MAX consumers, {limits.CONSUMERS_MAX}: release one first."
    return fault


def _known(ledger: Ledger, queue: str, consumer: str) -> tuple[Queue, RegisteredConsumer] | FairlaneError:
    found = known_queue(ledger, queue)
    if isinstance(found, FairlaneError):
        return found
    known = found.consumers.get(consumer)
    if known is None:
        return ConsumerNotFound(f"Queue {queue!r} has no consumer {consumer!r:.150}.")
    return found, known


def claim(ledger: Ledger, command: Claim, _now_ms: int) -> Decision:
    """End claims and make the next. The outcome is a claim, or None where first something must be picked for it."""
    known = _known(ledger, command.queue, command.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    queue, consumer = known
    if command.epoch != consumer.epoch:
        cause = f"Consumer {consumer.name!r} of queue {queue.name!r} is at epoch {consumer.epoch}"
        return refuse(ConsumerFenced(f"{cause}, not at {command.epoch!r:.30}."))
    if (fault := whole_fault("done", command.done, least=0, most=consumer.claimed)) is not None:
        return refuse(InvalidArgument(fault))
    records: list[AnyRecord] = []
    opened = consumer.claim
    if opened is not None and opened.number <= command.done:
        records = _ended(ledger, queue, consumer, opened)
    elif opened is not None:
        return Decision([], _claim(queue, opened))
    if command.picked is None and command.count:
        return Decision(records, None)
    if not command.picked:
        return Decision(records, claims.Claim(number=command.done, count=0, size_bytes=0))
    sequence = ledger.next_sequence + sum(record.count for record in records)
    number = consumer.claimed + 1
    records.append(Leased(sequence, queue.name, command.picked, NEVER_MS, consumer.name, command.picking, claim=number))
    size = sum(queue.messages[at].size for at in command.picked)
    return Decision(records, claims.Claim(number=number, count=len(command.picked), size_bytes=size))


def _claim(queue: Queue, opened: OpenClaim) -> claims.Claim:
    size = sum(message.size for message in opened.held(queue))
    return claims.Claim(number=opened.number, count=len(opened.numbers), size_bytes=size)


def _ended(ledger: Ledger, queue: Queue, consumer: RegisteredConsumer, opened: OpenClaim) -> list[AnyRecord]:
    """Return the records by which a claim is done."""
    numbers = [message.number for message in opened.held(queue)]
    sequence = ledger.next_sequence
    records: list[AnyRecord] = [Acked(sequence, queue.name, numbers)] if numbers else []
    return [*records, ClaimsEnded(sequence + len(numbers), queue.name, consumer.name, opened.number)]


def _given_back(ledger: Ledger, queue: Queue, consumer: RegisteredConsumer) -> list[AnyRecord]:
    """Return the records by which what a consumer has claimed waits again, which is no failed attempt."""
    if consumer.claim is None:
        return []
    numbers = [message.number for message in consumer.claim.held(queue)]
    sequence = ledger.next_sequence
    records: list[AnyRecord] = [Returned(sequence, queue.name, numbers, "defer")] if numbers else []
    return [*records, ClaimsEnded(sequence + len(numbers), queue.name, consumer.name, consumer.claim.number)]


def unclaim(ledger: Ledger, command: Unclaim, _now_ms: int) -> Decision:
    """Give back what a consumer has claimed. It stays registered, and the number of the claim is not used again."""
    known = _known(ledger, command.queue, command.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    return Decision(_given_back(ledger, *known))


def release(ledger: Ledger, command: ReleaseConsumer, _now_ms: int) -> Decision:
    """Give back what a consumer has claimed, and forget it. The outcome is how many messages that were."""
    known = _known(ledger, command.queue, command.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    queue, consumer = known
    records = _given_back(ledger, queue, consumer)
    count = sum(record.count for record in records if isinstance(record, Returned))
    sequence = ledger.next_sequence + sum(record.count for record in records)
    return Decision([*records, ConsumerRemoved(sequence, queue.name, consumer.name, command.by)], count)
