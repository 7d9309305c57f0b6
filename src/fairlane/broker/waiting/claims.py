"""Claiming: from what registered consumers ask for to durable claims, and the reading of these."""

from __future__ import annotations

from typing import cast

from fairlane.broker.bodies import Bodies
from fairlane.broker.cycle import Desk, Turn
from fairlane.broker.requests import Request
from fairlane.broker.views.deliveries import delivered
from fairlane.broker.views.queues import known
from fairlane.core.commands import Claim
from fairlane.core.ledger import Ledger
from fairlane.errors import ClaimNotFound, ConsumerNotFound
from fairlane.model.claims import Claimed


class Claiming:
    """Takes claims within a turn: what is done is acked at once, and what is new is picked once waiters are served."""

    def __init__(self, *, turn_events: int) -> None:
        self._turn_events = turn_events

    @staticmethod
    def take(desk: Desk, request: Request, turn: Turn) -> None:
        """End the claims that are done, and answer unless something is to be picked."""
        command = cast("Claim", request.command)
        desk.schedule.presence.hear(command.queue, command.consumer, turn.now_ms)
        outcome = desk.execute(command, turn)
        if outcome is None:
            turn.claims.append(request)
        else:
            turn.answer(request.reply, outcome)

    def serve(self, desk: Desk, turn: Turn) -> None:
        """Lease what is wanted, each claim as a whole; when the turn is full the others wait for the next."""
        is_first = True
        while turn.claims:
            request = turn.claims[0]
            if is_first or turn.handed_out < self._turn_events:
                turn.answer(request.reply, self._claim(desk, cast("Claim", request.command), turn))
            else:
                desk.submit(request)
            turn.claims.pop(0)
            is_first = False

    @staticmethod
    def _claim(desk: Desk, command: Claim, turn: Turn) -> object:
        outcome = desk.execute(command, turn)  # again: something may have come between
        if outcome is not None:
            return outcome
        picked = desk.schedule.pick(command.queue, command.count, turn.now_ms, size_bytes=command.size_bytes)
        command.picked = [message.number for message in picked]
        turn.handed_out += len(picked)
        if picked:
            command.picking = desk.schedule.last_picking(command.queue, picked)
        return desk.execute(command, turn)


def read_claim(
    ledger: Ledger, bodies: Bodies, *, queue: str, consumer: str, claim: int, start: int, count: int
) -> Claimed:
    """Return the messages of some places of a claim. It says the same as often as it is asked, until it is done.

    Raises:
        QueueNotFound, ConsumerNotFound, ClaimNotFound: there is no such claim, or none any more.
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
