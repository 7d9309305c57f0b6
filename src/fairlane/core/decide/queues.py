"""Queues: created, changed, paused, purged, deleted."""

from __future__ import annotations

from typing import Final

from fairlane.core.checks import key_fault
from fairlane.core.commands import DeleteEmptyQueue, Given, PurgePart, RecordRefusals
from fairlane.core.decide.cancel import given_back
from fairlane.core.decide.dead_letters import ended_with
from fairlane.core.decide.finished import ended
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Queue
from fairlane.errors import FairlaneError, InvalidArgument, QueueExists
from fairlane.journal.records import AnyRecord, QueuePaused, QueueRemoved, QueueSet, RefusedMessages, Removed
from fairlane.model.message import canonical
from fairlane.model.names import DLQ_SUFFIX, dlq_of, is_dlq, new_queue_name_fault
from fairlane.model.partitions import place_in
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.queues import (
    CreateQueue,
    DeleteQueue,
    EnsuredQueue,
    EnsureQueue,
    MessageCount,
    PauseQueue,
    PurgeQueue,
    ResumeQueue,
    UpdateQueue,
)
from fairlane.verbs.verb import Done


def create(ledger: Ledger, request: CreateQueue, _now_ms: int, given: Given) -> Decision[Done]:
    """Make a queue and its dead-letter queue."""
    fault = _name_fault(ledger, request.queue) or _dlq_fault(ledger, request.queue, given.policy or QueuePolicy())
    if fault is not None:
        return refuse(InvalidArgument(fault))
    if request.queue in ledger.queues:
        return refuse(QueueExists(f"Queue {request.queue!r} already exists."))
    return Decision(_created(ledger, request.queue, given), Done())


def ensure(ledger: Ledger, request: EnsureQueue, _now_ms: int, given: Given) -> Decision[EnsuredQueue]:
    """Make a queue and its dead-letter queue, unless it exists."""
    if (fault := _name_fault(ledger, request.queue)) is not None:
        return refuse(InvalidArgument(fault))
    queue = ledger.queues.get(request.queue)
    wanted = given.policy or QueuePolicy()
    if queue is not None:
        differing = [name for name in request.policy if getattr(wanted, name) != getattr(queue.policy, name)]
        return Decision([], EnsuredQueue(is_created=False, policy=queue.policy, differing=sorted(differing)))
    if (fault := _dlq_fault(ledger, request.queue, wanted)) is not None:
        return refuse(InvalidArgument(fault))
    return Decision(_created(ledger, request.queue, given), EnsuredQueue(is_created=True, policy=wanted))


def _name_fault(ledger: Ledger, name: str) -> str | None:
    """Return why no queue of this name can be here, or None if one can."""
    if (fault := new_queue_name_fault(name)) is not None:
        return fault
    if (place_in(name)[1] or 0) != ledger.partition:  # ids would tell another
        fault = "would be in the journal of a partition" if ledger.partition else "is the name of a partition"
        return f"{name!r} {fault}; to create partitions, split their queue."
    return None


def _created(ledger: Ledger, name: str, given: Given) -> list[AnyRecord]:
    policy, sequence = given.policy or QueuePolicy(), ledger.next_sequence
    dlq_policy = QueuePolicy(visibility_timeout_ms=policy.visibility_timeout_ms, max_attempts=0)
    return [QueueSet(sequence, name, policy, given.by), QueueSet(sequence + 1, dlq_of(name), dlq_policy, given.by)]


def _dlq_fault(ledger: Ledger, name: str, policy: QueuePolicy) -> str | None:
    """Return why a queue can't have the dead-letter queue that its policy names, or None if it can."""
    dlq = policy.dead_letter_queue
    if dlq is None or dlq == dlq_of(name) or ledger.partition:
        return None
    if is_dlq(name):
        return f"Queue {name!r} is a dead-letter queue and cannot have one itself. Leave out dead_letter_queue."
    if dlq not in ledger.queues:
        cause = f"Dead-letter queue {dlq!r:.150} of queue {name!r:.150} does not exist."
        return f"{cause} Create queue {dlq.removesuffix(DLQ_SUFFIX)!r:.150} first; in a cluster, in the same group."
    return _cycle_fault(ledger, name, dlq)


def _cycle_fault(ledger: Ledger, name: str, dlq: str) -> str | None:
    """Return which queues would pass their dead letters around for ever, or None if none would."""
    way = [name]
    at: str | None = dlq
    while at is not None and at not in way:
        way.append(at)
        at = None if is_dlq(at) else ledger.queues[at].policy.dead_letter_queue
    if at is None:
        return None
    return f"Dead letters would go in a circle: {' to '.join([*way, at])[:300]}. Choose a queue outside it."


def update(ledger: Ledger, request: UpdateQueue, _now_ms: int, given: Given) -> Decision[Done]:
    """Change the policy of a queue."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    policy = given.policy if given.policy is not None else queue.policy
    if (fault := policy.fault() or _dlq_fault(ledger, queue.name, policy)) is not None:
        return refuse(InvalidArgument(fault))
    return Decision([QueueSet(ledger.next_sequence, queue.name, policy, given.by)], Done())


def delete(ledger: Ledger, request: DeleteQueue, now_ms: int, given: Given) -> Decision[Done]:
    """Delete a queue and its dead-letter queue, with everything in them."""
    if (fault := deletion_fault(ledger, request)) is not None:
        return refuse(fault)
    return Decision(_removed(ledger, ledger.queues[request.queue], given.by, now_ms), Done())


def deletion_fault(ledger: Ledger, request: DeleteQueue) -> FairlaneError | None:
    """Return why a queue can't be deleted, or None if it can."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return queue
    if is_dlq(queue.name):
        return InvalidArgument(f"Queue {queue.name!r} is deleted with its queue; delete or purge that one.")
    ours = (queue.name, dlq_of(queue.name))
    others = (other for other in ledger.queues.values() if other is not queue)
    users = [other for other in others if other.policy.dead_letter_queue in ours]
    if not users:
        return None
    names = ", ".join(user.name for user in users)[:150]
    cause = f"Queue {users[0].policy.dead_letter_queue!r} is the dead-letter queue of {names}."
    return InvalidArgument(f"{cause} Set another dead_letter_queue there first.")


def delete_empty(ledger: Ledger, request: DeleteEmptyQueue, now_ms: int, _given: Given) -> Decision[bool]:
    """Delete a queue and its dead-letter queue if both are empty. The outcome is whether it was deleted."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if queue.messages or queue.staged or ledger.queues[dlq_of(queue.name)].messages:
        return Decision([], outcome=False)
    return Decision(_removed(ledger, queue, request.by, now_ms), outcome=True)


def _removed(ledger: Ledger, queue: Queue, by: str | None, now_ms: int) -> list[AnyRecord]:
    names = (queue.name, dlq_of(queue.name))
    records = ended_with(ledger, set(names), now_ms)
    for name in names:
        records.append(QueueRemoved(ledger.next_sequence + len(records), name, by))
    return records


def pause(ledger: Ledger, request: PauseQueue, _now_ms: int, given: Given) -> Decision[Done]:
    """Stop delivery of a queue or of one fairness key."""
    return _set_paused(ledger, request, given, is_paused=True)


def resume(ledger: Ledger, request: ResumeQueue, _now_ms: int, given: Given) -> Decision[Done]:
    """Resume delivery of a queue or of one fairness key."""
    return _set_paused(ledger, request, given, is_paused=False)


def _set_paused(ledger: Ledger, request: PauseQueue | ResumeQueue, given: Given, *, is_paused: bool) -> Decision[Done]:
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if request.key is not None and (fault := key_fault(request.key)) is not None:
        return refuse(InvalidArgument(fault))
    key = None if request.key is None else canonical(request.key)
    was_paused = queue.is_paused if key is None else key in queue.paused_keys
    if was_paused == is_paused:
        return Decision([], Done())
    return Decision([QueuePaused(ledger.next_sequence, queue.name, is_paused, key, given.by)], Done())


def purge(ledger: Ledger, request: PurgeQueue, now_ms: int, given: Given) -> Decision[MessageCount]:
    """Remove what is not leased, or everything. The outcome is how many messages that were."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    everything = PurgePart(queue=queue.name, numbers=list(queue.messages), with_leased=request.with_leased)
    decision = purge_part(ledger, everything, now_ms, given)
    count = len(decision.outcome) if isinstance(decision.outcome, list) else 0
    return Decision(decision.records, MessageCount(count=count))


def purge_part(ledger: Ledger, command: PurgePart, now_ms: int, _given: Given) -> Decision[list[int]]:
    """Remove those of some messages that are still there and not leased, or also those that are leased.

    A leased message is returned first, so those who follow the records need to know of no other way out of a lease.
    """
    queue = known_queue(ledger, command.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    known = (queue.messages[number] for number in sorted(command.numbers) if number in queue.messages)
    messages = [message for message in known if command.with_leased or not message.token]
    records = given_back(queue, messages, ledger.next_sequence, now_ms)
    sequence = ledger.next_sequence + sum(record.count for record in records)
    numbers = [message.number for message in messages]
    if messages:
        records.append(Removed(sequence, queue.name, numbers, "purged", ended(messages, "purged", now_ms)))
    return Decision(records, numbers)


def record_refusals(ledger: Ledger, command: RecordRefusals, _now_ms: int, _given: Given) -> Decision[None]:
    """Record which messages a limit kept out, unless their queue was deleted meanwhile."""
    if command.queue not in ledger.queues:
        return Decision([], None)
    columns = (command.keys, command.messages, command.costs)
    return Decision([RefusedMessages(ledger.next_sequence, command.queue, command.code, *columns)], None)


DECIDERS: Final[Deciders] = {
    CreateQueue: create,
    EnsureQueue: ensure,
    UpdateQueue: update,
    DeleteQueue: delete,
    DeleteEmptyQueue: delete_empty,
    PauseQueue: pause,
    ResumeQueue: resume,
    PurgeQueue: purge,
    PurgePart: purge_part,
    RecordRefusals: record_refusals,
}
