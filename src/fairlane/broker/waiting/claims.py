"""Claims of registered consumers: durable batches that can be read again until they are completed."""

from __future__ import annotations

from typing import cast

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.broker.views.deliveries import delivered
from fairlane.broker.views.queues import known
from fairlane.core.commands import Given
from fairlane.core.ledger import Ledger
from fairlane.errors import ClaimNotFound, ConsumerNotFound
from fairlane.model.claims import Claimed
from fairlane.verbs.batches import MakeClaim, ReadClaim


def take_claim(executor: Executor, call: Call, cycle: Cycle) -> None:
    """Complete the claims that a request says are done, and answer unless messages are to be picked.

    Picking comes at the end of the cycle, after the consumers that wait were served, since they have waited longer.
    """
    request = cast("MakeClaim", call.request)
    executor.schedule.presence.hear(request.queue, request.consumer, cycle.now_ms)
    outcome: object = executor.execute(request, cycle)
    if outcome is None:
        cycle.claims.append(call)
    else:
        cycle.answer(call.reply, outcome)


def serve_claims(executor: Executor, cycle: Cycle, *, handed_out_max: int) -> set[str]:
    """Lease what claims want, each claim as a whole; once the cycle is full the others wait for the next.

    Returns the queues of the claims that were answered.
    """
    queues: set[str] = set()
    while cycle.claims:
        call = cycle.claims[0]
        if not queues or cycle.handed_out < handed_out_max:
            request = cast("MakeClaim", call.request)
            cycle.answer(call.reply, _claim(executor, request, cycle))
            queues.add(request.queue)
        else:
            executor.submit(call)
        cycle.claims.pop(0)
    return queues


def _claim(executor: Executor, request: MakeClaim, cycle: Cycle) -> object:
    outcome: object = executor.execute(request, cycle)  # again: the requests in between may have changed the answer
    if outcome is not None:
        return outcome
    picked = executor.schedule.pick(request.queue, request.count, cycle.now_ms, size_bytes=request.size_bytes)
    picking = executor.schedule.last_picking(request.queue, picked) if picked else None
    cycle.handed_out += len(picked)
    return executor.execute(request, cycle, Given(picked=[each.number for each in picked], picking=picking))


def read_claim(ledger: Ledger, bodies: Bodies, request: ReadClaim) -> Claimed:
    """Return some messages of a claim, by their positions in it. The answer is the same until the claim is completed.

    Raises:
        QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim, or it is over.
    """
    queue, consumer, claim = request.queue, request.consumer, request.claim
    found = known(ledger, queue)
    registered = found.consumers.get(consumer)
    if registered is None:
        raise ConsumerNotFound(f"Queue {queue!r} has no consumer {consumer!r:.150}.")
    opened = registered.claim
    if opened is None or opened.number != claim:
        state = "is over" if claim <= registered.claimed else "was not made"
        raise ClaimNotFound(f"Claim {claim} of consumer {consumer!r} of queue {queue!r} {state}.")
    messages = opened.held(found, request.start, request.start + request.count)
    tokens = [message.token for message in messages]
    return Claimed(deliveries=delivered(bodies, queue, messages, tokens), total=len(opened.numbers))
