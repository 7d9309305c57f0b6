"""Idle acknowledgements: those that hold up no caller wait a moment for another request, and share its commit.

A program enqueues in a loop, and a worker handles each message at once. The acknowledgement of a message then arrives
while the enqueue of the next is being synced. A commit of its own would delay the enqueue after that by a whole sync,
although nothing but the worker's bookkeeping depends on it. So it waits for that enqueue, ``WAIT_S`` at most.

An acknowledgement does not wait where something may depend on it: where its consumer has no free handler or no credit
left, or does not say how many handlers it has; where a message of its queue is not leased, which a cap, a strict order
or a lack of credit may hold back; where a caller waits for capacity, or for the end of a message; and where fan-outs
or redrives are under way. The answer to it is as durable as any other: it leaves after the sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fairlane.broker.requests import Call, Submission
from fairlane.verbs.leases import Ack

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

WAIT_S: Final = 0.001
_ACKS_MAX: Final = 4
_RECEIPTS_MAX: Final = 8
"""How many requests wait at most, and how many messages each acknowledges. More are worth a commit."""


class IdleAcks:
    """Holds idle acknowledgements back, for a moment at most."""

    def __init__(
        self, engine: Engine, call_later: Callable[[float, Callable[[], None]], object], wake: Callable[[], None]
    ) -> None:
        self._engine, self._call_later, self._wake = engine, call_later, wake
        self._is_holding = False

    def hold(self) -> bool:
        """Return whether what has come can wait for another request; then a timer bounds that."""
        if not can_wait(self._engine):
            return False
        if not self._is_holding:
            self._is_holding = True
            self._call_later(WAIT_S, self._let_go)
        return True

    def _let_go(self) -> None:
        self._is_holding = False
        if self._engine.inbox:
            self._wake()


def can_wait(engine: Engine) -> bool:
    """Return whether everything in the inbox is an acknowledgement that can wait for another request."""
    inbox = engine.inbox
    return (
        0 < len(inbox) <= _ACKS_MAX
        and all(_is_idle(engine, submission) for submission in inbox)
        and not (engine.producers.waiting or engine.sinks.waiting or engine.redrives.running)
        and not (engine.watchers.waiting or engine.watchers.searches.jobs or engine.script_lines.lines)
        and not (
            engine.consumers.unserved or engine.pieces.lines or engine.peeks.jobs or engine.ledger.fan_outs.members
        )
    )


def _is_idle(engine: Engine, submission: Submission) -> bool:
    """Return whether a submission acknowledges a few messages of a queue without others, for an idle consumer."""
    if type(submission) is not Call or type(submission.request) is not Ack:
        return False
    receipts, ledger = submission.request.receipts, engine.ledger
    queue = ledger.queues.get(submission.request.queue)
    if queue is None or not 0 < len(receipts) <= _RECEIPTS_MAX or queue.leased < len(queue.messages):
        return False
    number = ledger.ids.number_of(receipts[0].id)
    consumer = None if number is None else engine.consumers.holders.get(number)
    if consumer is None or consumer.room is None or consumer.handlers is None:
        return False  # one in this process (without room) is on this loop, and runs only when the broker does not
    return consumer.free > 0 and consumer.count > 0
