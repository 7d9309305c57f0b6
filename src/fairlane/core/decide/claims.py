"""Registered consumers: who may claim, what a claim holds, and how it ends.

A consumer has at most one open claim. The broker returns the same claim until the consumer completes it, which
acknowledges what is still leased under it; only then can the consumer get another. So a consumer that dies and comes
back finds what it had.
"""

from __future__ import annotations

from typing import Final

from fairlane.core.checks import text_fault, whole_fault
from fairlane.core.commands import Given, Unclaim
from fairlane.core.decide.finished import ended
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Queue
from fairlane.core.states.claims import OpenClaim, RegisteredConsumer
from fairlane.errors import ConsumerFenced, ConsumerNotFound, FairlaneError, InvalidArgument
from fairlane.journal.records import Acked, AnyRecord, ClaimsEnded, ConsumerRemoved, ConsumerSet, Leased, Returned
from fairlane.model import claims, limits
from fairlane.model.message import NEVER_MS
from fairlane.verbs.batches import MakeClaim, RegisterConsumer, ReleaseConsumer
from fairlane.verbs.queues import MessageCount


def register(ledger: Ledger, request: RegisterConsumer, now_ms: int, _given: Given) -> Decision[claims.ConsumerView]:
    """Register a consumer. The outcome is what it is now; claims it had before are still its own."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _registration_fault(queue, request)) is not None:
        return refuse(InvalidArgument(fault))
    sequence = ledger.next_sequence
    known = queue.consumers.get(request.consumer) or RegisteredConsumer(request.consumer)
    view = claims.ConsumerView(
        queue=queue.name,
        name=known.name,
        epoch=sequence,
        claimed=known.claimed,
        done=known.done,
        open_messages=0 if known.claim is None else len(known.claim.held(queue)),
        heard_ms=now_ms,
        idle_ms=request.idle_ms,
    )
    return Decision([ConsumerSet(sequence, queue.name, request.consumer, request.idle_ms)], view)


def _registration_fault(queue: Queue, request: RegisterConsumer) -> str | None:
    fault = text_fault("A consumer's name", request.consumer, most=limits.CONSUMER_NAME_LENGTH_MAX)
    if fault is None and request.idle_ms is not None:
        fault = whole_fault("idle_ms", request.idle_ms, least=1, most=limits.TIMESPAN_MS_MAX)
    is_new = request.consumer not in queue.consumers
    if fault is None and is_new and len(queue.consumers) >= limits.CONSUMERS_MAX:
        fault = f"Queue {queue.name!r} has {limits.CONSUMERS_MAX} consumers (CONSUMERS_MAX). Release one first."
    return fault


def _known(ledger: Ledger, queue: str, consumer: str) -> tuple[Queue, RegisteredConsumer] | FairlaneError:
    found = known_queue(ledger, queue)
    if isinstance(found, FairlaneError):
        return found
    known = found.consumers.get(consumer)
    if known is None:
        return ConsumerNotFound(f"Queue {queue!r} has no consumer {consumer!r:.150}.")
    return found, known


def claim(ledger: Ledger, request: MakeClaim, now_ms: int, given: Given) -> Decision[claims.Claim | None]:
    """End claims and make the next. The outcome is a claim, or None where first something must be picked for it."""
    known = _known(ledger, request.queue, request.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    queue, consumer = known
    if request.epoch != consumer.epoch:
        cause = f"Consumer {consumer.name!r} of queue {queue.name!r} is at epoch {consumer.epoch}"
        return refuse(ConsumerFenced(f"{cause}, not at {request.epoch!r:.30}."))
    if (fault := whole_fault("done", request.done, least=0, most=consumer.claimed)) is not None:
        return refuse(InvalidArgument(fault))
    records: list[AnyRecord] = []
    opened = consumer.claim
    if opened is not None and opened.number <= request.done:
        records = _ended(ledger, queue, consumer, opened, now_ms)
    elif opened is not None:
        return Decision([], _claim(queue, opened))
    if given.picked is None and request.count:
        return Decision(records, None)
    if not given.picked:
        return Decision(records, claims.Claim(number=request.done, count=0, size_bytes=0))
    sequence = ledger.next_sequence + sum(record.count for record in records)
    number = consumer.claimed + 1
    records.append(Leased(sequence, queue.name, given.picked, NEVER_MS, consumer.name, given.picking, claim=number))
    size = sum(queue.messages.objects[at].size for at in given.picked)
    return Decision(records, claims.Claim(number=number, count=len(given.picked), size_bytes=size))


def _claim(queue: Queue, opened: OpenClaim) -> claims.Claim:
    size = sum(message.size for message in opened.held(queue))
    return claims.Claim(number=opened.number, count=len(opened.numbers), size_bytes=size)


def _ended(
    ledger: Ledger, queue: Queue, consumer: RegisteredConsumer, opened: OpenClaim, now_ms: int
) -> list[AnyRecord]:
    """Return the records by which a claim is done."""
    messages = opened.held(queue)
    numbers = [message.number for message in messages]
    sequence = ledger.next_sequence
    finished = ended(messages, "done", now_ms)
    records: list[AnyRecord] = [Acked(sequence, queue.name, numbers, finished=finished)] if numbers else []
    return [*records, ClaimsEnded(sequence + len(numbers), queue.name, consumer.name, opened.number)]


def _given_back(ledger: Ledger, queue: Queue, consumer: RegisteredConsumer) -> list[AnyRecord]:
    """Return the records by which what a consumer has claimed waits again, which is no failed attempt."""
    if consumer.claim is None:
        return []
    numbers = [message.number for message in consumer.claim.held(queue)]
    sequence = ledger.next_sequence
    records: list[AnyRecord] = [Returned(sequence, queue.name, numbers, "defer")] if numbers else []
    return [*records, ClaimsEnded(sequence + len(numbers), queue.name, consumer.name, consumer.claim.number)]


def unclaim(ledger: Ledger, request: Unclaim, _now_ms: int, _given: Given) -> Decision[None]:
    """Give back what a consumer has claimed. It stays registered, and the number of the claim is not used again."""
    known = _known(ledger, request.queue, request.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    return Decision(_given_back(ledger, *known), None)


def release(ledger: Ledger, request: ReleaseConsumer, _now_ms: int, given: Given) -> Decision[MessageCount]:
    """Give back what a consumer has claimed, and forget it. The outcome is how many messages that were."""
    known = _known(ledger, request.queue, request.consumer)
    if isinstance(known, FairlaneError):
        return refuse(known)
    queue, consumer = known
    records = _given_back(ledger, queue, consumer)
    count = sum(record.count for record in records if isinstance(record, Returned))
    sequence = ledger.next_sequence + sum(record.count for record in records)
    return Decision(
        [*records, ConsumerRemoved(sequence, queue.name, consumer.name, given.by)], MessageCount(count=count)
    )


DECIDERS: Final[Deciders] = {RegisterConsumer: register, MakeClaim: claim, Unclaim: unclaim, ReleaseConsumer: release}
