"""What becomes of a message whose lease did not end with an acknowledgement: when it is retried, or why it is dead."""

from __future__ import annotations

from fairlane.core.commands import Given
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.journal.records import LOST, DeadReason, ReturnReason
from fairlane.model.answers import FailureAnswer
from fairlane.model.names import dlq_of, is_dlq
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.leases import Nack


def fate_of(queue: Queue, message: Message, request: Nack, given: Given, row: int, now_ms: int) -> int | DeadReason:
    """Return not before when a message may go again (0 for at once), or why it is dead."""
    if request.intent == "defer":
        return now_ms + request.delay_ms if request.delay_ms else 0
    can_die = not is_dlq(queue.name)
    if request.intent == "dead" and can_die:
        return "requested"
    answer = given.verdicts[row] if given.verdicts is not None else None
    if answer is not None and answer.is_dead and can_die:
        return "hook"
    if answer is None and can_die and (limit := _limit_reached(queue.policy, message, given.reason)) is not None:
        return limit
    delay_ms = _delay(queue.policy, message, request, answer, given, row)
    return now_ms + delay_ms if delay_ms else 0


def shared_dlq(ledger: Ledger, queue: Queue) -> str | None:
    """Return the dead-letter queue that a policy names, or None for the queue's own.

    A partition is in another journal than the queue that the policy of the whole names, and keeps its dead letters.
    """
    name = queue.policy.dead_letter_queue
    return name if name is not None and name != dlq_of(queue.name) and name in ledger.queues else None


def _limit_reached(policy: QueuePolicy, message: Message, reason: ReturnReason) -> DeadReason | None:
    """Return the limit of the policy that a message reaches with this attempt, or None."""
    if reason in LOST:
        return "max_expiries" if 0 < policy.max_expiries <= message.expiries + 1 else None
    return "max_attempts" if 0 < message.max_attempts <= message.failures + 1 else None


def _delay(
    policy: QueuePolicy, message: Message, request: Nack, answer: FailureAnswer | None, given: Given, row: int
) -> int:
    if answer is not None and answer.delay_ms is not None:
        return answer.delay_ms
    if request.delay_ms is not None:
        return request.delay_ms
    if given.reason in LOST:
        return 0
    return backoff_ms(policy, message.failures + 1, given.dice[row] if given.dice else 0)


def backoff_ms(policy: QueuePolicy, failures: int, die: int) -> int:
    """Return the backoff after a number of failures, less the part that the die, from 0 to 999, takes off."""
    exponent = min(failures - 1, 64)
    whole = min(policy.backoff_ms * policy.backoff_factor**exponent, policy.backoff_max_ms)
    return int(whole * (1 - policy.backoff_jitter * die / 1000))
