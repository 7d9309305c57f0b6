"""Claims of registered consumers: durable batches that can be read again until they are completed."""

from __future__ import annotations

from typing import cast

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Request
from fairlane.broker.views.deliveries import delivered
from fairlane.broker.views.queues import known
from fairlane.core.commands import Claim
from fairlane.core.ledger import Ledger
from fairlane.errors import ClaimNotFound, ConsumerNotFound
from fairlane.model.claims import Claimed


def take_claim(executor: Executor, request: Request, cycle: Cycle) -> None:
    """Complete the claims that a request says are done, and answer unless messages are to be picked.

    Picking comes at the end of the cycle, after the consumers that wait were served, since they have waited longer.
    """
    command = cast("Claim", request.command)
    executor.schedule.presence.hear(command.queue, command.consumer, cycle.now_ms)
    outcome = executor.execute(command, cycle)
    if outcome is None:
        cycle.claims.append(request)
    else:
        cycle.answer(request.reply, outcome)


def serve_claims(executor: Executor, cycle: Cycle, *, handed_out_max: int) -> None:
    """Lease what claims want, each claim as a whole; once the cycle is full the others wait for the next."""
    is_first = True
    while cycle.claims:
        request = cycle.claims[0]
        if is_first or cycle.handed_out < handed_out_max:
            cycle.answer(request.reply, _claim(executor, cast("Claim", request.command), cycle))
        else:
            executor.submit(request)
        cycle.claims.pop(0)
        is_first = False


def _claim(executor: Executor, command: Claim, cycle: Cycle) -> object:
    outcome = executor.execute(command, cycle)  # again: the requests in between may have changed the answer
    if outcome is not None:
        return outcome
    picked = executor.schedule.pick(command.queue, command.count, cycle.now_ms, size_bytes=command.size_bytes)
    command.picked = [message.number for message in picked]
    cycle.handed_out += len(picked)
    if picked:
        command.picking = executor.schedule.last_picking(command.queue, picked)
    return executor.execute(command, cycle)


def read_claim(
    ledger: Ledger, bodies: Bodies, *, queue: str, consumer: str, claim: int, start: int, count: int
) -> Claimed:
    """Return some messages of a claim, by their positions in it. The answer is the same until the claim is completed.

    Raises:
        QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim, or it is over.
    """
    found = known(ledger, queue)
    registered = found.consumers.get(consumer)
    if registered is None:
        raise ConsumerNotFound(f"Queue {queue!r} has no consumer {consumer!r:.150}.")
    opened = registered.claim
    if opened is None or opened.number != claim:
        state = "is over" if claim <= registered.claimed else "was not made"
        raise ClaimNotFound(f"Claim {claim} of consumer {consumer!r} of queue {queue!r} {state}.")
    messages = opened.held(found, start, start + count)
    tokens = [message.token for message in messages]
    return Claimed(deliveries=delivered(bodies, queue, messages, tokens), total=len(opened.numbers))
