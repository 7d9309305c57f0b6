"""Runs handlers, as many at the same time as may be.

A runner is a task that takes one message after the other from the backlog, and ends when there is none; so a handler
that never waits costs no task. To interrupt a handler its runner is cancelled, which then goes on with the next one.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from fairlane.worker.counters import Counters
from fairlane.worker.message import RUNNING, SETTLING, WAITING, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle, HandlerPolicy
from fairlane.worker.results import ACK, KINDS, Defer, Result
from fairlane.worker.settling import Settler

_STRETCH = 64
"""How many messages a runner may handle before others have their turn, if no handler waits for anything."""
THREAD_PREFIX = "fairlane-handler-"
OnError: TypeAlias = Callable[[BaseException, WorkMessage | None], Awaitable[None]]
_log = logging.getLogger("fairlane.worker")


def _all(_message_id: str) -> bool:
    return True


class Runners:
    """The backlog of a consumer, and the runners that work on it."""

    def __init__(
        self, handle: AsyncHandle, policy: HandlerPolicy, *, settler: Settler, counters: Counters, on_error: OnError
    ) -> None:
        self._handle = handle
        self._policy = policy
        self._settler = settler
        self._counters = counters
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = 0
        self._is_paused = False
        self._running: set[WorkMessage] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.backlog: deque[WorkMessage] = deque()

    def offer(self, messages: Sequence[WorkMessage]) -> None:
        """Take in messages to be handled."""
        self.backlog.extend(messages)
        self._start()

    def pause(self) -> None:
        """Begin with no more messages."""
        self._is_paused = True

    def resume(self) -> None:
        """Begin with messages again."""
        self._is_paused = False
        self._start()

    def take_unseen(self, is_meant: Callable[[str], bool] = _all) -> list[WorkMessage]:
        """Take out all that no handler has seen, or those of them whose ids are meant."""
        unseen = [message for message in self.backlog if message.phase == WAITING and is_meant(message.id)]
        for message in unseen:
            message.phase = SETTLING
        rest = [message for message in self.backlog if message.phase == WAITING]
        self.backlog.clear()
        self.backlog.extend(rest)
        return unseen

    def interrupt(self, *, is_final: bool) -> None:
        """Tell all handlers that are running to stop; if that is final, give back their messages at once."""
        for message in list(self._running):
            message.interrupt("stop")
            if is_final:
                self._settler.settle(message, Defer())

    async def idle(self) -> None:
        """Wait until no handler is running."""
        await self._idle.wait()

    async def close(self) -> None:
        """End all runners, whatever they do."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ------------------------------------------------------------------------------------------------------ the inside

    def _start(self) -> None:
        if self._is_paused:
            return
        for _ in range(min(self._policy.concurrency - self._active, len(self.backlog))):
            self._active += 1
            self._idle.clear()
            task = self._loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - we are in one
        backlog, settler, counters = self.backlog, self._settler, self._counters
        stretch = _STRETCH
        try:
            while backlog and not self._is_paused:
                message = backlog.popleft()
                if message.phase != WAITING:
                    continue
                message.phase = RUNNING
                message.runner = task
                counters.in_flight += 1
                self._running.add(message)
                try:
                    result = await self._outcome(message, task)
                finally:
                    counters.in_flight -= 1
                    self._running.discard(message)
                if result is not None:
                    settler.settle(message, result)
                stretch -= 1
                if not stretch:
                    stretch = _STRETCH
                    await asyncio.sleep(0)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _outcome(self, message: WorkMessage, task: asyncio.Task[None]) -> Result | None:
        """Return what is to become of a message, or None if that has been seen to."""
        timer = None
        if self._policy.timeout_s is not None:
            timer = self._loop.call_later(self._policy.timeout_s, message.interrupt, "timeout")
        try:
            answer = await self._handle(message)
        except asyncio.CancelledError as error:
            if message.interruption is None:
                if task.cancelling():
                    raise
                return await self._failed(message, error)
        except BaseException as error:  # noqa: BLE001 - no handler may end a worker, not even by SystemExit
            if message.interruption is None:
                return await self._failed(message, error)
        else:
            if message.interruption is None or message.interruption == "stop":
                if message.interruption is not None:
                    task.uncancel()
                return await self._answered(message, answer)
        finally:
            if timer is not None:
                timer.cancel()
        task.uncancel()
        return await self.interrupted(message)

    async def _answered(self, message: WorkMessage, answer: object) -> Result:
        if answer is None:
            return ACK
        if isinstance(answer, KINDS):
            return answer
        wrong = TypeError(f"A handler returns None, Ack, Retry, DeadLetter, Forward or Defer, not {type(answer)}.")
        return await self._failed(message, wrong)

    async def interrupted(self, message: WorkMessage) -> Result | None:
        """Return what becomes of a message whose handler was told to stop."""
        if message.phase != RUNNING:
            return None  # it was seen to when its handler was told
        if message.interruption == "lost":
            self._settler.lose(message)
            return None
        if message.interruption == "stop":
            return Defer()
        return await self._failed(message, TimeoutError(f"It took longer than {self._policy.timeout_s} s."))

    async def _failed(self, message: WorkMessage, error: BaseException) -> Result:
        self._counters.failed += 1
        result = self._policy.verdict(error, message)
        told = {
            "queue": message.queue,
            "message_id": message.id,
            "correlation_id": message.correlation_id,
            "attempt": message.attempt,
            "verdict": type(result).__name__,
        }
        _log.warning("A handler failed: %s: %s", type(error).__name__, error, extra=told, exc_info=error)
        await self._on_error(error, message)
        return result


class ThreadHandle:
    """A sync handler as an async one: it runs in a thread, and goes on there even when nobody waits for it any more."""

    def __init__(self, handler: Callable[[WorkMessage], Answer], policy: HandlerPolicy) -> None:
        self._handler = handler
        self._pool = ThreadPoolExecutor(policy.concurrency, thread_name_prefix=f"{THREAD_PREFIX}{policy.queue}")
        self.on_interrupted: Callable[[WorkMessage], Awaitable[None]] | None = None

    async def __call__(self, message: WorkMessage) -> Answer:
        """Run the handler; one that is told to stop is settled at once, but keeps its place until its thread ends."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, contextvars.copy_context().run, self._safe, message)
        try:
            answer, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            if message.interruption is None:
                raise
            if self.on_interrupted is not None:
                await self.on_interrupted(message)
            await asyncio.wait([future])
            raise
        if error is not None:
            raise error
        return answer

    def _safe(self, message: WorkMessage) -> tuple[Answer, BaseException | None]:
        try:
            return self._handler(message), None
        except BaseException as error:  # noqa: BLE001 - it is raised where the handler is awaited
            return None, error

    def close(self) -> None:
        """Begin no more; threads that are running end when they end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
