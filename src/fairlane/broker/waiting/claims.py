"""WaitingClaims: from what registered consumers ask for to durable claims, and the reading of these."""

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


class WaitingClaims:
    """Takes claims within a cycle: what is done is acked at once, and what is new is picked once waiters are served."""

    def __init__(self, *, cycle_events_max: int) -> None:
        self._cycle_events_max = cycle_events_max

    @staticmethod
    def take(executor: Executor, call: Call, cycle: Cycle) -> None:
        """End the claims that are done, and answer unless something is to be picked."""
        request = cast("MakeClaim", call.request)
        executor.schedule.presence.hear(request.queue, request.consumer, cycle.now_ms)
        outcome: object = executor.execute(request, cycle)
        if outcome is None:
            cycle.claims.append(call)
        else:
            cycle.answer(call.reply, outcome)

    def serve(self, executor: Executor, cycle: Cycle) -> None:
        """Lease what is wanted, each claim as a whole; when the cycle is full the others wait for the next."""
        is_first = True
        while cycle.claims:
            call = cycle.claims[0]
            if is_first or cycle.handed_out < self._cycle_events_max:
                cycle.answer(call.reply, self._claim(executor, cast("MakeClaim", call.request), cycle))
            else:
                executor.submit(call)
            cycle.claims.pop(0)
            is_first = False

    @staticmethod
    def _claim(executor: Executor, request: MakeClaim, cycle: Cycle) -> object:
        outcome: object = executor.execute(request, cycle)  # again: something may have come between
        if outcome is not None:
            return outcome
        picked = executor.schedule.pick(request.queue, request.count, cycle.now_ms, size_bytes=request.size_bytes)
        picking = executor.schedule.last_picking(request.queue, picked) if picked else None
        cycle.handed_out += len(picked)
        return executor.execute(request, cycle, Given(picked=[each.number for each in picked], picking=picking))


def read_claim(ledger: Ledger, bodies: Bodies, request: ReadClaim) -> Claimed:
    """Return the messages of some places of a claim. It says the same as often as it is asked, until it is done.

    Raises:
        QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim, or none any more.
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
