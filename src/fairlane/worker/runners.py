"""Runs handlers, up to the concurrency of their policy.

A runner is a task that takes one message after another from the backlog and ends when it is empty. So a handler that
never awaits anything costs no task of its own. Each new runner starts two others while there is a backlog for them: so
hundreds of handlers soon run if they await something, and few tasks are wasted if they don't. To interrupt a handler,
its runner is cancelled, and then continues with the next message.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from fairlane.model.limits import TRACEBACK_LENGTH_MAX
from fairlane.worker.message import RUNNING, SETTLING, WAITING, ThreadMessage, WorkMessage
from fairlane.worker.policy import AsyncHandle, HandlerPolicy
from fairlane.worker.results import ACK, EXPIRED, Counters, Defer, HandlerResult, result_of
from fairlane.worker.settlement import Settler
from fairlane.worker.tracebacks import from_handler

_STARTED_TOGETHER = 2
_MESSAGES_PER_STEP = 64
"""After this many messages a runner yields to the event loop, in case no handler awaits anything."""
OnError: TypeAlias = Callable[[BaseException, WorkMessage | None], Awaitable[None]]
_log = logging.getLogger("fairlane.worker")


def _any_id(_message_id: str) -> bool:
    return True


class Runners:
    """The backlog of a consumer, and the runners that process it."""

    def __init__(
        self,
        handle: AsyncHandle,
        policy: HandlerPolicy,
        *,
        policy_of: Callable[[WorkMessage], HandlerPolicy],
        settler: Settler,
        counters: Counters,
        on_error: OnError,
    ) -> None:
        self._handle = handle
        self._policy = policy
        self._policy_of = policy_of
        self._settler = settler
        self._counters = counters
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = 0
        self._is_paused = False
        self._running: set[WorkMessage] = set()
        self._latest: tuple[BaseException, str] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.backlog: deque[WorkMessage] = deque()

    def offer(self, messages: Sequence[WorkMessage]) -> None:
        """Add messages to the backlog."""
        self.backlog.extend(messages)
        self._start()

    def pause(self) -> None:
        """Start no more handlers."""
        self._is_paused = True

    def resume(self) -> None:
        """Start handlers again."""
        self._is_paused = False
        self._start()

    def take_unseen(self, matches: Callable[[str], bool] = _any_id) -> list[WorkMessage]:
        """Remove and return the messages that no handler has seen, optionally only those with matching ids."""
        unseen = [message for message in self.backlog if message.phase == WAITING and matches(message.id)]
        for message in unseen:
            message.phase = SETTLING
        rest = [message for message in self.backlog if message.phase == WAITING]
        self.backlog.clear()
        self.backlog.extend(rest)
        return unseen

    async def interrupt(self) -> None:
        """Interrupt all running handlers, and wait for those that can be cancelled.

        Threads cannot: their messages are deferred without waiting for them.
        """
        cancelled: set[asyncio.Task[None]] = set()
        for message in list(self._running):
            message.interrupt("stop")
            if isinstance(message, ThreadMessage):
                self._settler.settle(message, Defer())
            elif message.runner is not None:
                cancelled.add(message.runner)
        if cancelled:
            await asyncio.wait(cancelled)

    async def idle(self) -> None:
        """Wait until no handler is running."""
        await self._idle.wait()

    async def close(self) -> None:
        """Cancel all runners."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ------------------------------------------------------------------------------------------------------- internals

    def _start(self) -> None:
        """Start some runners, which start others."""
        if self._is_paused:
            return
        for _ in range(min(_STARTED_TOGETHER, self._policy.concurrency - self._active, len(self.backlog))):
            self._active += 1
            self._idle.clear()
            task = self._loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this coroutine runs in a task
        backlog, settler, counters = self.backlog, self._settler, self._counters
        left = _MESSAGES_PER_STEP
        if len(backlog) > 1:
            self._start()
        try:
            while backlog and not self._is_paused:
                message = backlog.popleft()
                if message.phase != WAITING:
                    continue
                if message.start_by_s is not None and self._loop.time() > message.start_by_s:
                    settler.settle(message, EXPIRED)
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
                left -= 1
                if not left:
                    left = _MESSAGES_PER_STEP
                    await asyncio.sleep(0)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _outcome(self, message: WorkMessage, task: asyncio.Task[None]) -> HandlerResult | None:
        """Run the handler and return the result for its message; None if the message is already settled or lost."""
        timer, timeout_s = None, self._policy_of(message).timeout_s
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, message.interrupt, "timeout")
        try:
            answer = await self._handle(message)
            if answer is None and message.interruption is None:
                return ACK
        except asyncio.CancelledError as error:
            if message.interruption is None:
                if task.cancelling():
                    raise
                return await self._failed(message, error)
        except BaseException as error:  # noqa: BLE001 - no handler may end the worker, not even with SystemExit
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

    async def _answered(self, message: WorkMessage, answer: object) -> HandlerResult:
        try:
            return result_of(answer)
        except TypeError as wrong:
            return await self._failed(message, wrong)

    async def interrupted(self, message: WorkMessage) -> HandlerResult | None:
        """Return the result for a message whose handler was interrupted; None if it is already settled or lost."""
        if message.phase != RUNNING:
            return None  # interrupt() has settled it
        if message.interruption == "lost":
            self._settler.lose(message)
            return None
        if message.interruption == "cancelled":
            self._settler.drop_cancelled(message)
            return None
        if message.interruption == "stop":
            return Defer()
        timeout_s = self._policy_of(message).timeout_s
        return await self._failed(message, TimeoutError(f"The handler took longer than {timeout_s} s."))

    async def _failed(self, message: WorkMessage, error: BaseException) -> HandlerResult:
        self._counters.failed += 1
        result = self._policy_of(message).verdict(error, message)
        fields = {
            "queue": message.queue,
            "message_id": message.id,
            "correlation_id": message.correlation_id,
            "attempt": message.attempt,
            "verdict": type(result).__name__,
        }
        told = (type(error), error, from_handler(error))
        _log.warning("Handler failed: %s: %s", type(error).__name__, error, extra=fields, exc_info=told)
        message.traceback = self._traceback_of(error)
        await self._on_error(error, message)
        return result

    def _traceback_of(self, error: BaseException) -> str:
        """Return the end of a traceback, made once for a batch, all of whose messages fail with one exception."""
        if self._latest is None or self._latest[0] is not error:
            told = "".join(traceback.format_exception(type(error), error, from_handler(error)))[-TRACEBACK_LENGTH_MAX:]
            self._latest = error, told.encode(errors="replace").decode()  # texts may have halves of characters
            self._loop.call_soon(self._forget_latest)  # it would keep the frames of the handler alive
        return self._latest[1]

    def _forget_latest(self) -> None:
        self._latest = None
