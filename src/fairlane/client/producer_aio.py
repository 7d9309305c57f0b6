"""A buffered producer, for asyncio: batches by size and time, bounded, and it reports every failure."""

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
from fairlane.verbs.methods.conversions import message_of

_BATCH_BYTES_MAX = 4 << 20


class Enqueuing(Protocol):
    """What a producer needs of its client."""

    async def enqueue_many(self, queue: str, messages: Sequence[NewMessage]) -> list[str | FairlaneError]:
        """Enqueue messages, each on its own."""


class Producing(Protocol):
    """What makes producers."""

    def producer(
        self,
        queue: str,
        *,
        batch: int,
        linger_ms: int,
        in_flight: int,
        on_failure: Callable[[NewMessage, FairlaneError], None] | None,
    ) -> AsyncProducer:
        """Return one."""


class AsyncProducer:
    """Sends messages to one queue in batches. Leave it, or ``flush`` it, to know that all are durable."""

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
                f"A batch has 1 to {BATCH_MAX} messages, linger_ms is not negative, in_flight at least 1."
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
        self._flights: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_closed = False
        self._failures: list[FairlaneError] = []

    async def send(self, message: NewMessage | bytes, **terms: Unpack[MessageTerms]) -> asyncio.Future[str]:
        """Take a message, or a payload with terms, as soon as there is room. Returns the future id of the message.

        The future need not be awaited: ``flush`` and leaving report what was refused.

        Raises:
            InvalidArgument, Closed: it was not taken.
        """
        while len(self._buffer) >= self._batch * self._in_flight or self._bytes >= _BATCH_BYTES_MAX * self._in_flight:
            self._room.clear()
            await self._room.wait()
        return self.send_nowait(traced([message_of(message, terms)])[0])

    def send_nowait(self, message: NewMessage) -> asyncio.Future[str]:
        """Take a message whether there is room or not; see ``send``."""
        if self._is_closed:
            raise Closed("The producer has been closed.")
        reply: asyncio.Future[str] = self._loop.create_future()
        self._buffer.append((message, reply))
        self._bytes += len(message.payload)
        if len(self._buffer) >= self._batch or self._bytes >= _BATCH_BYTES_MAX:
            self._launch()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self._on_time)
        return reply

    async def flush(self) -> None:
        """Send what is buffered and wait until all that was taken so far is durable or refused.

        Raises:
            ExceptionGroup: the errors of all messages that were refused since the last flush, unless there is an
                ``on_failure`` that was told of them.
        """
        waiting = [reply for _, reply in self._buffer]
        self._on_time()
        while self._flights or any(not reply.done() for reply in waiting):
            await asyncio.wait(self._flights)
            self._on_time()
        failures, self._failures = self._failures, []
        if failures:
            raise ExceptionGroup(f"{len(failures)} messages were not enqueued to {self._queue!r}", failures)

    async def close(self) -> None:
        """Take no more, and flush."""
        self._is_closed = True
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
            return
        with suppress(ExceptionGroup):  # what was raised inside is more to the point
            await self.close()

    # -------------------------------------------------------------------------------------------------------- batches

    def _on_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = bool(self._buffer)
        self._launch()

    def _launch(self) -> None:
        while len(self._flights) < self._in_flight and self._buffer:
            is_full = len(self._buffer) >= self._batch or self._bytes >= _BATCH_BYTES_MAX
            if not (is_full or self._is_due):
                return
            flight = self._loop.create_task(self._fly(self._next_batch()))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)
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

    async def _fly(self, entries: list[tuple[NewMessage, asyncio.Future[str]]]) -> None:
        results: Sequence[str | FairlaneError]
        try:
            results = await self._client.enqueue_many(self._queue, [message for message, _ in entries])
        except FairlaneError as error:
            results = [error] * len(entries)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each of them
            results = [InternalError(f"{type(error).__name__}: {error}.")] * len(entries)
        for (message, reply), result in zip(entries, results, strict=True):
            if isinstance(result, FairlaneError):
                self._report(message, reply, result)
            elif not reply.done():
                reply.set_result(result)

    def _report(self, message: NewMessage, reply: asyncio.Future[str], error: FairlaneError) -> None:
        if not reply.done():
            reply.set_exception(error)
            reply.exception()  # it is reported here too, so nobody has to ask for it
        if self._on_failure is None:
            self._failures.append(error)
            return
        try:
            self._on_failure(message, error)
        except Exception as fault:  # noqa: BLE001 - the others are still to be told
            self._loop.call_exception_handler({"message": "on_failure raised", "exception": fault})

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._launch()
        if len(self._buffer) < self._batch * self._in_flight and self._bytes < _BATCH_BYTES_MAX * self._in_flight:
            self._room.set()
