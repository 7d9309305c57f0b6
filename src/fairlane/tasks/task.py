"""Tasks: annotated functions that programs send, and workers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, Unpack
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from fairlane.client.aio import AsyncClient
from fairlane.client.limited import AsyncLimitedClient
from fairlane.client.message_fields import MessageFields
from fairlane.client.tracing import traced
from fairlane.errors import FairlaneError, Forbidden, InvalidArgument, QueueNotFound
from fairlane.model.message import Key, NewMessage
from fairlane.model.schedules import CatchUp, Overlap, ScheduleSpec
from fairlane.model.spelling import did_you_mean
from fairlane.tasks.arguments import ArgumentsCodec
from fairlane.tasks.batches import BatchTerms
from fairlane.tasks.before import jobs_of
from fairlane.tasks.calls import TaskCall
from fairlane.tasks.handle import JobHandle, ThreadJobHandle
from fairlane.tasks.homes import AppHomes
from fairlane.tasks.options import Duration, SendOptions, SendTerms, span_ms
from fairlane.verbs.messages import ENQUEUE_WAIT_MS, Enqueue, EnqueueResult
from fairlane.verbs.methods.conversions import enqueued_of
from fairlane.worker.handlers import is_async
from fairlane.worker.policy import HandlerPolicy

P = ParamSpec("P")
R = TypeVar("R")
TASK_HEADER: Final = "fairlane-task"
"""The header that names the task of a message."""
RESULT_HEADER: Final = "fairlane-result"
"""The header that says whether a message keeps its result, where it differs from its task."""
KEPT: Final = "kept"
DROPPED: Final = "dropped"
NameSource: TypeAlias = str | Callable[..., str | int | None]
"""Where a unique key or an order key comes from: the name of a parameter, or a function of the arguments."""
KeySource: TypeAlias = str | Callable[..., Key | int | None]
"""Where the fairness key of a job comes from: the name of a parameter, or a function of the arguments."""
Sent: TypeAlias = "list[EnqueueResult | FairlaneError]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """What an app knows of a task, apart from its function.

    Attributes:
        name: the name under which messages refer to it.
        policy: its queue, and how its jobs are handled.
        key: where the fairness key comes from; None for the default key.
        unique: where the unique key comes from; None for none.
        order_key: where the order key comes from; None for none.
        declared: the policy of its queue, if the queue has to be created.
        keeps_results: whether what it returns is the result of the job; None if its queue decides.
        cron, timezone, every: when a schedule sends it automatically.
        catch_up, overlap, jitter: how; None for the default.
        batch: how many jobs its function gets at once; None if it gets the arguments of one.
    """

    name: str
    policy: HandlerPolicy
    key: KeySource | None
    declared: Mapping[str, object]
    keeps_results: bool | None = None
    unique: NameSource | None = None
    order_key: NameSource | None = None
    cron: str | None = None
    timezone: str = "UTC"
    every: Duration | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    jitter: Duration | None = None
    batch: BatchTerms | None = None

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self.policy.queue

    @property
    def recurs(self) -> bool:
        """Whether a schedule sends it."""
        return self.cron is not None or self.every is not None

    def schedule(self, message: NewMessage) -> ScheduleSpec:
        """Return the schedule that sends a message of the task."""
        return ScheduleSpec(
            cron=self.cron,
            timezone=self.timezone,
            every_ms=span_ms("every", self.every),
            message=replace(message, unique_key=None),
            catch_up=self.catch_up or "last",
            overlap=self.overlap or ("allow" if message.unique_key is None else "skip"),
            jitter_ms=span_ms("jitter", self.jitter) or 0,
        )


class SendContext:
    """What tasks share with their app: the clients, the clock, and how long a call may take.

    Attributes:
        ensured: the queues that were created or found over each client, and need not be looked for again.
    """

    def __init__(self, homes: AppHomes, now_ms: Callable[[], int], timeout_s: float) -> None:
        self.homes = homes
        self.now_ms = now_ms
        self.timeout_s = timeout_s
        self.ensured: WeakKeyDictionary[AsyncClient, set[str]] = WeakKeyDictionary()


class TypedTask(Generic[P, R]):
    """A task. Call it as the function that it is, or send it as a job to a worker.

    Attributes:
        name: the name under which messages refer to it.
        queue: the queue of its jobs.
        function: the decorated function.
        context: what it shares with its app.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        definition: TaskDefinition,
        arguments: ArgumentsCodec[Any],
        context: SendContext,
        options: SendOptions,
    ) -> None:
        self.function = function
        self.definition = definition
        self.arguments = arguments
        self.name = definition.name
        self.queue = definition.queue
        self.is_async = is_async(function)
        self.context = context
        self._options = options
        self.__doc__ = function.__doc__
        _check_source(definition, arguments, definition.key, "its fairness key")
        _check_source(definition, arguments, definition.unique, "its unique key")
        _check_source(definition, arguments, definition.order_key, "its order key")

    def __repr__(self) -> str:
        return f"<Task {self.name} of queue {self.queue}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what the function takes and returns
        """Call the function itself, in this process, without a queue."""
        return self.function(*args, **kwargs)

    def options(self, **terms: Unpack[SendTerms]) -> TypedTask[P, R]:
        """Return the task with other options for its jobs, such as ``delay="5m"``; see ``SendOptions``."""
        options = self._options.changed(terms)
        return TypedTask(self.function, self.definition, self.arguments, self.context, options)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> NewMessage:
        """Return the message of a job without sending it, for ``enqueue_many``, ``ForwardTo`` or an outbox.

        Raises:
            InvalidArgument: the arguments do not fit the parameters; the error names the argument.
        """
        return self._made(args, kwargs)

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Send a job, and return a handle of it. The job is durable when this returns.

        Raises:
            InvalidArgument: the arguments do not fit the parameters; the error names the argument.
            CallTimedOut: no server answered in time.
            QueueFull, KeyFull, GlobalFull: a limit was reached.
        """
        return await self.send_message(self.message(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R]:
        """Return a job without sending it, for ``App.chain`` and ``App.fan_out``."""
        return TaskCall(self, self._made(args, kwargs), self._options.at_ms)

    async def send_message(self, message: NewMessage) -> JobHandle[R]:
        """Send a job that ``message`` has returned; see ``send``."""
        sent = await self.context.homes.call(lambda client: self._enqueue(client, message))
        return self.job(str(sent.id), is_repeat=sent.is_repeat)

    def send_message_sync(self, message: NewMessage) -> ThreadJobHandle[R]:
        """Send a job that ``message`` has returned, from a thread; see ``send``."""
        sent = self.context.homes.call_sync(lambda client: self._enqueue(client, message))
        return self.thread_job(str(sent.id), is_repeat=sent.is_repeat)

    async def send_many(self, calls: Sequence[Mapping[str, Any]]) -> list[JobHandle[R] | FairlaneError]:
        """Send a job for each mapping of arguments, in one commit. Return a handle or an error for each.

        Raises:
            InvalidArgument: the arguments of a call do not fit the parameters; nothing was sent.
            CallTimedOut: no server answered in time.
        """
        messages = [self._message_of(call) for call in calls]
        sent = await self.context.homes.call(lambda client: self._enqueue_many(client, messages))
        return [
            each if isinstance(each, FairlaneError) else self.job(str(each.id), is_repeat=each.is_repeat)
            for each in sent
        ]

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> ThreadJobHandle[R]:
        """Send a job from a thread; see ``send``."""
        return self.send_message_sync(self.message(*args, **kwargs))

    def send_many_sync(self, calls: Sequence[Mapping[str, Any]]) -> list[ThreadJobHandle[R] | FairlaneError]:
        """Send a job for each mapping of arguments, from a thread; see ``send_many``."""
        messages = [self._message_of(call) for call in calls]
        sent = self.context.homes.call_sync(lambda client: self._enqueue_many(client, messages))
        return [
            each if isinstance(each, FairlaneError) else self.thread_job(str(each.id), is_repeat=each.is_repeat)
            for each in sent
        ]

    def job(self, job_id: str, *, is_repeat: bool = False) -> JobHandle[R]:
        """Return the handle of a job that was sent before, by its id."""
        decode = self.arguments.decode_answer
        return JobHandle(
            self.context.homes, job_id=job_id, queue=self.queue, task=self.name, decode=decode, is_repeat=is_repeat
        )

    def thread_job(self, job_id: str, *, is_repeat: bool = False) -> ThreadJobHandle[R]:
        """Return the handle of a job that was sent before, by its id, for threads."""
        decode = self.arguments.decode_answer
        return ThreadJobHandle(
            self.context.homes, job_id=job_id, queue=self.queue, task=self.name, decode=decode, is_repeat=is_repeat
        )

    def jobs_before(self, message: MessageFields) -> list[JobHandle[R]]:
        """Return handles of the jobs of this task that came before a job, in the order of their calls.

        For the last job of a fan-out these are the members; of a chain among them the first job. For a job of a chain
        it is the one before it.
        """
        return [self.job(job_id) for job_id in jobs_of(message.headers, task=self.name, queue=self.queue)]

    def thread_jobs_before(self, message: MessageFields) -> list[ThreadJobHandle[R]]:
        """Return handles of the jobs of this task that came before a job, for threads; see ``jobs_before``."""
        return [self.thread_job(job_id) for job_id in jobs_of(message.headers, task=self.name, queue=self.queue)]

    async def ensure_queue(self, client: AsyncClient) -> None:
        """Create the queue as declared if it does not exist, once for a client. Operators may reserve that."""
        ensured = self.context.ensured.setdefault(client, set())
        if self.queue not in ensured:
            with suppress(Forbidden):
                await self._limited(client).ensure_queue(self.queue, self.definition.declared)
            ensured.add(self.queue)

    # ------------------------------------------------------------------------------------------------------- internals

    def _made(self, args: Sequence[object], kwargs: Mapping[str, object]) -> NewMessage:
        payload, arguments = self.arguments.encode(args, kwargs)
        options, definition = self._options, self.definition
        key = self._chosen(options.key, definition.key, arguments)
        unique = self._chosen(options.unique, definition.unique, arguments)
        order = self._chosen(options.order_key, definition.order_key, arguments)
        terms = options.terms(self.context.now_ms()) | {
            "headers": self._headers(),
            "fairness_key": key if key is None or isinstance(key, str | tuple) else str(key),
            "unique_key": None if unique is None else f"{self.name}:{unique}",
            "order_key": None if order is None else str(order),
        }
        return NewMessage(payload=payload, **terms)

    def _headers(self) -> dict[str, str]:
        headers = {**(self._options.headers or {}), TASK_HEADER: self.name}
        kept = self._options.keeps_result
        if kept is not None and kept != self.definition.keeps_results:
            headers[RESULT_HEADER] = KEPT if kept else DROPPED
        return headers

    def _message_of(self, call: Mapping[str, Any]) -> NewMessage:
        if not isinstance(call, Mapping):
            raise InvalidArgument(f"send_many() takes mappings of arguments by name, got {type(call).__name__}.")
        return self._made((), call)

    def _chosen(self, option: object, source: str | Callable[..., Any] | None, arguments: object) -> object:
        """Return an option, or what the task derives in its place."""
        if option is not None or source is None:
            return option
        return self.arguments.derived(source, arguments)

    async def _enqueue(self, client: AsyncClient, message: NewMessage) -> EnqueueResult:
        limited = self._limited(client)
        try:
            return await limited.enqueue_one(self.queue, message, wait_ms=self._wait_ms())
        except QueueNotFound as missing:
            await self._create_queue(limited, missing)
        return await limited.enqueue_one(self.queue, message, wait_ms=self._wait_ms())

    async def _enqueue_many(self, client: AsyncClient, messages: Sequence[NewMessage]) -> Sent:
        limited = self._limited(client)
        try:
            return await self._sent(limited, messages)
        except QueueNotFound as missing:
            await self._create_queue(limited, missing)
        return await self._sent(limited, messages)

    async def _sent(self, client: AsyncLimitedClient, messages: Sequence[NewMessage]) -> Sent:
        request = Enqueue(queue=self.queue, messages=list(traced(messages)), wait_ms=self._wait_ms())
        return enqueued_of((await client.call(request)).results)  # enqueue_many() would not say which repeat a job

    async def _create_queue(self, client: AsyncLimitedClient, missing: QueueNotFound) -> None:
        """Create the queue as declared, because the producer came before the worker; operators may reserve that."""
        try:
            await client.ensure_queue(self.queue, self.definition.declared)
        except Forbidden:
            raise missing from None

    def _limited(self, client: AsyncClient) -> AsyncLimitedClient:
        return client.with_timeout(self._options.timeout or self.context.timeout_s)

    def _wait_ms(self) -> int:
        wait_ms = span_ms("wait", self._options.wait)
        return ENQUEUE_WAIT_MS if wait_ms is None else wait_ms


def _check_source(definition: TaskDefinition, arguments: ArgumentsCodec[Any], source: object, what: str) -> None:
    if isinstance(source, str) and source not in arguments.parameters:
        question = did_you_mean(source, tuple(arguments.parameters))
        raise InvalidArgument(f"Task {definition.name!r} has no parameter {source!r} for {what}.{question}")
