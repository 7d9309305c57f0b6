"""Staging within cycles: what finds no room waits for it, where the queue's policy is to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call, Reply
from fairlane.broker.waiting.producers import MAKES_ROOM
from fairlane.core.commands import Given
from fairlane.errors import FairlaneError, GlobalFull, KeyFull, QueueFull
from fairlane.scheduler.timers import Timers
from fairlane.verbs.batches import Stage

_FULL = (QueueFull, KeyFull, GlobalFull)


@dataclass(slots=True, eq=False)
class Parked:
    """A request to stage that waits for capacity, and why."""

    call: Call
    request: Stage
    given: Given
    refusal: FairlaneError
    until_ms: int
    is_over: bool = False


class WaitingSinks:
    """Takes requests to stage, and keeps those that wait for room: in each queue first come, first served.

    A part is staged as a whole, so nothing is dropped to make room for some of it.
    """

    def __init__(self) -> None:
        self._parked: list[Parked] = []
        self._limits: Timers[Parked] = Timers(lambda at_ms, parked: not parked.is_over and parked.until_ms == at_ms)

    def next_limit_at(self) -> int | None:
        """Return when the next one has waited as long as it would."""
        return self._limits.next_at()

    def take(self, executor: Executor, call: Call, cycle: Cycle) -> None:
        """Decide a request, or let it wait behind those that wait already."""
        request = cast("Stage", call.request)
        queue = executor.ledger.queues.get(request.queue)
        about = executor.hook_calls.given_for_messages
        given = about(executor.ledger, request.queue, request.messages, cycle.now_ms)
        waits = queue is not None and queue.policy.backpressure == "wait" and request.wait_ms > 0
        ahead = self._ahead(request.queue) if waits else None
        outcome = ahead.refusal if ahead is not None else executor.execute(request, cycle, given)
        if waits and isinstance(outcome, _FULL):
            parked = Parked(call, request, given, outcome, cycle.now_ms + request.wait_ms)
            self._limits.push(parked.until_ms, parked)
            self._parked.append(parked)
        else:
            cycle.answer(call.reply, outcome)

    def _ahead(self, queue: str) -> Parked | None:
        """Return one that waits for room in a queue as a whole. Those who wait for their own key hold up nobody."""
        return next(
            (one for one in self._parked if one.request.queue == queue and not isinstance(one.refusal, KeyFull)), None
        )

    def retry(self, executor: Executor, cycle: Cycle) -> None:
        """Let those that wait try again, if room may have been made, and let go those that have waited enough."""
        if not self._parked:
            return
        for parked in self._limits.pop_due(cycle.now_ms):
            parked.is_over = True
            cycle.answer(parked.call.reply, parked.refusal)
        if any(isinstance(record, MAKES_ROOM) for record in cycle.records):
            self._try_all(executor, cycle)
        self._parked = [parked for parked in self._parked if not parked.is_over]

    def _try_all(self, executor: Executor, cycle: Cycle) -> None:
        full: set[str] = set()
        for parked in self._parked:
            reply = parked.call.reply
            if parked.is_over or parked.request.queue in full:
                continue
            if reply is not None and reply.done():
                parked.is_over = True
                continue
            outcome = executor.execute(parked.request, cycle, parked.given)
            if isinstance(outcome, _FULL):
                parked.refusal = outcome
                if not isinstance(outcome, KeyFull):
                    full.add(parked.request.queue)
            else:
                parked.is_over = True
                cycle.answer(reply, outcome)

    def dismiss(self) -> list[tuple[Reply, FairlaneError]]:
        """Return everybody who waits, with why, and forget them."""
        everybody, self._parked = self._parked, []
        return [
            (parked.call.reply, parked.refusal)
            for parked in everybody
            if parked.call.reply is not None and not parked.is_over
        ]
