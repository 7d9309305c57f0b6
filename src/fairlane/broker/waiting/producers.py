"""Producers at a limit: by the queue's policy an enqueue waits, is refused, or drops other messages.

*Waiting.* In each queue first come, first served. An enqueue may be taken in part: each of its messages has its own
result, and only those that met a limit are tried again. Capacity appears only through records (``MAKES_ROOM``), so a
producer is tried again when a cycle has such a record, and never by polling.

*Two kinds of full.* A producer that waits because the queue or the broker is full blocks those behind it, or a large
batch would never go while small ones pass it. One that waits only because its own key is full blocks no other.

*Dropping.* A message that makes way is removed by a command of its own before the new one is enqueued, one message
after the other, since each new message may need another victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from fairlane.broker.auto_create import still_missing
from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.requests import Call
from fairlane.broker.waiting.script_lines import take_new_messages
from fairlane.core.commands import Given, Remove
from fairlane.core.decide.enqueue import outcome_behind, size_of, terms_if_room_helps
from fairlane.core.decide.room import QueueRoom
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, FullError, GlobalFull, KeyFull, QueueFull, QueueNotFound
from fairlane.journal.records import Acked, Dead, QueueRemoved, QueueSet, Redriven, Removed
from fairlane.model.limits import TIMESPAN_MS_MAX
from fairlane.model.message import NewMessage
from fairlane.scheduler.item import Item, Priority
from fairlane.scheduler.policy import Backpressure
from fairlane.scheduler.timers import Timers
from fairlane.verbs.columns import EnqueuedIds
from fairlane.verbs.errors import body_of
from fairlane.verbs.messages import Enqueue, EnqueueResult, EnqueueResults
from fairlane.verbs.verb import Reply

MAKES_ROOM = (Acked, Removed, Dead, Redriven, QueueSet, QueueRemoved)
"""The records after which there may be capacity again."""
_DROPS = {"drop_oldest": Backpressure.DROP_OLDEST, "drop_newest": Backpressure.DROP_NEWEST}
Results = list[EnqueueResult | FairlaneError]


@dataclass(slots=True, eq=False)
class WaitingEnqueue:
    """An enqueue that waits for capacity.

    Attributes:
        results: a result or an error for each message so far.
        cycle: the latest cycle in which one of its messages was taken in; if that fails, so has this enqueue.
    """

    request: Enqueue
    reply: Reply | None
    given: Given
    results: Results
    until_ms: int
    cycle: Cycle
    is_over: bool = False


class WaitingEnqueues:
    """Takes enqueues, and keeps those that wait for capacity.

    Attributes:
        waiting: the enqueues that wait, by queue, the first in front.
        limits: when the patience of a producer ends.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[WaitingEnqueue]] = {}
        self.limits: Timers[WaitingEnqueue] = Timers(lambda at_ms, one: not one.is_over and one.until_ms == at_ms)

    def take(self, executor: Executor, call: Call, cycle: Cycle) -> None:
        """Decide an enqueue, now or when the queue's script has answered."""
        request = cast("Enqueue", call.request)
        queue = executor.ledger.queues.get(request.queue)
        if queue is None and ("on_enqueue", request.queue) not in executor.script_lines.lines:
            if (absent := still_missing(executor, request.queue, cycle, call.by)) is not None:
                cycle.answer(call.reply, absent)
                return
            queue = executor.ledger.queues[request.queue]
        is_asked = queue is not None and queue.policy.on_enqueue is not None
        if (is_asked or executor.script_lines.lines) and take_new_messages(executor, call, self.decide, cycle):
            return
        self.decide(executor, call, call.given, cycle, cycle.now_ms)

    def decide(self, executor: Executor, call: Call, given: Given, cycle: Cycle, came_ms: int) -> None:
        """Decide an enqueue that came at an instant, or add it behind those that wait already."""
        request = cast("Enqueue", call.request)
        queue = executor.ledger.queues.get(request.queue)
        if queue is None:
            cycle.answer(call.reply, executor.execute(request, cycle, given))
            return
        policy = queue.policy
        waits = policy.backpressure == "wait" and request.wait_ms > 0
        ahead = self._ahead(executor, request.queue, cycle) if waits and request.queue in self.waiting else None
        if ahead is not None:
            self._take_behind(executor, call, given, cycle, came_ms, ahead)
            return
        before = executor.ledger.messages
        if policy.backpressure in _DROPS and _may_be_full(executor.ledger, queue, request):
            outcome: Results | FairlaneError = _enqueue_dropping(executor, queue, request, given, cycle)
        else:
            outcome = cast("Results | FairlaneError", executor.execute(request, cycle, given))
        if isinstance(outcome, FairlaneError):
            cycle.answer(call.reply, outcome)
        elif waits and _meets_limit(outcome):
            self._add(call, given, outcome, cycle, came_ms)
        else:
            if executor.ledger.messages - before < len(outcome):  # not all were taken in: repeats, or refusals
                executor.refusals.note(queue.name, outcome, cycle.now_ms)
            if call.reply is not None:
                cycle.answers.append((call.reply, _answer(outcome)))

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _take_behind(
        self, executor: Executor, call: Call, given: Given, cycle: Cycle, came_ms: int, ahead: FullError
    ) -> None:
        """Add an enqueue behind those that wait, or answer it if capacity can help none of its messages."""
        request = cast("Enqueue", call.request)
        results = outcome_behind(executor.ledger, request, given, cycle.now_ms, ahead=ahead)
        if _meets_limit(results):
            self._add(call, given, results, cycle, came_ms)
        else:
            cycle.answer(call.reply, _answer(results))

    def _ahead(self, executor: Executor, queue: str, cycle: Cycle) -> FullError | None:
        """Return what keeps out the first that waits for the queue as a whole, after those that wait were tried."""
        self.retry(executor, cycle)
        return next(filter(None, map(_blocking, self.waiting.get(queue, ()))), None)

    def _add(self, call: Call, given: Given, results: Results, cycle: Cycle, came_ms: int) -> None:
        request = cast("Enqueue", call.request)
        until_ms = max(cycle.now_ms, came_ms + min(request.wait_ms, TIMESPAN_MS_MAX))
        waiting = replace(given, has_waited=True)
        one = WaitingEnqueue(request, call.reply, waiting, results, until_ms, cycle)
        self.limits.push(one.until_ms, one)
        self.waiting.setdefault(request.queue, []).append(one)

    def retry(self, executor: Executor, cycle: Cycle) -> None:
        """Try those that wait again if capacity may have appeared, and answer those whose patience has ended."""
        for one in self.limits.pop_due(cycle.now_ms):
            executor.refusals.note(one.request.queue, one.results, cycle.now_ms)
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
            if not one.is_over and _blocking(one) is not None:
                return

    def _try(self, executor: Executor, one: WaitingEnqueue, cycle: Cycle) -> None:
        """Enqueue those messages again that met a limit, and put their results in place."""
        reply = one.reply
        if one.is_over or (reply is not None and reply.done()):
            one.is_over = True
            return
        rows = [row for row, result in enumerate(one.results) if isinstance(result, FullError)]
        outcome = _execute(executor, *_some(one.request, one.given, rows), cycle)
        results = [outcome] * len(rows) if isinstance(outcome, FairlaneError) else outcome
        for row, result in zip(rows, results, strict=True):
            one.results[row] = result
            if not isinstance(result, FullError):
                one.cycle = cycle
        if not any(isinstance(result, FullError) for result in one.results):
            self._end(one, cycle)

    def refuse(self, error: FairlaneError, cycle: Cycle) -> None:
        """Refuse everyone who waits. Messages of theirs that were taken in before stay, and keep their ids."""
        for line in self.waiting.values():
            for one in line:
                if not one.is_over:
                    one.results = [error if isinstance(result, FullError) else result for result in one.results]
                    self._end(one, cycle)
        self.waiting = {}

    def dismiss_deleted(self, queue: str, cycle: Cycle) -> None:
        """Refuse those who wait at a queue that was deleted in this cycle; another of its name is not theirs."""
        gone = QueueNotFound(f"Queue {queue!r} has been deleted.")
        for one in self.waiting.pop(queue, ()):
            if not one.is_over:
                one.results = [gone if isinstance(result, FullError) else result for result in one.results]
                self._end(one, cycle)

    def _end(self, one: WaitingEnqueue, cycle: Cycle) -> None:
        one.is_over = True
        cycle.answer(one.reply, _answer(one.results))

    def fail(self, cycle: Cycle, error: FairlaneError) -> None:
        """Refuse the enqueues of which something was taken in by a cycle that has failed."""
        for line in self.waiting.values():
            for one in line:
                if one.cycle is cycle and not one.is_over:
                    one.is_over = True
                    if one.reply is not None and not one.reply.done():
                        one.reply.set_exception(error)

    def names_upload(self, queue: str, upload_id: str) -> bool:
        """Return whether an enqueue that waits for capacity is to take an upload."""
        waiting = (one.request.messages for one in self.waiting.get(queue, ()) if not one.is_over)
        return any(message.upload == upload_id for messages in waiting for message in messages)

    def dismiss(self) -> list[tuple[Reply, EnqueueResults]]:
        """Forget everyone who waits, and return their replies with the results so far."""
        everyone = [one for line in self.waiting.values() for one in line if not one.is_over]
        self.waiting = {}
        return [(one.reply, _answer(one.results)) for one in everyone if one.reply is not None]


def _execute(executor: Executor, request: Enqueue, given: Given, cycle: Cycle) -> Results | FairlaneError:
    """Execute an enqueue. Its outcome has a result or an error for each message, and becomes the answer at the end."""
    return cast("Results | FairlaneError", executor.execute(request, cycle, given))


def _some(request: Enqueue, given: Given, rows: list[int]) -> tuple[Enqueue, Given]:
    """Return an enqueue of some messages of another."""
    answers = None if given.answers is None else [given.answers[row] for row in rows]
    return request.of_rows(rows), replace(given, answers=answers, faults=None)


def _meets_limit(results: Sequence[EnqueueResult | FairlaneError]) -> bool:
    if type(results) is EnqueuedIds:
        return False
    return any(type(result) is not EnqueueResult and isinstance(result, FullError) for result in results)


def _answer(results: Sequence[EnqueueResult | FairlaneError]) -> EnqueueResults:
    if type(results) is EnqueuedIds:
        return EnqueueResults(results=cast("list[EnqueueResult]", results))
    for result in results:
        if type(result) is not EnqueueResult:
            break
    else:
        return EnqueueResults(results=cast("list[EnqueueResult]", results))
    return EnqueueResults(
        results=[
            result if isinstance(result, EnqueueResult) else EnqueueResult(error=body_of(result)) for result in results
        ]
    )


def _blocking(one: WaitingEnqueue) -> FullError | None:
    """Return the limit of the queue or the broker that an enqueue meets; None if it waits only for its own keys."""
    return next((result for result in one.results if isinstance(result, (QueueFull, GlobalFull))), None)


# ------------------------------------------------------------------------------------------------------------ dropping


def _enqueue_dropping(executor: Executor, queue: Queue, request: Enqueue, given: Given, cycle: Cycle) -> Results:
    """Enqueue one message after the other, each time dropping as many others as it needs and may."""
    results: Results = []
    for row, message in enumerate(request.messages):
        single, single_given = _some(request, given, [row])
        terms = terms_if_room_helps(executor.ledger, queue, single, single_given, cycle.now_ms)
        if terms is not None:
            priority = Priority.NORMAL if terms.priorities is None else Priority(terms.priorities[0])
            _make_room(executor, queue, Item(terms.keys[0], priority=priority), message, cycle)
        outcome = _execute(executor, single, single_given, cycle)
        results.extend([outcome] if isinstance(outcome, FairlaneError) else outcome)
    return results


def _make_room(executor: Executor, queue: Queue, newcomer: Item, message: NewMessage, cycle: Cycle) -> None:
    """Drop waiting messages until one more fits, or until only messages are left that may not be dropped for it."""
    policy, size = _DROPS[queue.policy.backpressure], size_of(queue, message)
    held = 0 if message.upload is None else size
    while (refusal := QueueRoom(executor.ledger, queue).take(newcomer.key, size, held=held)) is not None:
        key = newcomer.key if isinstance(refusal, KeyFull) else None
        victim = executor.schedule.victim(queue.name, cast("Message", newcomer), policy, key=key)
        if victim is None:
            return
        executor.execute(Remove(queue=queue.name, numbers=[victim.number], reason="dropped"), cycle)


def _may_be_full(ledger: Ledger, queue: Queue, request: Enqueue) -> bool:
    """Return whether a limit may be met; if not, there is no need to go one by one."""
    if queue.tallies is not None:
        return True
    count = len(request.messages)
    size = sum(size_of(queue, message) for message in request.messages if type(message.payload) is bytes)
    limits, policy = ledger.limits, queue.policy
    pairs = (
        (len(queue.messages) + len(queue.staged) + count, policy.waiting_max),
        (queue.size + queue.staged_size + size, policy.waiting_bytes_max),
        (ledger.messages + count, limits.waiting_max),
        (ledger.size + size, limits.waiting_bytes_max),
    )
    return any(most is not None and amount > most for amount, most in pairs)
