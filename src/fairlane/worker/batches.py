"""Batch handlers: one call for many messages, with a verdict for each.

Each message of a batch has its own runner, as any other message does, so leases, timeouts and shutdown work as usual.
The runner of a message joins the open batch and waits for the verdict about it. An interrupt ends that wait. When no
runner waits any more, the call is cancelled, and the last runners wait until it has ended, as for other handlers. A
thread can't be cancelled: its messages are settled at once, but each runner keeps its slot until the thread has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from fairlane.errors import InvalidArgument
from fairlane.worker.handlers import QueueHandler, is_async
from fairlane.worker.message import ThreadMessage, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle, HandlerPolicy
from fairlane.worker.threads import HandlerThreads

T = TypeVar("T")
R = TypeVar("R")
Verdicts: TypeAlias = Sequence[Answer] | None
BatchHandler: TypeAlias = Callable[[list[WorkMessage]], Awaitable[Verdicts]] | Callable[[list[WorkMessage]], Verdicts]
RunBatch: TypeAlias = Callable[[list[T]], Awaitable[Sequence[R | None] | None]]
Settle: TypeAlias = Callable[[WorkMessage], Awaitable[None]]


class _Entry(Generic[T, R]):
    """A message of a batch, as the handler gets it, and where its runner waits for the verdict about it."""

    __slots__ = ("batch", "item", "reply")

    def __init__(self, item: T) -> None:
        self.item = item
        self.reply: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        self.batch: _RunningBatch | None = None


class _RunningBatch:
    """A batch whose handler has been called."""

    def __init__(self, entries: Sequence[_Entry[Any, Any]], judging: asyncio.Task[None]) -> None:
        self._entries = entries
        self._judging = judging
        self._is_ending = False

    async def leave(self) -> None:
        """Cancel the handler if no runner waits for it any more, and wait for its end then."""
        # Timeouts end in the order of the entries, so the last entry tells first that a runner waits.
        if not self._is_ending and all(entry.reply.done() for entry in reversed(self._entries)):
            self._is_ending = True
            self._judging.cancel()  # once, so that nothing interrupts what the handler does at its end
        if self._is_ending:
            await self.ended()

    async def ended(self) -> None:
        """Wait for the end of the handler."""
        await asyncio.wait([self._judging])


class OpenBatch(Generic[T, R]):
    """Collects messages until there are enough, or the first of them has waited long enough."""

    def __init__(self, run: RunBatch[T, R], *, size: int, wait_ms: int, settle: Settle | None = None) -> None:
        """Prepare.

        Args:
            run: calls the handler.
            size: how many messages are enough.
            wait_ms: how long is long enough.
            settle: settles an interrupted message whose handler goes on in a thread; None if handlers can be cancelled.
        """
        self._run = run
        self._settle = settle
        self._size = size
        self._wait_s = wait_ms / 1000
        self._entries: list[_Entry[T, R]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def handle(self, message: WorkMessage, item: T) -> R | None:
        """Join the batch with what the handler gets for a message, and return the verdict about it."""
        entry: _Entry[T, R] = _Entry(item)
        self._entries.append(entry)
        if len(self._entries) >= self._size:
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._start)
        try:
            return await entry.reply
        except asyncio.CancelledError:
            if entry.batch is not None:
                await self._leave(entry.batch, message)
            raise

    async def _leave(self, batch: _RunningBatch, message: WorkMessage) -> None:
        if self._settle is None:
            await batch.leave()
        elif message.interruption is not None:
            await self._settle(message)
            await batch.ended()

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries, self._entries = [entry for entry in self._entries if not entry.reply.done()], []
        if entries:
            task = asyncio.get_running_loop().create_task(self._judge(entries))
            batch = _RunningBatch(entries, task)
            for entry in entries:
                entry.batch = batch
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _judge(self, entries: list[_Entry[T, R]]) -> None:
        try:
            verdicts = _checked(await self._run([entry.item for entry in entries]), len(entries))
        except BaseException as error:  # noqa: BLE001 - each message has failed with it
            for entry in entries:
                if not entry.reply.done():
                    entry.reply.set_exception(error)
            return
        for entry, verdict in zip(entries, verdicts, strict=True):
            if not entry.reply.done():  # a message that was lost meanwhile has no use for its verdict
                entry.reply.set_result(verdict)


def _checked(verdicts: Sequence[R | None] | None, count: int) -> Sequence[R | None]:
    if verdicts is None:
        return [None] * count
    if len(verdicts) != count:
        raise TypeError(
            f"A batch handler must return None or one verdict per message; got {len(verdicts)} for {count}."
        )
    return verdicts


def open_batch(
    handler: Callable[[list[Any]], Any], threads: HandlerThreads, *, size: int, wait_ms: int
) -> OpenBatch[Any, Any]:
    """Return a batch for a handler, sync or async, which gets a list and returns None or a list as long."""
    if is_async(handler):
        return OpenBatch(handler, size=size, wait_ms=wait_ms)
    return OpenBatch(
        lambda items: threads.call(handler, items), size=size, wait_ms=wait_ms, settle=threads.on_interrupted
    )


def batch_handler(
    handler: BatchHandler,
    policy: HandlerPolicy,
    *,
    size: int,
    wait_ms: int,
    declared: Mapping[str, object] | None = None,
) -> QueueHandler:
    """Return what handles a queue with one function for many messages.

    Raises InvalidArgument if the size exceeds the concurrency, so that a batch could never be full.
    """
    if not 1 <= size <= policy.concurrency or wait_ms < 0:
        cause = f"size is {size}, wait_ms {wait_ms} and concurrency {policy.concurrency}"
        raise InvalidArgument(f"{cause}; expected 1 <= size <= concurrency and wait_ms >= 0.")
    in_loop = is_async(handler)

    def handle(threads: HandlerThreads) -> AsyncHandle:
        batch = open_batch(handler, threads, size=size, wait_ms=wait_ms)
        return lambda message: batch.handle(message, message)

    return QueueHandler(
        policy=policy,
        name=getattr(handler, "__name__", type(handler).__name__),
        handle=handle,
        kind_of=lambda _: WorkMessage if in_loop else ThreadMessage,
        policy_of=lambda _: policy,
        declared=declared,
    )
