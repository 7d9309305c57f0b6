"""Producers at a limit: by the queue's policy an enqueue waits, is refused, or drops other messages.

*Waiting.* In each queue first come, first served. An enqueue may be taken in part: each of its messages has its own
result, and only those that met a limit are tried again. Capacity appears only through records (``MAKES_ROOM``), so a
producer is tried again when a cycle has such a record, and never by polling.

*Two kinds of full.* A producer that waits because the queue or the broker is full blocks those behind it, or a large
batch would never go while small ones pass it. One that waits only because its own key is full blocks nobody.

*Dropping.* A message that makes way is removed by a command of its own before the new one is enqueued, one message
after the other, since each new message may need another victim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Reply, Request
from fairlane.core.commands import Enqueue, Remove
from fairlane.core.decide.enqueue import needs_room
from fairlane.core.decide.room import Room
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.terms import resolve
from fairlane.errors import FairlaneError, GlobalFull, KeyFull, QueueFull
from fairlane.journal.records import Acked, Dead, QueueRemoved, QueueSet, Redriven, Removed
from fairlane.scheduler.item import Item, Priority
from fairlane.scheduler.policy import Backpressure
from fairlane.scheduler.timers import Timers

FULL = (QueueFull, KeyFull, GlobalFull)
"""The refusals for which a producer may wait."""
MAKES_ROOM = (Acked, Removed, Dead, Redriven, QueueSet, QueueRemoved)
"""The records after which there may be capacity again."""
_DROPS = {"drop_oldest": Backpressure.DROP_OLDEST, "drop_newest": Backpressure.DROP_NEWEST}
Results = list[str | FairlaneError]


@dataclass(slots=True, eq=False)
class WaitingEnqueue:
    """An enqueue that waits for capacity.

    Attributes:
        results: an id or an error for each message so far.
        cycle: the latest cycle in which one of its messages was taken in; if that fails, so has this enqueue.
    """

    request: Request
    results: Results
    until_ms: int
    cycle: Cycle
    is_over: bool = False


class WaitingProducers:
    """Takes enqueues, and keeps those that wait for capacity.

    Attributes:
        waiting: the enqueues that wait, by queue, the first in front.
        limits: when the patience of a producer ends.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[WaitingEnqueue]] = {}
        self.limits: Timers[WaitingEnqueue] = Timers(lambda at_ms, one: not one.is_over and one.until_ms == at_ms)

    def take(self, executor: Executor, request: Request, cycle: Cycle) -> None:
        """Decide an enqueue, or add it behind those that wait already."""
        command = cast("Enqueue", request.command)
        queue = executor.ledger.queues.get(command.queue)
        if queue is None:
            cycle.answer(request.reply, executor.execute(command, cycle))
            return
        policy = queue.policy
        if policy.on_enqueue is not None:
            executor.hook_calls.complete_enqueue(executor.ledger, command, cycle.now_ms)
        waits = policy.backpressure == "wait" and request.wait_ms > 0
        if waits and command.queue in self.waiting and self._is_blocked(executor, command.queue, cycle):
            full = QueueFull(f"Other producers are waiting for capacity in queue {command.queue!r}.")
            self._add(request, [full] * len(command.messages), cycle)
            return
        if policy.backpressure in _DROPS and _may_be_full(executor.ledger, queue, command):
            outcome: object = _enqueue_dropping(executor, queue, command, cycle)
        else:
            outcome = executor.execute(command, cycle)
        if waits and isinstance(outcome, list) and any(isinstance(result, FULL) for result in outcome):
            self._add(request, outcome, cycle)
        elif request.reply is not None:
            cycle.answers.append((request.reply, outcome))

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _is_blocked(self, executor: Executor, queue: str, cycle: Cycle) -> bool:
        """Tell whether a producer waits for the queue as a whole, after those that wait had their chance."""
        self.retry(executor, cycle)
        return any(_blocks(one) for one in self.waiting.get(queue, ()))

    def _add(self, request: Request, results: Results, cycle: Cycle) -> None:
        one = WaitingEnqueue(request, results, cycle.now_ms + request.wait_ms, cycle)
        self.limits.push(one.until_ms, one)
        self.waiting.setdefault(cast("Enqueue", request.command).queue, []).append(one)

    def retry(self, executor: Executor, cycle: Cycle) -> None:
        """Try those that wait again if capacity may have appeared, and answer those whose patience has ended."""
        for one in self.limits.pop_due(cycle.now_ms):
            self._end(one, cycle)
        # Only records that no retry of this cycle has seen yet can have made capacity.
        news, cycle.checked = cycle.records[cycle.checked :], len(cycle.records)
        if any(isinstance(record, MAKES_ROOM) for record in news):
            for line in list(self.waiting.values()):
                self._try_line(executor, line, cycle)
        self.waiting = {
            queue: left for queue, line in self.waiting.items() if (left := [one for one in line if not one.is_over])
        }

    def _try_line(self, executor: Executor, line: list[WaitingEnqueue], cycle: Cycle) -> None:
        """Try a line in order, up to the first producer that finds the queue as a whole still full."""
        for one in line:
            self._try(executor, one, cycle)
            if not one.is_over and _blocks(one):
                return

    def _try(self, executor: Executor, one: WaitingEnqueue, cycle: Cycle) -> None:
        """Enqueue those messages again that met a limit, and put their results in place."""
        reply = one.request.reply
        if one.is_over or (reply is not None and reply.done()):
            one.is_over = True
            return
        command = cast("Enqueue", one.request.command)
        rows = [row for row, result in enumerate(one.results) if isinstance(result, FULL)]
        answers = None if command.answers is None else [command.answers[row] for row in rows]
        part = replace(command, messages=[command.messages[row] for row in rows], answers=answers, faults=None)
        outcome = executor.execute(part, cycle)
        results = outcome if isinstance(outcome, list) else [outcome] * len(rows)
        for row, result in zip(rows, results, strict=True):
            one.results[row] = result
            if not isinstance(result, FULL):
                one.cycle = cycle
        if not any(isinstance(result, FULL) for result in one.results):
            self._end(one, cycle)

    def _end(self, one: WaitingEnqueue, cycle: Cycle) -> None:
        one.is_over = True
        cycle.answer(one.request.reply, one.results)

    def fail(self, cycle: Cycle, error: FairlaneError) -> None:
        """Refuse the enqueues of which something was taken in by a cycle that has failed."""
        for line in self.waiting.values():
            for one in line:
                if one.cycle is cycle and not one.is_over:
                    one.is_over = True
                    if one.request.reply is not None and not one.request.reply.done():
                        one.request.reply.set_exception(error)

    def dismiss(self) -> list[tuple[Reply, Results]]:
        """Forget everyone who waits, and return their replies with the results so far."""
        everyone = [one for line in self.waiting.values() for one in line if not one.is_over]
        self.waiting = {}
        return [(one.request.reply, one.results) for one in everyone if one.request.reply is not None]


def _blocks(one: WaitingEnqueue) -> bool:
    """Tell whether an enqueue waits for the queue or the broker, and not only for its own keys."""
    return any(isinstance(result, (QueueFull, GlobalFull)) for result in one.results)


# ------------------------------------------------------------------------------------------------------------ dropping


def _enqueue_dropping(executor: Executor, queue: Queue, command: Enqueue, cycle: Cycle) -> Results:
    """Enqueue one message after the other, each time dropping as many others as it needs and may."""
    results: Results = []
    for row, message in enumerate(command.messages):
        answers = None if command.answers is None else [command.answers[row]]
        single = replace(command, messages=[message], answers=answers, faults=None)
        if needs_room(executor.ledger, queue, single, cycle.now_ms):
            terms = resolve(queue, single.messages, answers, cycle.now_ms)
            priority = Priority.NORMAL if terms.priorities is None else Priority(terms.priorities[0])
            _make_room(executor, queue, Item(terms.keys[0], priority=priority), len(message.payload), cycle)
        outcome = executor.execute(single, cycle)
        results.extend(outcome if isinstance(outcome, list) else [cast("FairlaneError", outcome)])
    return results


def _make_room(executor: Executor, queue: Queue, newcomer: Item, size: int, cycle: Cycle) -> None:
    """Drop waiting messages until one more fits, or until only messages are left that may not be dropped for it."""
    policy = _DROPS[queue.policy.backpressure]
    while (refusal := Room(executor.ledger, queue).take(newcomer.key, size)) is not None:
        key = newcomer.key if isinstance(refusal, KeyFull) else None
        victim = executor.schedule.victim(queue.name, cast("Message", newcomer), policy, key=key)
        if victim is None:
            return
        executor.execute(Remove(queue=queue.name, numbers=[victim.number], reason="dropped"), cycle)


def _may_be_full(ledger: Ledger, queue: Queue, command: Enqueue) -> bool:
    """Tell whether a limit may be met; if not, there is no need to go one by one."""
    if queue.counts_keys:
        return True
    count = len(command.messages)
    size = sum(len(message.payload) for message in command.messages if type(message.payload) is bytes)
    limits, policy = ledger.limits, queue.policy
    pairs = (
        (len(queue.messages) + len(queue.staged) + count, policy.waiting_max),
        (queue.size + queue.staged_size + size, policy.waiting_bytes_max),
        (ledger.messages + count, limits.waiting_max),
        (ledger.size + size, limits.waiting_bytes_max),
    )
    return any(most is not None and amount > most for amount, most in pairs)
