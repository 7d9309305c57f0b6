"""Redrives: dead letters back to work, a few with each cycle, at a rate, with progress, until done or stopped.

Each step is one commit of its own kind: a message is either still among the dead letters or back in its queue. So a
redrive that is stopped, or whose broker dies, has lost nothing, and can be started again for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from fairlane.broker.cycle import Cycle, Executor
from fairlane.core.commands import MoveDeadLetters
from fairlane.core.decide.room import QueueRoom
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.errors import FairlaneError, InvalidArgument, NotADlq, QueueNotFound, RedriveNotFound
from fairlane.model.answers import EnqueueAnswer
from fairlane.model.message import PRIORITY_NAMES, NewMessage, canonical
from fairlane.model.names import DLQ_SUFFIX, is_dlq
from fairlane.model.views import DeadLetterFilter, RedriveView
from fairlane.ports.hooks import EnqueueQuestion

_SCAN = 2_000
_MOVE = 100
_HELD = 1_000
_COUNT = 50_000
_PAUSE_MS = 100
_KEPT = 100


def numbers_meant(wanted: DeadLetterFilter, queue: Queue) -> list[int]:
    """Return the numbers of the messages in a queue that a filter may mean: those it names, or all."""
    if wanted.ids is None:
        return list(queue.messages)
    named = {queue.ids.number_of(message_id) for message_id in wanted.ids}
    return [number for number in queue.messages if number in named]


def admits(wanted: DeadLetterFilter, message: Message, now_ms: int) -> bool:
    """Return whether a filter matches a message, apart from its number."""
    after = message.after
    dead_ms = after.dead_ms if after is not None else message.enqueued_ms
    age_ms = now_ms - dead_ms
    errors = after.errors if after is not None else ()
    return (
        (wanted.fairness_key is None or message.key == canonical(wanted.fairness_key))
        and (wanted.error is None or any(wanted.error in attempt.error for attempt in errors))
        and (wanted.reason is None or (after is not None and after.dead_reason == wanted.reason))
        and (wanted.older_than_ms is None or age_ms >= wanted.older_than_ms)
        and (wanted.newer_than_ms is None or age_ms <= wanted.newer_than_ms)
    )


@dataclass(slots=True, eq=False)
class _Job:
    id: str
    queue: str
    numbers: list[int]
    filter: DeadLetterFilter
    count: int | None
    rate: float | None
    is_dry_run: bool
    target: str | None
    by: str | None
    started_ms: int
    next_ms: int
    scanned: int = 0
    matched: int = 0
    moved: int = 0
    status: Literal["running", "done", "stopped", "failed"] = "running"
    ended_ms: int | None = None
    error: str | None = None
    waiting: list[int] = field(default_factory=list)
    homeless: int = 0

    def view(self) -> RedriveView:
        return RedriveView(
            id=self.id,
            queue=self.queue,
            status=self.status,
            is_dry_run=self.is_dry_run,
            total=len(self.numbers),
            scanned=self.scanned,
            matched=self.matched,
            moved=self.moved,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            error=self.error,
        )

    def end(self, status: Literal["done", "stopped", "failed"], now_ms: int, error: str | None = None) -> None:
        self.status, self.ended_ms, self.error = status, now_ms, error


class Redrives:
    """The redrives that run, and the last of those that ran."""

    def __init__(self) -> None:
        self.jobs: dict[str, _Job] = {}
        self._started = 0

    def start(
        self,
        ledger: Ledger,
        queue: str,
        *,
        wanted: DeadLetterFilter,
        count: int | None,
        rate: float | None,
        is_dry_run: bool,
        target: str | None,
        by: str | None,
        now_ms: int,
    ) -> RedriveView:
        """Start a redrive of a dead-letter queue.

        Raises:
            QueueNotFound, NotADlq, InvalidArgument: it can't be started.
        """
        dlq = ledger.queues.get(queue)
        if dlq is None:
            raise QueueNotFound(f"There is no queue {queue!r:.150}.")
        if not is_dlq(queue):
            raise NotADlq(f"Queue {queue!r} is not a dead-letter queue.")
        if target is not None and target not in ledger.queues:
            raise QueueNotFound(f"There is no queue {target!r:.150}.")
        if target is not None and is_dlq(target):
            raise InvalidArgument(f"Queue {target!r} is a dead-letter queue; redrive to a queue that has one.")
        if count is not None and (type(count) is not int or count < 1):
            raise InvalidArgument(f"count is a whole number of at least 1, not {count!r}.")
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
            raise InvalidArgument(f"rate is a number above 0, in messages a second, not {rate!r}.")
        meant = numbers_meant(wanted, dlq)
        self._started += 1
        redrive_id = f"redrive-{self._started}"
        job = _Job(redrive_id, queue, meant, wanted, count, rate, is_dry_run, target, by, now_ms, now_ms)
        self.jobs[job.id] = job
        if is_dry_run:
            self._count(job, dlq, now_ms)
        for old in [known for known in self.jobs.values() if known.status != "running"][:-_KEPT]:
            del self.jobs[old.id]
        return job.view()

    def _count(self, job: _Job, dlq: Queue, now_ms: int) -> None:
        """Count at once what a dry run is about, unless there is so much that others would wait for it."""
        while job.status == "running" and job.scanned < _COUNT:
            self._scan(job, dlq, now_ms)
            self._end_if_done(job, now_ms)

    def view(self, redrive_id: str) -> RedriveView:
        """Return how far a redrive is. Raises RedriveNotFound if there is none of this id."""
        job = self.jobs.get(redrive_id)
        if job is None:
            raise RedriveNotFound(f"There is no redrive {redrive_id!r:.60}.")
        return job.view()

    def views(self) -> list[RedriveView]:
        """Return all that are known, the latest last."""
        return [job.view() for job in self.jobs.values()]

    def stop(self, redrive_id: str, now_ms: int) -> RedriveView:
        """Stop a redrive, if it still runs. Raises RedriveNotFound if there is none of this id."""
        self.view(redrive_id)
        job = self.jobs[redrive_id]
        if job.status == "running":
            job.end("stopped", now_ms)
        return job.view()

    def stop_all(self) -> None:
        """Stop every redrive: the broker has had to recover."""
        for job in self.jobs.values():
            if job.status == "running":
                job.end("stopped", job.next_ms, "The broker had to recover; start it again for the rest.")

    def next_step_at(self) -> int | None:
        """Return when the next step is due, None for never."""
        return min((job.next_ms for job in self.jobs.values() if job.status == "running"), default=None)

    # --------------------------------------------------------------------------------------------------------- stepping

    def step(self, executor: Executor, cycle: Cycle) -> None:
        """Take a step with each redrive that is due."""
        for job in list(self.jobs.values()):
            if job.status == "running" and job.next_ms <= cycle.now_ms:
                self._step(executor, job, cycle)

    def _step(self, executor: Executor, job: _Job, cycle: Cycle) -> None:
        queues = executor.ledger.queues
        dlq = queues.get(job.queue)
        if dlq is None or (job.target is not None and job.target not in queues):
            job.end("failed", cycle.now_ms, "The queue was deleted.")
            return
        self._scan(job, dlq, cycle.now_ms)
        if not job.is_dry_run:
            self._move(executor, job, dlq, cycle)
        self._end_if_done(job, cycle.now_ms)

    @staticmethod
    def _end_if_done(job: _Job, now_ms: int) -> None:
        is_full = job.count is not None and job.matched >= job.count
        if job.status == "running" and not job.waiting and (is_full or job.scanned >= len(job.numbers)):
            stay = f"{job.homeless} dead letters stay: the queue they came from was deleted. Redrive them to a target."
            job.end("done", now_ms, stay if job.homeless else None)

    @staticmethod
    def _scan(job: _Job, dlq: Queue, now_ms: int) -> None:
        """Look through the next dead letters for those that are meant."""
        end = min(job.scanned + _SCAN, len(job.numbers))
        while job.scanned < end and len(job.waiting) < _HELD and (job.count is None or job.matched < job.count):
            message = dlq.messages.get(job.numbers[job.scanned])
            job.scanned += 1
            if message is not None and not message.token and admits(job.filter, message, now_ms):
                job.matched += 1
                if not job.is_dry_run:
                    job.waiting.append(message.number)

    def _move(self, executor: Executor, job: _Job, dlq: Queue, cycle: Cycle) -> None:
        """Move messages to each of the queues that they go to."""
        present = [dlq.messages[number] for number in job.waiting if number in dlq.messages]
        by_target: dict[str, list[Message]] = {}
        for message in present:
            if not message.token:
                by_target.setdefault(job.target or _origin(message), []).append(message)
        moved, job.waiting = job.moved, []
        for name, messages in by_target.items():
            target = executor.ledger.queues.get(name)
            if target is None:
                job.homeless += len(messages)
            elif not self._move_to(executor, job, target, messages, cycle):
                return
        if job.waiting and job.moved == moved:
            job.next_ms = cycle.now_ms + _PAUSE_MS
        elif job.waiting and job.rate is not None:
            job.next_ms = cycle.now_ms + self._pause_ms(job, job.rate, cycle.now_ms)

    def _move_to(self, executor: Executor, job: _Job, target: Queue, waiting: list[Message], cycle: Cycle) -> bool:
        """Move what may go to a queue now, and return whether the redrive goes on."""
        messages = self._chosen(job, executor.ledger, target, waiting, cycle.now_ms)
        questions, answers = _questions(executor, messages), None
        if target.policy.on_enqueue is not None:
            answers = executor.hook_calls.ask_on_enqueue(target.name, questions, cycle.now_ms)
            if answers is not None:  # those for which the script had no time move in a later step
                messages, questions = messages[: len(answers)], questions[: len(answers)]
        chosen = {message.number for message in messages}
        job.waiting += [message.number for message in waiting if message.number not in chosen]
        if messages:
            outcome = executor.execute(_command(job, target, messages, questions, answers), cycle)
            if isinstance(outcome, FairlaneError):
                job.end("failed", cycle.now_ms, str(outcome))
                return False
            job.moved += len(messages)
        return True

    @staticmethod
    def _chosen(job: _Job, ledger: Ledger, target: Queue, waiting: list[Message], now_ms: int) -> list[Message]:
        """Return those that may move now, by the redrive's rate and the limits of the queue they go to.

        One of a key that is full waits, and lets those of other keys pass.
        """
        most = _MOVE
        if job.rate is not None:
            most = min(most, int(job.rate * (now_ms - job.started_ms) / 1000) + 1 - job.moved)
        room = QueueRoom(ledger, target)
        fitting = (message for message in waiting if room.take_in_queue(message.key, message.size) is None)
        return list(islice(fitting, max(0, most)))

    @staticmethod
    def _pause_ms(job: _Job, rate: float, now_ms: int) -> int:
        """Return how long a redrive that has just moved something waits for its rate."""
        due_ms = job.started_ms + int(job.moved * 1000 / rate) + 1
        return max(1, min(due_ms - now_ms, _PAUSE_MS))


def _origin(message: Message) -> str:
    """Return the queue that a dead letter came from."""
    origin = None if message.after is None else message.after.origin
    return message.queue.name.removesuffix(DLQ_SUFFIX) if origin is None else origin


def _questions(executor: Executor, messages: list[Message]) -> list[EnqueueQuestion]:
    """Return what is known of dead letters that go through the enqueue flow of their queue again."""
    bodies = executor.bodies.read(messages)
    return [EnqueueQuestion(headers, message.size) for message, (headers, _, _) in zip(messages, bodies, strict=True)]


def _command(
    job: _Job,
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
            throttles=tuple(name.removeprefix(f"{_origin(message)}/") for name in message.throttles),
            max_attempts=None if message.after is None else message.after.max_attempts,
            visibility_timeout_ms=None if message.after is None else message.after.visibility_ms,
        )
        for message, question in zip(messages, questions, strict=True)
    ]
    numbers = [message.number for message in messages]
    return MoveDeadLetters(
        queue=job.queue, target=target.name, numbers=numbers, messages=news, answers=answers, by=job.by
    )
