"""The simulation's batch writers: tasks that stage, repeat and give up, and drivers that publish, sometimes twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlane.errors import FairlaneError, StageMismatch, StoreFailed
from fairlane.model.message import NewMessage
from fairlane.model.staging import PublishResult, StageResult
from fairlane.verbs.batches import DropSink, Publish, Stage
from tests.kit.auditor.books import violated
from tests.kit.auditor.sinks import known_of, told_published, told_staged
from tests.kit.simulation.claims import Claimants

_SINKS = ("out", "copy")


@dataclass(slots=True, eq=False)
class Task:
    """A task that stages a part of a batch, and what it has sent."""

    queue: str
    sink: str
    batch: int
    part: str
    staged: int = 0
    unsure: list[NewMessage] = field(default_factory=list)
    """The last request, whose outcome is unknown."""


@dataclass
class BatchWriters(Claimants):
    """Clients that stage and publish."""

    tasks: dict[tuple[str, str], list[Task]] = field(default_factory=dict)
    """The tasks of the current batch, by queue and sink."""
    batches: dict[tuple[str, str], int] = field(default_factory=dict)
    attempts: int = 0

    def stage(self) -> None:
        """Stage a part as a task, or repeat a request with an unknown outcome."""
        draw = self.world.workload
        queue, sink = self._queue(), draw.one_of(*_SINKS)
        batch = self.batches.setdefault((queue, sink), 0)
        tasks = self.tasks.setdefault((queue, sink), [])
        if not tasks or draw.happens(0.3):
            self.attempts += 1
            tasks.append(Task(queue, sink, batch, f"t{self.attempts}"))
        task = draw.chance.choice(tasks)
        if not task.unsure:
            task.unsure = [
                msgspec.structs.replace(message, dedup_id=None, unique_key=None) for message in draw.messages()
            ]
        self._stage(task, list(task.unsure), at=task.staged + draw.one_of(*[0] * 12, 5))

    def _stage(self, task: Task, messages: list[NewMessage], *, at: int) -> None:
        auditor, draw = self.world.auditor, self.world.workload
        for message in messages:
            auditor.note_sent(task.queue, message)
        place = (task.queue, task.sink, task.batch, task.part)

        def judge(outcome: Any) -> None:
            auditor.told_missing(task.queue, outcome)
            told_staged(auditor.books, place, at + len(messages), outcome)
            if isinstance(outcome, StageResult) and task.unsure == messages and at == task.staged:
                task.staged, task.unsure = at + len(messages), []
            elif isinstance(outcome, StageMismatch) and at == task.staged:
                self._give_up(task)  # what it had staged is gone: the batch was published without it

        wait_ms = draw.one_of(0, 0, 500, 10_000)
        command = Stage(
            queue=task.queue,
            sink=task.sink,
            batch=task.batch,
            part=task.part,
            at=at,
            messages=messages,
            wait_ms=wait_ms,
        )
        self.do(f"stage {len(messages)} at {at} of {place}, wait {wait_ms}", command, judge, wait_ms=wait_ms)

    def _give_up(self, task: Task) -> None:
        tasks = self.tasks.get((task.queue, task.sink), [])
        if task in tasks:
            tasks.remove(task)

    def publish(self) -> None:
        """Publish the batch as a driver, or an earlier one again."""
        if not self.batches:
            return
        draw, books = self.world.workload, self.world.auditor.books
        queue, sink = draw.chance.choice(sorted(self.batches))
        batch = self.batches[queue, sink]
        tasks = self.tasks.get((queue, sink), [])
        parts = [task.part for task in tasks if task.batch == batch and task.staged and draw.happens(0.8)]
        if draw.happens(0.2):
            batch, parts = max(0, batch - 1), parts[:1]
        known = known_of(books.queues.get(queue), sink)

        def judge(outcome: Any) -> None:
            self.world.auditor.told_missing(queue, outcome)
            told_published(books, queue, (sink, batch), known, outcome)
            if isinstance(outcome, PublishResult) and batch == self.batches[queue, sink]:
                self.batches[queue, sink] = batch + 1
            if isinstance(outcome, FairlaneError) and not isinstance(outcome, StoreFailed):
                self.tasks[queue, sink] = []
            elif isinstance(outcome, PublishResult):
                self.tasks[queue, sink] = [task for task in self.tasks.get((queue, sink), []) if task.batch > batch]
            if isinstance(outcome, FairlaneError) and outcome.code == "invalid_argument":
                violated(f"publishing {parts} was refused: {outcome!r}")

        command = Publish(queue=queue, sink=sink, batch=batch, parts=parts)
        self.do(f"publish {parts} as batch {batch} of {sink} of {queue}", command, judge)

    def drop_sink(self) -> None:
        """Remove a sink as an operator."""
        if self.batches:
            self.drop(*self.world.workload.chance.choice(sorted(self.batches)))

    def drop(self, queue: str, sink: str) -> None:
        """Remove a sink."""
        self.do(f"drop {sink} of {queue}", DropSink(queue=queue, sink=sink), lambda _outcome: None)
