"""Threads for sync handlers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Answer, HandlerPolicy

A = TypeVar("A")
T = TypeVar("T")
THREAD_PREFIX = "fairlane-handler-"


class HandlerThreads:
    """Runs the sync handlers of one consumer. A thread runs to its end, even if its result is no longer needed."""

    def __init__(self, policy: HandlerPolicy, on_interrupted: Callable[[WorkMessage], Awaitable[None]]) -> None:
        self._pool = ThreadPoolExecutor(policy.concurrency, thread_name_prefix=f"{THREAD_PREFIX}{policy.queue}")
        self._on_interrupted = on_interrupted

    async def run(self, handler: Callable[[WorkMessage], Answer], message: WorkMessage) -> Answer:
        """Run a handler. An interrupt settles its message at once, but the handler keeps its slot until it ends."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, contextvars.copy_context().run, _safe, handler, message)
        try:
            answer, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            if message.interruption is None:
                raise
            await self._on_interrupted(message)
            await asyncio.wait([future])
            raise
        if error is not None:
            raise error
        return answer

    async def call(self, function: Callable[[A], T], argument: A) -> T:
        """Run a function in a thread to its end."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, contextvars.copy_context().run, function, argument)

    def close(self) -> None:
        """Start no more threads. Running ones continue to their end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _safe(handler: Callable[[WorkMessage], Answer], message: WorkMessage) -> tuple[Answer, BaseException | None]:
    try:
        return handler(message), None
    except BaseException as error:  # noqa: BLE001 - HandlerThreads.run raises it again
        return None, error
