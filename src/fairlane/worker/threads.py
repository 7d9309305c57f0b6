"""Threads for sync handlers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Answer, HandlerPolicy

A = TypeVar("A")
T = TypeVar("T")
THREAD_PREFIX = "fairlane-handler-"


class HandlerThreads:
    """Runs the sync handlers of one consumer. A thread runs to its end, even if its result is no longer needed."""

    def __init__(self, policy: HandlerPolicy, on_interrupted: Callable[[WorkMessage], Awaitable[None]]) -> None:
        self._pool = ThreadPoolExecutor(policy.concurrency, thread_name_prefix=f"{THREAD_PREFIX}{policy.queue}")
        self.on_interrupted = on_interrupted

    async def run(self, handler: Callable[[WorkMessage], Answer], message: WorkMessage) -> Answer:
        """Run a handler. An interrupt settles its message at once, but the handler keeps its slot until it ends."""
        future = self._start(handler, message)
        try:
            answer, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            if message.interruption is None:
                raise
            await self.on_interrupted(message)
            await asyncio.wait([future])
            raise
        if error is not None:
            raise error
        return answer

    async def call(self, function: Callable[[A], T], argument: A) -> T:
        """Run a function in a thread. A cancelled call ends at once, but the thread runs on."""
        answer, error = await self._start(function, argument)
        if error is not None:
            raise error
        return cast("T", answer)

    def _start(self, function: Callable[[A], T], argument: A) -> asyncio.Future[tuple[T | None, BaseException | None]]:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        return loop.run_in_executor(self._pool, context.run, _safe, function, argument)

    def close(self) -> None:
        """Start no more threads. Running ones continue to their end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _safe(function: Callable[[A], T], argument: A) -> tuple[T | None, BaseException | None]:
    try:
        return function(argument), None
    except BaseException as error:  # noqa: BLE001 - HandlerThreads raises it again
        return None, error
