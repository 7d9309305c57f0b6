"""The app: tasks by queue, the clients that send them, and the worker that runs them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from fairlane.client.aio import AsyncClient
from fairlane.errors import InvalidArgument
from fairlane.model.message import PriorityName
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import CatchUp, Overlap
from fairlane.tasks.arguments import ArgumentsInvalid, Encoding, TaskArguments
from fairlane.tasks.batches import BatchArguments, BatchTerms
from fairlane.tasks.calls import Chain, Members, Sendable, TaskCall, chain_of
from fairlane.tasks.dispatch import AnyTask, task_handler
from fairlane.tasks.homes import AppHomes
from fairlane.tasks.options import Duration, SendOptions, check_names
from fairlane.tasks.task import KeySource, NameSource, SendContext, TaskDefinition, TypedTask
from fairlane.verbs.methods.conversions import given_fields
from fairlane.worker.app import BATCH_WAIT_MS, Worker
from fairlane.worker.handlers import QueueHandler
from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Errors, HandlerPolicy, Restarts

if TYPE_CHECKING:
    from fairlane.testing.harness import AppHarness

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
M = TypeVar("M", bound=WorkMessage)
DEFAULT_QUEUE = "default"
TIMEOUT_S = 5.0
_POLICY_TERMS = frozenset(field.name for field in fields(HandlerPolicy))
_SEND_TERMS = frozenset(("priority", "throttles", "cost", "result_ttl"))


class TaskTerms(TypedDict, total=False):
    """The options of a task.

    Attributes:
        queue: the queue of its jobs; ``default`` by default.
        policy: the policy with which the queue is created if it does not exist.
        name: the name under which messages refer to it; that of the function by default.
        key: the parameter whose argument is the fairness key, or a function of the arguments.
        unique: the parameter whose argument is unique, or a function of the arguments: while a job of the same task and
            tenant with the same value waits or runs, another is not enqueued.
        order_key: the parameter whose argument is the order key, or a function of the arguments: in a queue with strict
            order, jobs of the same tenant with the same value run one after the other.
        cron, timezone: when a schedule of the broker sends the task automatically; its parameters need defaults.
        every: in place of ``cron``, the interval, such as ``"5m"``.
        catch_up, overlap, jitter: what happens to late ticks and to ticks whose previous job still waits or runs, and
            the span over which jobs are spread; see ``ScheduleSpec``. By default a task with ``unique`` skips a tick
            while its previous job waits or runs.
        encoding: how arguments are encoded: ``json``, or ``msgpack``.
        priority: the priority of its jobs.
        throttles: the throttles of its jobs.
        cost: the cost of its jobs.
        result_ttl: how long what the function returns is kept, such as ``"1d"``; by default the queue's
            ``result_ttl_ms``, and not at all without one.
        timeout_s: how long a job may run.
        retries, retry_on, dead_letter_on: what happens to a job whose function raises; see ``HandlerPolicy``.
        concurrency, credit, visibility_ms: how a worker takes the jobs of the queue; the largest of its tasks counts.
    """

    queue: str
    policy: QueuePolicy | Mapping[str, object]
    name: str
    key: KeySource
    unique: NameSource
    order_key: NameSource
    cron: str
    timezone: str
    every: Duration
    catch_up: CatchUp
    overlap: Overlap
    jitter: Duration
    encoding: Encoding
    priority: PriorityName
    throttles: tuple[str, ...]
    cost: int
    result_ttl: Duration
    timeout_s: float | None
    retries: int | None
    retry_on: Errors
    dead_letter_on: Errors
    concurrency: int
    credit: int | None
    visibility_ms: int


class Registering(Protocol):
    """The decorator of a task: a function may get the message before its own parameters."""

    @overload
    def __call__(self, function: Callable[Concatenate[M, P], Awaitable[R]], /) -> TypedTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[M, P], R], /) -> TypedTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TypedTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TypedTask[P, R]: ...


class RegisteringBatch(Protocol):
    """The decorator of a batch task: ``send`` takes one item of the list that the function gets."""

    @overload
    def __call__(self, function: Callable[[list[T]], Awaitable[None]], /) -> TypedTask[[T], None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Awaitable[list[R] | None]], /) -> TypedTask[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> TypedTask[[T], None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R] | None], /) -> TypedTask[[T], R]: ...


class App(Worker):
    """Tasks, and what sends and runs them: ``@app.task`` in your code, ``fairlane worker module:app`` to run them.

    Web processes and scripts send with the same object; connections open with the first call.
    """

    def __init__(
        self,
        server: str | AsyncClient | None = None,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_S,
        restarts: Restarts | None = None,
        grace_s: float = 30.0,
    ) -> None:
        """Create an app without connecting yet.

        Args:
            server: the server's address; by default ``FAIRLANE_SERVER`` from the environment, or this machine.
                Alternatively a connected client, which is left open.
            api_key: the API key; by default ``FAIRLANE_API_KEY`` from the environment.
            tls: the TLS context that verifies the server.
            timeout: how many seconds a call may take, connecting included; ``options(timeout=...)`` changes it.
            restarts: when a failed consumer restarts.
            grace_s: how long running jobs may continue during shutdown.
        """
        super().__init__(server, api_key=api_key, tls=tls, restarts=restarts, grace_s=grace_s)
        self._tasks: dict[str, dict[str, AnyTask]] = {}
        self._declared: dict[str, dict[str, Any]] = {}
        self._homes = AppHomes(self._sending_client)
        self._context = SendContext(self._homes, _now_ms, timeout)

    @overload
    def task(self, function: Callable[Concatenate[M, P], Awaitable[R]], /) -> TypedTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[M, P], R], /) -> TypedTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TypedTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TypedTask[P, R]: ...
    @overload
    def task(self, function: None = None, /, **terms: Unpack[TaskTerms]) -> Registering: ...
    @overload
    def task(
        self, function: None = None, /, *, batch: int, batch_ms: int = BATCH_WAIT_MS, **terms: Unpack[TaskTerms]
    ) -> RegisteringBatch: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        batch: int | None = None,
        batch_ms: int = BATCH_WAIT_MS,
        **terms: Unpack[TaskTerms],
    ) -> object:
        """Register the decorated function, sync or async, as a task; see ``TaskTerms`` for its options.

        The function gets the arguments of ``send``, checked against its annotations. If its first parameter is
        annotated as a ``WorkMessage``, it gets the message, too. An exception counts as a failure.

        With ``batch`` its only parameter is a list: the items of up to ``batch`` jobs, or of fewer when the first of
        them has waited ``batch_ms``. It returns None, or a list with a result or a verdict for each.
        """
        check_names(terms, TaskTerms, of="a task")
        batched = None if batch is None else BatchTerms(batch, batch_ms)
        if function is not None:
            return self._register(function, terms, batched)
        return lambda decorated: self._register(decorated, terms, batched)

    @property
    def tasks(self) -> dict[str, AnyTask]:
        """The tasks by name."""
        return {name: task for tasks in self._tasks.values() for name, task in tasks.items()}

    # ---------------------------------------------------------------------------------------------------- several jobs

    def chain(self, *calls: TaskCall[Any]) -> Chain[Any]:
        """Return jobs that run one after the other: each is sent in the commit that acknowledges the one before.

        A job that becomes a dead letter or is cancelled ends its chain; a redrive goes on with it.
        """
        return chain_of(calls)

    def fan_out(self, calls: Iterable[Sendable[Any]]) -> Members:
        """Return jobs, or chains, that are sent together; ``.then(call).send()`` sends them with one more.

        That one runs once, when all others have ended.
        """
        return Members(self._context, calls)

    # ----------------------------------------------------------------------------------------------------- connections

    @asynccontextmanager
    async def lifespan(self, _application: object = None) -> AsyncIterator[None]:
        """Close the connections of this process at the end of the block.

        It is what ``lifespan`` of FastAPI, Starlette or Litestar expects: ``FastAPI(lifespan=app.lifespan)``.
        """
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections that calls of this event loop and of threads have opened."""
        await self._homes.close()

    def close_sync(self) -> None:
        """Close the connection that calls of threads have opened."""
        self._homes.close_sync()

    @contextmanager
    def bound_to(self, client: AsyncClient, now_ms: Callable[[], int]) -> Iterator[None]:
        """Send all jobs of this process over a client of the running event loop, with another clock."""
        before, self._context.now_ms = self._context.now_ms, now_ms
        try:
            with self._homes.shared(client):
                yield
        finally:
            self._context.now_ms = before

    def testing(self, *, now: datetime | None = None) -> AppHarness:
        """Return a harness for tests: a broker in memory on virtual time, and a worker that it drives.

        Use it as a context manager. ``now`` is the time at its start; by default the actual one.
        """
        # The test kit is above all packages, so this import goes up; it happens in tests only.
        from fairlane.testing.harness import AppHarness  # noqa: PLC0415 - see above

        return AppHarness(self, now=now)

    # ------------------------------------------------------------------------------------------------------- internals

    def _add(self, handler: QueueHandler) -> None:
        """Register what handles a queue without tasks; a handler would compete with them for its messages."""
        queue = handler.policy.queue
        if queue in self._tasks:
            tasks = ", ".join(self._tasks[queue])
            cause = f"Queue {queue!r} has tasks ({tasks}), so it can't have the handler {handler.name!r} as well"
            raise InvalidArgument(f"{cause}. Use another queue for one of them.")
        super()._add(handler)

    def _register(self, function: Callable[..., Any], terms: TaskTerms, batch: BatchTerms | None) -> AnyTask:
        name, queue = terms.get("name") or function.__name__, terms.get("queue", DEFAULT_QUEUE)
        if name in self.tasks:
            raise InvalidArgument(f"The app already has a task {name!r}; pass another name=... to one of them.")
        if queue in [handler.policy.queue for handler in super().handlers]:
            cause = f"Queue {queue!r} has a handler, so it can't have the task {name!r} as well"
            raise InvalidArgument(f"{cause}. Use another queue for one of them.")
        kind = TaskArguments if batch is None else BatchArguments
        arguments = kind(name, function, terms.get("encoding", "json"))
        definition = self._defined(name, queue, terms, batch)
        options = SendOptions(**{term: value for term, value in terms.items() if term in _SEND_TERMS})  # type: ignore[arg-type] # names of its fields
        task: AnyTask = TypedTask(function, definition, arguments, self._context, options)
        if definition.recurs:
            definition.schedule(task.message())  # raises if a parameter has no default
        self._tasks.setdefault(queue, {})[name] = task
        return task

    def _defined(self, name: str, queue: str, terms: TaskTerms, batch: BatchTerms | None) -> TaskDefinition:
        given: dict[str, Any] = {term: value for term, value in terms.items() if term in _POLICY_TERMS}
        if batch is not None:  # so that one batch fills while another runs
            batch.check(name, given.setdefault("concurrency", 2 * batch.size))
        given["dead_letter_on"] = (*given.get("dead_letter_on", ()), ArgumentsInvalid)
        declared = self._declare(queue, given_fields(terms.get("policy")))
        return TaskDefinition(
            name=name,
            policy=HandlerPolicy(**{"queue": queue} | given),
            key=terms.get("key"),
            unique=terms.get("unique"),
            order_key=terms.get("order_key"),
            declared=declared,
            keeps_results=SendOptions(result_ttl=terms.get("result_ttl")).keeps_result,
            cron=terms.get("cron"),
            timezone=terms.get("timezone", "UTC"),
            every=terms.get("every"),
            catch_up=terms.get("catch_up"),
            overlap=terms.get("overlap"),
            jitter=terms.get("jitter"),
            batch=batch,
        )

    def _declare(self, queue: str, policy: dict[str, Any]) -> Mapping[str, object]:
        """Return the policy of a queue, joined from what its tasks declare."""
        declared = self._declared.setdefault(queue, {})
        for field, value in policy.items():
            if declared.setdefault(field, value) != value:
                cause = f"Tasks of queue {queue!r} declare {field}={declared[field]!r} and {field}={value!r}"
                raise InvalidArgument(f"{cause}; a queue has one policy.")
        return declared

    @property
    def handlers(self) -> Sequence[QueueHandler]:
        """What handles each queue."""
        handlers = [
            task_handler(tasks, _policy_for(list(tasks.values())), self._declared[queue])
            for queue, tasks in self._tasks.items()
        ]
        return [*super().handlers, *handlers]

    def _sending_client(self) -> AsyncClient:
        return self._server if isinstance(self._server, AsyncClient) else self._own_client()

    async def _work(self, client: AsyncClient, stopping: asyncio.Event) -> None:
        with self._homes.shared(client):
            await super()._work(client, stopping)


def _policy_for(tasks: Sequence[AnyTask]) -> HandlerPolicy:
    """Return how a worker takes the jobs of a queue: the largest of each number that its tasks have."""
    policies = [task.definition.policy for task in tasks]
    concurrency = max(policy.concurrency for policy in policies)
    wanted = [policy.credit for policy in policies if policy.credit is not None]
    return replace(
        policies[0],
        concurrency=concurrency,
        credit=max(concurrency, *wanted) if wanted else None,
        visibility_ms=max(policy.visibility_ms for policy in policies),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
