"""The front end for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from types import EllipsisType
from typing import TypeVar, Unpack

from fairlane.errors import Closed, InvalidArgument, WaitTimedOut
from fairlane.scheduler.frontend import FrontEnd, Options, TaskOptions
from fairlane.scheduler.item import Key
from fairlane.scheduler.tasks import Task

P = TypeVar("P")

_SECOND_NS = 1_000_000_000
_MS_NS = 1_000_000


class AsyncScheduler(FrontEnd[P]):
    """A fair queue between the coroutines of one event loop. Not thread-safe.

    It never polls: a waiting consumer is woken by a change, or by a single timer set for the next instant at which an
    item becomes eligible by itself. A cancelled consumer loses nothing: a consumer is woken first and then takes its
    task itself, so if it is gone by then, the wake-up goes to the next one.
    """

    def __init__(self, *, clock_ns: Callable[[], int] = time.monotonic_ns, **options: Unpack[Options]) -> None:
        """Create an empty scheduler.

        Args:
            clock_ns: a clock that never runs backwards, in nanoseconds.
            **options: see ``fairlane.scheduler.Options``.

        Raises:
            InvalidArgument: an option is out of range.
        """
        self._consumers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        super().__init__(clock_ns, nullcontext(), **options)

    def enqueue_nowait(
        self,
        key: Key,
        payload: P,
        **options: Unpack[TaskOptions],
    ) -> Task[P]:
        """Enqueue a task like ``enqueue``, but raise instead of waiting for capacity.

        Raises:
            KeyFull, GlobalFull: a limit is reached.
            Closed: the scheduler is closed.
            InvalidArgument: a value is out of range.
        """
        task = self._task(key, payload, options)
        refusal = self._offer(task)
        if refusal is not None:
            raise self._rejection(refusal)
        return task

    async def enqueue(
        self,
        key: Key,
        payload: P,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same per-call argument as in Scheduler; None means by policy
        **options: Unpack[TaskOptions],
    ) -> Task[P]:
        """Enqueue a task. Arguments, result and errors are those of ``Scheduler.enqueue``.

        A cancelled call has enqueued nothing.
        """
        task = self._task(key, payload, options)
        seconds = self._enqueue_timeout if timeout is None else timeout
        give_up = asyncio.get_running_loop().time() + seconds
        woken_at: Key | EllipsisType | None = ...
        while (refusal := self._held_back(task, timeout, woken_at)) is not None:
            if not await self._wait_for_capacity(refusal.key, give_up):
                raise self._gave_up(refusal, seconds)
            woken_at = refusal.key
        return task

    async def dequeue(self, timeout: float | None = None) -> Task[P]:  # noqa: ASYNC109 - as in Scheduler
        """Return the next task, waiting until one may go. A cancelled call has taken nothing.

        Args:
            timeout: the longest wait in seconds; None waits without limit.

        Raises:
            WaitTimedOut: no task could go in time.
            Closed: the scheduler is closed and, if it was closed with ``drain``, empty.
        """
        if tasks := self._take(1):
            return tasks[0]
        try:
            async with asyncio.timeout(timeout):
                while not (tasks := self._take(1)):
                    self._refuse_if_finished()
                    await self._wait_for_work()
                return tasks[0]
        except TimeoutError:
            raise WaitTimedOut(f"No task could go within {timeout} s.") from None

    async def __aiter__(self) -> AsyncIterator[Task[P]]:
        """Yield tasks as they become eligible, until the scheduler is closed."""
        while True:
            try:
                task = await self.dequeue()
            except Closed:
                return
            yield task

    async def dispatch(
        self,
        handler: Callable[[Task[P]], Awaitable[object]],
        *,
        in_flight: int,
        on_error: Callable[[Task[P], Exception], object] | None = None,
    ) -> None:
        """Run a handler for every task, at most ``in_flight`` at once, until the scheduler is closed and all are done.

        A task is taken only when a slot is free to run it, so its turn is decided as late as possible. The task is done
        when its handler ends, successfully or not. Cancelling the dispatcher cancels the running handlers; waiting
        tasks stay in the scheduler.

        Args:
            handler: called with each task.
            in_flight: how many handlers may run at once.
            on_error: called with the exception of a handler; by default the event loop's exception handler is. An
                exception raised by ``on_error`` itself ends the dispatcher.

        Raises:
            InvalidArgument: ``in_flight`` is below 1.
        """
        if type(in_flight) is not int or in_flight < 1:
            raise InvalidArgument(f"in_flight must be an integer of at least 1, got {in_flight!r}.")
        places = asyncio.Semaphore(in_flight)
        async with asyncio.TaskGroup() as running:
            while True:
                await places.acquire()
                try:
                    task = await self.dequeue()
                except Closed:
                    return
                handling = running.create_task(self._handle(handler, task, on_error))
                handling.add_done_callback(partial(self._finish, task, places))

    def _finish(self, task: Task[P], places: asyncio.Semaphore, _: asyncio.Task[None]) -> None:
        # A callback, not a finally in the coroutine: a coroutine cancelled before its first step never reaches its
        # finally.
        if task.is_out:
            self.done(task)
        places.release()

    async def _handle(
        self,
        handler: Callable[[Task[P]], Awaitable[object]],
        task: Task[P],
        on_error: Callable[[Task[P], Exception], object] | None,
    ) -> None:
        try:
            await handler(task)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; the other handlers must go on
            if on_error is not None:
                on_error(task, error)
            else:
                self._report(error)

    async def _wait_for_capacity(self, limit: Key | None, give_up: float) -> bool:
        """Wait at a limit until there may be capacity. Return False when it is time to give up."""
        capacity: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not capacity.done():
                capacity.set_result(None)

        self._producers.join(limit, wake)
        self._set_timer()
        try:
            async with asyncio.timeout_at(give_up):
                await capacity
        except BaseException as error:
            self._producers.quit(limit, wake)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    async def _wait_for_work(self) -> None:
        consumer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._consumers.append(consumer)
        self._set_timer()
        try:
            await consumer
        except BaseException:
            if consumer in self._consumers:
                self._consumers.remove(consumer)
            if consumer.done() and not consumer.cancelled():
                self._wake_consumer()
            raise
        finally:
            if not self._consumers:
                self._set_timer()

    def _take(self, count: int) -> list[Task[P]]:
        tasks = super()._take(count)
        if self._consumers:
            self._set_timer()  # this take may have parked a lane, which sets a new next event for the waiting consumers
        return tasks

    def _set_timer(self) -> None:
        """Set the timer to the next instant at which the kernel changes by itself, while anyone waits."""
        at_ms = self._kernel.next_event_at() if self._consumers or self._producers else None
        if at_ms == self._timer_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = at_ms
        if at_ms is not None:
            seconds = max(0, at_ms * _MS_NS - self._clock_ns()) / _SECOND_NS
            self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = self._timer_ms = None
        self._pass_time()
        self._wake_consumer()
        self._set_timer()

    def _report(self, error: Exception) -> None:
        message = f"A callback of {self!r} raised an exception."
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _wake_consumer(self) -> None:
        while self._consumers:
            consumer = self._consumers.popleft()
            if not consumer.done() and not consumer.get_loop().is_closed():
                consumer.set_result(None)
                return

    def _wake_all_consumers(self) -> None:
        for consumer in self._consumers:
            if not consumer.done():
                consumer.set_result(None)
        self._consumers.clear()
