"""Sinks at a limit: a part that finds no capacity waits for it, where the queue's policy is to wait.

A part is staged as a whole or not at all, so nothing is dropped to make room for some of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.broker.waiting.producers import MAKES_ROOM
from fairlane.broker.waiting.script_lines import take_new_messages
from fairlane.core.commands import Given
from fairlane.errors import FairlaneError, FullError, KeyFull, QueueNotFound
from fairlane.model.limits import TIMESPAN_MS_MAX
from fairlane.scheduler.timers import Timers
from fairlane.verbs.batches import Stage
from fairlane.verbs.verb import Reply


@dataclass(slots=True, eq=False)
class WaitingStage:
    """A part that waits to be staged, and the limit it met."""

    request: Stage
    reply: Reply | None
    given: Given
    refusal: FairlaneError
    until_ms: int
    is_over: bool = False


class WaitingSinks:
    """Takes requests to stage, and keeps those that wait for capacity: in each queue first come, first served.

    Attributes:
        waiting: the requests that wait, the first in front.
        limits: when the patience of a sink ends.
    """

    def __init__(self) -> None:
        self.waiting: list[WaitingStage] = []
        self.limits: Timers[WaitingStage] = Timers(lambda at_ms, one: not one.is_over and one.until_ms == at_ms)

    def take(self, executor: Executor, call: Call, cycle: Cycle) -> None:
        """Decide a request, now or when the queue's script has answered."""
        if not take_new_messages(executor, call, self.decide, cycle):
            self.decide(executor, call, call.given, cycle, cycle.now_ms)

    def decide(self, executor: Executor, call: Call, given: Given, cycle: Cycle, came_ms: int) -> None:
        """Decide a request that came at an instant, or add it behind those that wait already."""
        request = cast("Stage", call.request)
        queue = executor.ledger.queues.get(request.queue)
        waits = queue is not None and queue.policy.backpressure == "wait" and request.wait_ms > 0
        ahead = self._ahead(request.queue) if waits else None
        outcome = ahead.refusal if ahead is not None else executor.execute(request, cycle, given)
        if waits and isinstance(outcome, FullError):
            until_ms = max(cycle.now_ms, came_ms + min(request.wait_ms, TIMESPAN_MS_MAX))
            one = WaitingStage(request, call.reply, given, outcome, until_ms)
            self.limits.push(one.until_ms, one)
            self.waiting.append(one)
        else:
            self._refuse(executor, request, outcome, cycle)
            cycle.answer(call.reply, outcome)

    def _refuse(self, executor: Executor, request: Stage, outcome: object, cycle: Cycle) -> None:
        """Count all messages of a part that a limit keeps out: a part is staged whole or not at all."""
        if isinstance(outcome, FullError):
            executor.refusals.note(request.queue, [outcome] * len(request.messages), cycle.now_ms)

    def _ahead(self, queue: str) -> WaitingStage | None:
        """Return one that waits for the queue as a whole. One that waits for its own key blocks no other."""
        return next(
            (one for one in self.waiting if one.request.queue == queue and not isinstance(one.refusal, KeyFull)), None
        )

    def retry(self, executor: Executor, cycle: Cycle) -> None:
        """Try those that wait again if capacity may have appeared, and refuse those whose patience has ended."""
        for one in self.limits.pop_due(cycle.now_ms):
            one.is_over = True
            self._refuse(executor, one.request, one.refusal, cycle)
            cycle.answer(one.reply, one.refusal)
        if any(isinstance(record, MAKES_ROOM) for record in cycle.records):
            self._try_all(executor, cycle)
        self.waiting = [one for one in self.waiting if not one.is_over]

    def _try_all(self, executor: Executor, cycle: Cycle) -> None:
        full: set[str] = set()
        for one in self.waiting:
            reply = one.reply
            if one.is_over or one.request.queue in full:
                continue
            if reply is not None and reply.done():
                one.is_over = True
                continue
            outcome = executor.execute(one.request, cycle, one.given)
            if isinstance(outcome, FullError):
                one.refusal = outcome
                if not isinstance(outcome, KeyFull):
                    full.add(one.request.queue)
            else:
                one.is_over = True
                cycle.answer(reply, outcome)

    def refuse(self, error: FairlaneError, cycle: Cycle) -> None:
        """Refuse everyone who waits. Nothing of theirs was staged."""
        for one in self.waiting:
            one.is_over = True
            cycle.answer(one.reply, error)
        self.waiting = []

    def dismiss_deleted(self, queue: str, cycle: Cycle) -> None:
        """Refuse those who wait at a queue that was deleted in this cycle; another of its name is not theirs."""
        for one in self.waiting:
            if one.request.queue == queue and not one.is_over:
                one.is_over = True
                cycle.answer(one.reply, QueueNotFound(f"Queue {queue!r} has been deleted."))
        self.waiting = [one for one in self.waiting if not one.is_over]

    def dismiss(self) -> list[tuple[Reply, FairlaneError]]:
        """Forget everyone who waits, and return their replies with the limits they met."""
        everyone, self.waiting = self.waiting, []
        return [(one.reply, one.refusal) for one in everyone if one.reply is not None and not one.is_over]
