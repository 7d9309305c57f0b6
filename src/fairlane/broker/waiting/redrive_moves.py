"""The steps of a redrive: search for the dead letters that are meant, and move what may go now.

A dead letter whose body can't be read stays where it is: the others go on. While the store fails, all of them wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.waiting.dry_runs import SCAN
from fairlane.core.commands import EndRedrive, MoveDeadLetters
from fairlane.core.dead_letters import admits, origin_of
from fairlane.core.decide.room import QueueRoom
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.states.redrives import RedriveState
from fairlane.core.terms import unscoped
from fairlane.errors import FairlaneError, StoreCorrupt, StoreFailed
from fairlane.journal.records import RedriveOutcome
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.message import PRIORITY_NAMES, NewMessage
from fairlane.model.views import RedriveView
from fairlane.ports.hooks import EnqueueQuestion

_MOVE: Final = 100
_HELD: Final = 1_000
_PAUSE_MS: Final = 100


@dataclass(slots=True, eq=False)
class RedriveSearch:
    """How far a redrive has come with its dead letters.

    Attributes:
        numbers: the dead letters that were left when it began, or began again.
        at: how many of them it has looked at.
        since_ms, since: when it began, and how many it had moved by then; its rate counts from there.
        waiting: those that are to move.
        homeless: how many stay because the queue that they came from is gone.
        damaged: how many stay because their bodies can't be read.
    """

    state: RedriveState
    numbers: list[int]
    since_ms: int
    next_ms: int
    since: int
    at: int = 0
    matched: int = 0
    waiting: list[int] = field(default_factory=list)
    homeless: int = 0
    damaged: int = 0

    @property
    def scanned(self) -> int:
        """How many of all dead letters that there were it has looked at, or are gone."""
        return max(0, self.state.order.total - len(self.numbers)) + self.at

    def view(self) -> RedriveView:
        """Return the redrive with its progress."""
        return self.state.view(scanned=self.scanned, matched=self.matched)

    def remarks(self) -> str | None:
        """Return why some dead letters stay, if some do."""
        texts = []
        if self.homeless:
            texts.append(f"Dead letters not moved (queue deleted): {self.homeless}. Redrive them to a target.")
        if self.damaged:
            texts.append(f"Dead letters not moved (bodies unreadable): {self.damaged}. Check the store.")
        return " ".join(texts) or None


def take_step(executor: Executor, search: RedriveSearch, cycle: Cycle) -> None:
    """RedriveSearch on, move what may go now, and end the redrive if that was all."""
    dlq = executor.ledger.queues[search.state.order.queue]  # deleting the queue would have ended the redrive
    _scan(search, dlq)
    _move(executor, search, dlq, cycle)
    is_full = search.state.order.most is not None and search.matched >= search.state.order.most
    if search.state.end is None and not search.waiting and (is_full or search.at >= len(search.numbers)):
        end(executor, search, cycle, "done", error=search.remarks())


def end(
    executor: Executor,
    search: RedriveSearch,
    cycle: Cycle,
    status: RedriveOutcome,
    *,
    error: str | None = None,
    by: str | None = None,
) -> None:
    """End a redrive."""
    number, scanned, matched = search.state.number, search.scanned, search.matched
    executor.execute(
        EndRedrive(number=number, status=status, scanned=scanned, matched=matched, error=error, by=by), cycle
    )


def _scan(search: RedriveSearch, dlq: Queue) -> None:
    """Look through the next dead letters for those that are meant. Ages are those at the order, so that they stay."""
    state = search.state
    end, most = min(search.at + SCAN, len(search.numbers)), state.order.most
    while search.at < end and len(search.waiting) < _HELD and (most is None or search.matched < most):
        message = dlq.messages.get(search.numbers[search.at])
        search.at += 1
        if message is not None and not message.token and admits(state.order.wanted, message, state.started_ms):
            search.matched += 1
            search.waiting.append(message.number)


def _move(executor: Executor, search: RedriveSearch, dlq: Queue, cycle: Cycle) -> None:
    """Move messages to each of the queues that they go to."""
    state = search.state
    present = [dlq.messages[number] for number in search.waiting if number in dlq.messages]
    by_target: dict[str, list[Message]] = {}
    for message in present:
        if not message.token:
            by_target.setdefault(state.order.target or origin_of(message), []).append(message)
    moved, search.waiting = state.moved, []
    for name, messages in by_target.items():
        target = executor.ledger.queues.get(name)
        if target is None:
            search.homeless += len(messages)
        elif not _move_to(executor, search, target, messages, cycle):
            return
    rate = state.order.rate
    if search.waiting and state.moved == moved:
        search.next_ms = cycle.now_ms + _PAUSE_MS
    elif search.waiting and rate is not None:
        search.next_ms = cycle.now_ms + _pause_ms(search, rate, cycle.now_ms)


def _move_to(executor: Executor, search: RedriveSearch, target: Queue, waiting: list[Message], cycle: Cycle) -> bool:
    """Move what may go to a queue now, and return whether the redrive goes on."""
    found = _chosen(search, executor.ledger, target, waiting, cycle.now_ms)
    try:
        messages, questions = _readable(executor, found)
    except StoreFailed:
        search.waiting += [message.number for message in waiting]
        return True
    search.damaged += len(found) - len(messages)
    settled = {message.number for message in found} - {message.number for message in messages}
    answers = None
    if target.policy.on_enqueue is not None:
        answers = executor.hook_calls.ask_on_enqueue(target.name, questions, cycle.now_ms)
        if answers is not None:  # those for which the script had no time move in a later step
            messages, questions = messages[: len(answers)], questions[: len(answers)]
    settled |= {message.number for message in messages}
    search.waiting += [message.number for message in waiting if message.number not in settled]
    if messages:
        outcome = executor.execute(_command(executor.ledger, search.state, target, messages, questions, answers), cycle)
        if isinstance(outcome, FairlaneError):
            end(executor, search, cycle, "failed", error=str(outcome))
            return False
    return True


def _chosen(search: RedriveSearch, ledger: Ledger, target: Queue, waiting: list[Message], now_ms: int) -> list[Message]:
    """Return those that may move now, by the redrive's rate and the limits of the queue they go to.

    One of a key that is full waits, and lets those of other keys pass.
    """
    most, state = _MOVE, search.state
    if state.order.rate is not None:
        allowed = int(state.order.rate * (now_ms - search.since_ms) / 1000) + 1
        most = min(most, allowed - (state.moved - search.since))
    room = QueueRoom(ledger, target)
    fitting = (message for message in waiting if room.take_in_queue(message.key, message.size) is None)
    return list(islice(fitting, max(0, most)))


def _pause_ms(search: RedriveSearch, rate: float, now_ms: int) -> int:
    """Return how long a redrive that has just moved something waits for its rate."""
    due_ms = search.since_ms + int((search.state.moved - search.since) * 1000 / rate) + 1
    return max(1, min(due_ms - now_ms, _PAUSE_MS))


def _readable(executor: Executor, messages: list[Message]) -> tuple[list[Message], list[EnqueueQuestion]]:
    """Return the messages whose bodies can be read, with what the enqueue flow of their queue asks about them.

    Raises:
        StoreFailed: the store can't be read at the moment.
    """
    try:
        bodies = executor.bodies.read(messages)
    except StoreCorrupt:
        if len(messages) == 1:
            return [], []
        parts = [_readable(executor, [message]) for message in messages]
        return [one for part, _ in parts for one in part], [one for _, part in parts for one in part]
    asked = [EnqueueQuestion(headers, one.size) for one, (headers, _, _) in zip(messages, bodies, strict=True)]
    return messages, asked


def _command(
    ledger: Ledger,
    state: RedriveState,
    target: Queue,
    messages: list[Message],
    questions: list[EnqueueQuestion],
    answers: list[EnqueueAnswer | None] | None,
) -> MoveDeadLetters:
    """Return the command that lets dead letters go through the enqueue flow of a queue."""
    news = [
        NewMessage(
            headers=question.headers,
            fairness_key=message.key,
            weight=message.weight or None,
            cost=message.cost,
            priority=PRIORITY_NAMES[message.priority],
            throttles=unscoped(ledger.queues.get(origin_of(message)), message.throttles),
            max_attempts=None if message.after is None else message.after.max_attempts,
            visibility_timeout_ms=None if message.after is None else message.after.visibility_ms,
            result_ttl_ms=None if message.after is None else message.after.result_ttl_ms,
            order_key=None if message.after is None else message.after.order_key,
        )
        for message, question in zip(messages, questions, strict=True)
    ]
    return MoveDeadLetters(
        queue=state.order.queue,
        target=target.name,
        numbers=[message.number for message in messages],
        messages=news,
        answers=answers,
        by=state.order.by,
        redrive=state.number,
    )
