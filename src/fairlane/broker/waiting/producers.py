"""Enqueues that meet a limit: some wait for room, some make room by dropping, the rest are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call, Reply
from fairlane.core.commands import Given, Remove
from fairlane.core.decide.enqueue import needs_room
from fairlane.core.decide.room import Room
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.terms import resolve
from fairlane.errors import FairlaneError, GlobalFull, KeyFull, QueueFull
from fairlane.journal.records import Acked, Dead, QueueRemoved, QueueSet, Redriven, Removed
from fairlane.scheduler.item import Item, Priority
from fairlane.scheduler.policy import Backpressure
from fairlane.scheduler.timers import Timers
from fairlane.verbs.errors import body_of
from fairlane.verbs.messages import Enqueue, EnqueueResult, EnqueueResults

_FULL = (QueueFull, KeyFull, GlobalFull)
MAKES_ROOM = (Acked, Removed, Dead, Redriven, QueueSet, QueueRemoved)
_DROPS = {"drop_oldest": Backpressure.DROP_OLDEST, "drop_newest": Backpressure.DROP_NEWEST}
Results = list[str | FairlaneError]


@dataclass(slots=True, eq=False)
class Parked:
    """An enqueue that waits for capacity, with its results so far."""

    call: Call
    request: Enqueue
    given: Given
    results: Results
    until_ms: int
    cycle: Cycle
    """The latest cycle in which something came of it."""
    is_over: bool = False


class WaitingProducers:
    """Takes enqueues, and keeps those that wait for room: in each queue first come, first served."""

    def __init__(self) -> None:
        self._parked: dict[str, list[Parked]] = {}
        self._limits: Timers[Parked] = Timers(lambda at_ms, parked: not parked.is_over and parked.until_ms == at_ms)

    def next_limit_at(self) -> int | None:
        """Return when the next one has waited as long as it would."""
        return self._limits.next_at()

    def take(self, executor: Executor, call: Call, cycle: Cycle) -> None:
        """Decide an enqueue, or let it wait behind those that wait already."""
        request = cast("Enqueue", call.request)
        queue = executor.ledger.queues.get(request.queue)
        about = executor.hook_calls.given_for_messages
        given = about(executor.ledger, request.queue, request.messages, cycle.now_ms)
        waits = queue is not None and queue.policy.backpressure == "wait" and request.wait_ms > 0
        if waits and self._is_behind_others(executor, request.queue, cycle):
            full = QueueFull(f"Others wait for room in queue {request.queue!r}.")
            self._park(call, given, [full] * len(request.messages), cycle)
            return
        if queue is not None and queue.policy.backpressure in _DROPS and _may_be_full(executor.ledger, queue, request):
            outcome: Results | FairlaneError = self._enqueue_dropping(executor, queue, request, given, cycle)
        else:
            outcome = _execute(executor, request, given, cycle)
        if isinstance(outcome, FairlaneError):
            cycle.answer(call.reply, outcome)
        elif waits and any(isinstance(result, _FULL) for result in outcome):
            self._park(call, given, outcome, cycle)
        else:
            cycle.answer(call.reply, _answer(outcome))

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _is_behind_others(self, executor: Executor, queue: str, cycle: Cycle) -> bool:
        """Tell whether others wait for room in a queue as a whole. Those who wait for their own key hold up nobody."""
        if queue not in self._parked:
            return False
        self.retry(executor, cycle)
        waiting = self._parked.get(queue, ())
        return any(isinstance(result, (QueueFull, GlobalFull)) for parked in waiting for result in parked.results)

    def _park(self, call: Call, given: Given, results: Results, cycle: Cycle) -> None:
        request = cast("Enqueue", call.request)
        parked = Parked(call, request, given, results, cycle.now_ms + request.wait_ms, cycle)
        self._limits.push(parked.until_ms, parked)
        self._parked.setdefault(request.queue, []).append(parked)

    def retry(self, executor: Executor, cycle: Cycle) -> None:
        """Let those that wait try again, if room may have been made, and let go those that have waited enough."""
        if not self._parked:
            return
        for parked in self._limits.pop_due(cycle.now_ms):
            self._end(parked, cycle)
        news, cycle.looked_at = cycle.records[cycle.looked_at :], len(cycle.records)
        if any(isinstance(record, MAKES_ROOM) for record in news):
            for line in list(self._parked.values()):
                self._try_line(executor, line, cycle)
        self._parked = {
            queue: left for queue, line in self._parked.items() if (left := [p for p in line if not p.is_over])
        }

    def _try_line(self, executor: Executor, line: list[Parked], cycle: Cycle) -> None:
        """Let a line try in order, up to the first that finds the queue as a whole still full."""
        for parked in line:
            self._try(executor, parked, cycle)
            if any(isinstance(result, (QueueFull, GlobalFull)) for result in parked.results) and not parked.is_over:
                return

    def _try(self, executor: Executor, parked: Parked, cycle: Cycle) -> None:
        reply = parked.call.reply
        if parked.is_over or (reply is not None and reply.done()):
            parked.is_over = True
            return
        rows = [row for row, result in enumerate(parked.results) if isinstance(result, _FULL)]
        outcome = _execute(executor, *_some(parked.request, parked.given, rows), cycle)
        results = [outcome] * len(rows) if isinstance(outcome, FairlaneError) else outcome
        for row, result in zip(rows, results, strict=True):
            parked.results[row] = result
            if not isinstance(result, _FULL):
                parked.cycle = cycle
        if not any(isinstance(result, _FULL) for result in parked.results):
            self._end(parked, cycle)

    def _end(self, parked: Parked, cycle: Cycle) -> None:
        parked.is_over = True
        cycle.answer(parked.call.reply, _answer(parked.results))

    def fail(self, cycle: Cycle, error: FairlaneError) -> None:
        """Refuse those of which something came in a cycle that has failed."""
        for line in self._parked.values():
            for parked in line:
                if parked.cycle is cycle and not parked.is_over:
                    parked.is_over = True
                    if parked.call.reply is not None and not parked.call.reply.done():
                        parked.call.reply.set_exception(error)

    def dismiss(self) -> list[tuple[Reply, EnqueueResults]]:
        """Return everybody who waits, with what has come of it so far, and forget them."""
        everybody = [parked for line in self._parked.values() for parked in line if not parked.is_over]
        self._parked = {}
        return [(parked.call.reply, _answer(parked.results)) for parked in everybody if parked.call.reply is not None]

    # --------------------------------------------------------------------------------------------------------- dropping

    def _enqueue_dropping(
        self, executor: Executor, queue: Queue, request: Enqueue, given: Given, cycle: Cycle
    ) -> Results:
        """Enqueue one message after the other, each time dropping as much as it needs and may."""
        results: Results = []
        for row, message in enumerate(request.messages):
            single, single_given = _some(request, given, [row])
            if needs_room(executor.ledger, queue, message, cycle.now_ms):
                terms = resolve(queue, single.messages, single_given.answers, cycle.now_ms)
                priority = Priority.NORMAL if terms.priorities is None else Priority(terms.priorities[0])
                self._make_room(executor, queue, Item(terms.keys[0], priority=priority), len(message.payload), cycle)
            outcome = _execute(executor, single, single_given, cycle)
            results.extend([outcome] if isinstance(outcome, FairlaneError) else outcome)
        return results

    @staticmethod
    def _make_room(executor: Executor, queue: Queue, newcomer: Item, size: int, cycle: Cycle) -> None:
        policy = _DROPS[queue.policy.backpressure]
        while (refusal := Room(executor.ledger, queue).take(newcomer.key, size)) is not None:
            key = newcomer.key if isinstance(refusal, KeyFull) else None
            victim = executor.schedule.victim(queue.name, cast("Message", newcomer), policy, key=key)
            if victim is None:
                return
            executor.execute(Remove(queue=queue.name, numbers=[victim.number], reason="dropped"), cycle)


def _execute(executor: Executor, request: Enqueue, given: Given, cycle: Cycle) -> Results | FairlaneError:
    """Decide an enqueue. Its outcome has an id or an error for each message, which become the answer at the end."""
    return cast("Results | FairlaneError", executor.execute(request, cycle, given))


def _some(request: Enqueue, given: Given, rows: list[int]) -> tuple[Enqueue, Given]:
    """Return an enqueue of some of the messages of another."""
    answers = None if given.answers is None else [given.answers[row] for row in rows]
    messages = [request.messages[row] for row in rows]
    return Enqueue(queue=request.queue, messages=messages), Given(answers=answers)


def _answer(results: Results) -> EnqueueResults:
    return EnqueueResults(
        results=[
            EnqueueResult(id=result) if isinstance(result, str) else EnqueueResult(error=body_of(result))
            for result in results
        ]
    )


def _may_be_full(ledger: Ledger, queue: Queue, request: Enqueue) -> bool:
    """Tell whether a limit may be met; if not, there is no need to go one by one."""
    if queue.counts_keys:
        return True
    count = len(request.messages)
    size = sum(len(message.payload) for message in request.messages if type(message.payload) is bytes)
    limits, policy = ledger.limits, queue.policy
    pairs = (
        (len(queue.messages) + len(queue.staged) + count, policy.waiting_max),
        (queue.size + queue.staged_size + size, policy.waiting_bytes_max),
        (ledger.messages + count, limits.waiting_max),
        (ledger.size + size, limits.waiting_bytes_max),
    )
    return any(most is not None and amount > most for amount, most in pairs)
