"""Calls of tasks that are sent together: chains, one after the other, and fan-outs, joined by one more at the end.

A chain travels in a header of its first job. The worker that acknowledges a job of a chain forwards the next one in the
same commit. A fan-out is the broker's: ``fairlane.core.states.fan_outs`` has its theory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from fairlane.client.aio import AsyncClient
from fairlane.client.message_fields import MessageFields
from fairlane.errors import Forbidden, InvalidArgument, QueueNotFound
from fairlane.model.message import NewMessage
from fairlane.tasks.before import after_job, tasks_header
from fairlane.tasks.handle import JobHandle, ThreadJobHandle
from fairlane.verbs.fan_outs import FannedOutIds, OnFailure
from fairlane.worker.policy import Answer
from fairlane.worker.results import Acknowledge, ForwardTo

if TYPE_CHECKING:
    from fairlane.tasks.task import SendContext, TypedTask

R = TypeVar("R")
CHAIN_HEADER: Final = "fairlane-chain"
"""The header that has the jobs that come after a job, as JSON."""


class _Step(msgspec.Struct, frozen=True, array_like=True):
    """A job that is still to come."""

    queue: str
    message: NewMessage
    at_ms: int | None = None

    def due(self, now_ms: int) -> NewMessage:
        """Return its message for a forward at an instant: a delay would count from the forward, and not from now."""
        if self.at_ms is None:
            return self.message
        return msgspec.structs.replace(self.message, delay_ms=max(0, self.at_ms - now_ms))


@dataclass(frozen=True, slots=True)
class TaskCall(Generic[R]):
    """A job that is not sent yet; see ``TypedTask.call``.

    Attributes:
        task: its task.
        message: its message, as it would be sent now.
        at_ms: when it may start, if that is an instant of the wall clock.
    """

    task: TypedTask[..., R]
    message: NewMessage
    at_ms: int | None = None

    @property
    def calls(self) -> tuple[TaskCall[Any], ...]:
        """The jobs that it consists of, for what takes chains as well."""
        return (self,)

    @property
    def may_repeat(self) -> bool:
        """Whether sending it may send nothing, because its name is known."""
        return self.message.unique_key is not None or self.message.dedup_id is not None


@dataclass(frozen=True, slots=True)
class Chain(Generic[R]):
    """Jobs that run one after the other, each when the one before is done; see ``App.chain``."""

    calls: tuple[TaskCall[Any], ...]

    @property
    def task(self) -> TypedTask[..., Any]:
        """The task of the first job."""
        return self.calls[0].task

    @property
    def message(self) -> NewMessage:
        """The first job, with those after it in a header."""
        first, *others = self.calls
        if not others:
            return first.message
        steps = [_Step(call.task.queue, call.message, call.at_ms) for call in others]
        rest = msgspec.json.encode(steps).decode()
        return msgspec.structs.replace(first.message, headers={**first.message.headers, CHAIN_HEADER: rest})

    async def send(self) -> JobHandle[Any]:
        """Send the first job, and return its handle. See ``TypedTask.send`` for what it raises.

        The queues of all jobs are created if they do not exist, because workers forward to queues that exist.
        """
        await self.task.context.homes.call(self._ensure_queues)
        return await self.task.send_message(self.message)

    def send_sync(self) -> ThreadJobHandle[Any]:
        """Send the first job from a thread; see ``send``."""
        self.task.context.homes.call_sync(self._ensure_queues)
        return self.task.send_message_sync(self.message)

    async def _ensure_queues(self, client: AsyncClient) -> None:
        await ensure_queues(client, self.calls[1:])


Sendable: TypeAlias = TaskCall[R] | Chain[R]
"""What a chain or a fan-out can be made of."""


def chain_of(calls: Sequence[TaskCall[Any]]) -> Chain[Any]:
    """Return a chain of calls. Raises InvalidArgument if there is none, or if the chain might end in its middle."""
    if not calls:
        raise InvalidArgument("A chain needs at least one call, such as task.call(7).")
    for call in calls[1:-1]:
        if call.may_repeat:
            cause = f"A job of task {call.task.name!r} in the middle of a chain is unique or has a dedup_id"
            raise InvalidArgument(f"{cause}; if it repeated another job, the jobs after it would not be sent.")
    return Chain(tuple(calls))


async def ensure_queues(client: AsyncClient, calls: Iterable[TaskCall[Any]]) -> None:
    """Create the queues of jobs that workers will forward, if they do not exist: a forward creates none."""
    for task in {call.task.queue: call.task for call in calls}.values():
        await task.ensure_queue(client)


def continued(job: MessageFields, task: TypedTask[..., Any], answer: Answer) -> Answer:
    """Return the verdict about a job of a chain: if the job is done, the next one is forwarded with it."""
    rest = job.headers.get(CHAIN_HEADER)
    if rest is None or not (answer is None or isinstance(answer, (Acknowledge, ForwardTo))):
        return answer
    (step, *others) = msgspec.json.decode(rest, type=list[_Step])
    message = step.due(task.context.now_ms())
    headers = {**message.headers, **after_job(task.queue, job.id, task.name)}
    if others:
        headers[CHAIN_HEADER] = msgspec.json.encode(others).decode()
    message = msgspec.structs.replace(message, headers=headers)
    done = answer or Acknowledge()
    others_by_queue = dict(done.messages) if isinstance(done, ForwardTo) else {}
    messages = {**others_by_queue, step.queue: [*others_by_queue.get(step.queue, ()), message]}
    return ForwardTo(messages, cost=done.cost, result=done.result)


# ------------------------------------------------------------------------------------------------------------- fan-outs


@dataclass(frozen=True, slots=True)
class SentFanOut(Generic[R]):
    """The jobs of a fan-out that was sent.

    Attributes:
        then: the job that runs when all others have ended.
        members: the others, in order; of a chain the first job.
        is_repeat: whether a fan-out of this name was known, and nothing was sent.
    """

    then: JobHandle[R]
    members: tuple[JobHandle[Any], ...]
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class ThreadSentFanOut(Generic[R]):
    """The jobs of a fan-out that was sent from a thread; see ``SentFanOut``."""

    then: ThreadJobHandle[R]
    members: tuple[ThreadJobHandle[Any], ...]
    is_repeat: bool = False


class Members:
    """Jobs that are to be sent together; ``then`` says what comes after them. See ``App.fan_out``."""

    def __init__(self, context: SendContext, calls: Iterable[Sendable[Any]]) -> None:
        self._context = context
        self._calls = tuple(calls)

    def then(self, call: Sendable[R], *, on_failure: OnFailure = "dead") -> FanOutPlan[R]:
        """Return the fan-out that ends with a call, or a chain, when all members have ended.

        If a member is not done, the call becomes a dead letter, or runs all the same with ``on_failure="run"``.

        Raises:
            InvalidArgument: a job has a ``dedup_id`` or is unique, or the call has ``at``.
        """
        return FanOutPlan(self._context, self._calls, call, on_failure)


class FanOutPlan(Generic[R]):
    """A fan-out that is not sent yet."""

    def __init__(
        self, context: SendContext, calls: tuple[Sendable[Any], ...], then: Sendable[R], on_failure: OnFailure
    ) -> None:
        self._context = context
        self._then = then
        self._on_failure = on_failure
        by_queue: defaultdict[str, defaultdict[str, list[Sendable[Any]]]] = defaultdict(lambda: defaultdict(list))
        for call in calls:
            by_queue[call.task.queue][call.task.name].append(call)
        self._by_queue = by_queue  # and by task, so that a short header names the tasks of all members
        self._calls = calls
        if then.calls[0].at_ms is not None:
            cause = f"The job of task {then.task.name!r} has at=, but the last job of a fan-out only has a delay"
            raise InvalidArgument(
                f"{cause}, which counts from the end of the others. In .then(app.chain(a.call(), b.call())) the second "
                "job may have at=."
            )
        for job in (*(job for call in calls for job in call.calls), then.calls[0]):
            if job.may_repeat:
                cause = f"A job of task {job.task.name!r} in a fan-out is unique or has a dedup_id"
                raise InvalidArgument(f"{cause}; if it repeated another job, nothing would wait for its end.")

    async def send(self, name: str | None = None) -> SentFanOut[R]:
        """Send all jobs in one commit, or none. They are durable when this returns.

        ``name`` makes a second call the same: while it is known, nothing more is sent. By default it is random.

        Raises:
            CallTimedOut: no server answered in time.
            QueueFull, KeyFull, GlobalFull: a limit was reached.
        """
        sent = await self._context.homes.call(partial(self._fan_out, name=name or uuid4().hex))
        members = tuple(task.job(each) for task, each in self._members(sent))
        return SentFanOut(self._then.task.job(sent.id), members, sent.is_repeat)

    def send_sync(self, name: str | None = None) -> ThreadSentFanOut[R]:
        """Send all jobs from a thread; see ``send``."""
        sent = self._context.homes.call_sync(partial(self._fan_out, name=name or uuid4().hex))
        members = tuple(task.thread_job(each) for task, each in self._members(sent))
        return ThreadSentFanOut(self._then.task.thread_job(sent.id), members, sent.is_repeat)

    async def _fan_out(self, client: AsyncClient, *, name: str) -> FannedOutIds:
        limited, then = client.with_timeout(self._context.timeout_s), self._then
        messages = {
            queue: [call.message for calls in by_task.values() for call in calls]
            for queue, by_task in self._by_queue.items()
        }
        tasks = [(task, len(calls)) for by_task in self._by_queue.values() for task, calls in by_task.items()]
        last = msgspec.structs.replace(then.message, headers={**then.message.headers, **tasks_header(tasks)})
        await ensure_queues(client, [job for call in (*self._calls, then) for job in call.calls[1:]])
        for is_last in (False, True):
            try:
                return await limited.fan_out(then.task.queue, last, messages, name=name, on_failure=self._on_failure)
            except QueueNotFound as missing:
                if is_last:
                    raise
                try:
                    for task in {call.task.queue: call.task for call in (*self._calls, then)}.values():
                        await limited.ensure_queue(task.queue, task.definition.declared)
                except Forbidden:
                    raise missing from None
        raise AssertionError  # the loop returns or raises

    def _members(self, sent: FannedOutIds) -> list[tuple[TypedTask[..., Any], str]]:
        """Return the task and the id of each member, in the order of the calls; they were sent by queue and task."""
        every = iter(sent.ids)
        ids = {
            task: iter([next(every) for _ in calls])
            for by_task in self._by_queue.values()
            for task, calls in by_task.items()
        }
        return [(call.task, next(ids[call.task.name])) for call in self._calls]
