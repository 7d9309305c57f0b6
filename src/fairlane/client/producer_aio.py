"""A buffered producer for asyncio. It batches by size and time, bounds its buffer, and reports every failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, Self, Unpack

from fairlane.client.tracing import traced
from fairlane.errors import Closed, FairlaneError, InternalError, InvalidArgument
from fairlane.model.limits import BATCH_MAX
from fairlane.model.message import MessageTerms, NewMessage
from fairlane.model.payloads import NO_VALUE, NoValue
from fairlane.verbs.methods.conversions import message_of

_BATCH_BYTES_MAX = 4 << 20


class Enqueuing(Protocol):
    """The part of a client that a producer uses."""

    async def enqueue_many(self, queue: str, messages: Sequence[NewMessage]) -> list[str | FairlaneError]:
        """Enqueue messages, and return an id or an error for each."""


class AsyncProducer:
    """Sends messages to one queue in batches. After ``flush`` or the end of the block, all are durable or reported."""

    def __init__(
        self,
        client: Enqueuing,
        queue: str,
        *,
        batch: int,
        linger_ms: int,
        in_flight: int,
        on_failure: Callable[[NewMessage, FairlaneError], None] | None,
    ) -> None:
        if not (1 <= batch <= BATCH_MAX and linger_ms >= 0 and in_flight >= 1):
            raise InvalidArgument(
                f"batch is {batch}, linger_ms {linger_ms} and in_flight {in_flight}; "
                f"expected 1 <= batch <= {BATCH_MAX}, linger_ms >= 0 and in_flight >= 1."
            )
        self._client = client
        self._queue = queue
        self._batch = batch
        self._linger_s = linger_ms / 1000
        self._in_flight = in_flight
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._buffer: deque[tuple[NewMessage, asyncio.Future[str]]] = deque()
        self._bytes = 0
        self._batches: set[asyncio.Task[None]] = set()
        self._has_space = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_closed = False
        self._failures: list[FairlaneError] = []

    async def send(
        self,
        message: NewMessage | bytes | NoValue = NO_VALUE,
        *,
        json: object = NO_VALUE,
        **terms: Unpack[MessageTerms],
    ) -> asyncio.Future[str]:
        """Buffer a message, or a payload with terms, waiting while the buffer is full. Return a future of its id.

        ``json`` is a value that is sent as JSON in place of a payload.

        You can ignore the future: ``flush`` and the end of the block report refused messages.

        Raises:
            InvalidArgument, Closed: the message was not accepted.
        """
        while len(self._buffer) >= self._batch * self._in_flight or self._bytes >= _BATCH_BYTES_MAX * self._in_flight:
            self._has_space.clear()
            await self._has_space.wait()
        return self.send_nowait(traced([message_of(message, json, terms)])[0])

    def send_nowait(self, message: NewMessage) -> asyncio.Future[str]:
        """Buffer a message even if the buffer is full; see ``send``."""
        if self._is_closed:
            raise Closed("The producer is closed.")
        reply: asyncio.Future[str] = self._loop.create_future()
        self._buffer.append((message, reply))
        self._bytes += len(message.payload)
        if len(self._buffer) >= self._batch or self._bytes >= _BATCH_BYTES_MAX:
            self._send_batches()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self._on_time)
        return reply

    async def flush(self) -> None:
        """Send buffered messages, and wait until all accepted messages are durable or refused.

        Raises:
            ExceptionGroup: the errors of all messages refused since the last flush, unless ``on_failure`` is set.
        """
        waiting = [reply for _, reply in self._buffer]
        self._on_time()
        while self._batches or any(not reply.done() for reply in waiting):
            await asyncio.wait(self._batches)
            self._on_time()
        failures, self._failures = self._failures, []
        if failures:
            raise ExceptionGroup(f"{len(failures)} messages were not enqueued to {self._queue!r}", failures)

    async def close(self) -> None:
        """Accept no more messages, and flush."""
        self._is_closed = True
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
            return
        with suppress(ExceptionGroup):  # the exception from inside the block matters more
            await self.close()

    # -------------------------------------------------------------------------------------------------------- batches

    def _on_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = bool(self._buffer)
        self._send_batches()

    def _send_batches(self) -> None:
        while len(self._batches) < self._in_flight and self._buffer:
            is_full = len(self._buffer) >= self._batch or self._bytes >= _BATCH_BYTES_MAX
            if not (is_full or self._is_due):
                return
            task = self._loop.create_task(self._send_batch(self._next_batch()))
            self._batches.add(task)
            task.add_done_callback(self._batch_done)
        self._is_due = self._is_due and bool(self._buffer)

    def _next_batch(self) -> list[tuple[NewMessage, asyncio.Future[str]]]:
        taken: list[tuple[NewMessage, asyncio.Future[str]]] = []
        size = 0
        while self._buffer and len(taken) < self._batch and size < _BATCH_BYTES_MAX:
            entry = self._buffer.popleft()
            size += len(entry[0].payload)
            taken.append(entry)
        self._bytes -= size
        return taken

    async def _send_batch(self, entries: list[tuple[NewMessage, asyncio.Future[str]]]) -> None:
        results: Sequence[str | FairlaneError]
        try:
            results = await self._client.enqueue_many(self._queue, [message for message, _ in entries])
        except FairlaneError as error:
            results = [error] * len(entries)
        except Exception as error:  # noqa: BLE001 - callers wait for the result of each message
            results = [InternalError(f"{type(error).__name__}: {error}.")] * len(entries)
        for (message, reply), result in zip(entries, results, strict=True):
            if isinstance(result, FairlaneError):
                self._report(message, reply, result)
            elif not reply.done():
                reply.set_result(result)

    def _report(self, message: NewMessage, reply: asyncio.Future[str], error: FairlaneError) -> None:
        if not reply.done():
            reply.set_exception(error)
            reply.exception()  # marks it as retrieved, since the failure is reported below, too
        if self._on_failure is None:
            self._failures.append(error)
            return
        try:
            self._on_failure(message, error)
        except Exception as fault:  # noqa: BLE001 - the other failures are still to be reported
            self._loop.call_exception_handler({"message": "on_failure raised", "exception": fault})

    def _batch_done(self, task: asyncio.Task[None]) -> None:
        self._batches.discard(task)
        self._send_batches()
        if len(self._buffer) < self._batch * self._in_flight and self._bytes < _BATCH_BYTES_MAX * self._in_flight:
            self._has_space.set()
