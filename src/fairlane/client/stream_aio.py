"""A stream of leased messages, for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, Self

import msgspec

from fairlane.client.message_aio import AsyncMessage, AsyncSettling
from fairlane.client.message_fields import MessageFields
from fairlane.client.prefetched import Prefetched
from fairlane.client.retries import LEASES_STAY, Retries, is_passing, pause_s
from fairlane.client.transport import Channel, Transport
from fairlane.errors import Closed, Disconnected, FairlaneError, QueueSplit
from fairlane.model.message import Delivery
from fairlane.verbs.handler_count import HandlerCount
from fairlane.verbs.leases import NackIntent
from fairlane.wire.frames import Consume

_CLOSE_TIMEOUT_S: Final = 5.0


class AsyncStreaming(AsyncSettling, Protocol):
    """The part of a client that a stream uses."""

    transport: Transport
    retries: Retries

    async def nack_many(self, queue: str, leased: Sequence[Delivery], *, intent: NackIntent) -> Sequence[object]:
        """Return messages to the queue."""

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Return messages that no handler has seen, without waiting for the answer."""

    async def drained(self) -> None:
        """Wait until pending acknowledgements are answered."""


class AsyncStream:
    """A stream of leased messages: enter it with ``async with``, and iterate it with ``async for``.

    The credit limits how many messages are in the stream, or delivered and not yet settled or expired. At the end of
    the block unsettled messages are returned: those that were never delivered are deferred, the others count a failed
    attempt. If the connection is lost, the server takes the stream's messages back, and the stream reopens. A server
    that crashed could not, so the stream returns the messages that were never delivered when it reopens. If the queue
    moves to another node of a cluster, the stream reopens there, and its messages stay leased. A message whose deadline
    passes in the stream is returned instead of delivered, and expires in its queue.
    """

    def __init__(self, client: AsyncStreaming, request: Consume) -> None:
        self._client = client
        self._is_measured = request.handlers is None
        self._count = HandlerCount()
        handlers = self._count.count if request.handlers is None else request.handlers
        self._request = msgspec.structs.replace(request, handlers=handlers)
        self._given: list[MessageFields] = []
        self._forgetting = threading.Lock()
        self._ready = Prefetched()
        self._arrived = asyncio.Event()
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._error: FairlaneError | None = None
        self._is_moved = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        ready = self._ready
        while True:
            if len(self._given) >= 2 * self._request.credit:
                await self._measure()
            while not ready.waiting:
                await self._wait()
            delivery = ready.waiting.popleft()
            if delivery.time_left_ms is None or not ready.is_late(delivery):
                message = AsyncMessage(delivery, self._client)
                if self._is_measured:
                    self._given.append(message)
                return message
            self.give_back([delivery])

    @property
    def is_interrupted(self) -> bool:
        """Whether the stream is reopening, after a lost connection or a shutdown of the server."""
        return self._reopening is not None and not self._reopening.done()

    async def open(self) -> None:
        """Open the stream, unless it is open.

        Raises:
            QueueNotFound, InvalidArgument, Disconnected: the stream cannot be opened.
        """
        async with self._opening:
            if self._channel is None and not self._is_closed and not self.is_interrupted:
                self._channel = await self._client.transport.open(self._request, self)

    async def take(self) -> Prefetched:
        """Return the messages that have arrived, waiting for the first one; none if the stream is closed."""
        if self._is_measured and self._ready:
            await self._measure()
        while not self._ready:
            try:
                await self._wait()
            except StopAsyncIteration:
                break
        return self._ready.take_all()

    def note_given(self, message: MessageFields) -> None:
        """Note a message that user code has now; from any thread."""
        self._given.append(message)
        if len(self._given) > 2 * self._request.credit:
            self._forget_settled()

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Return messages whose deadlines have passed before user code saw them."""
        self._client.give_back(deliveries)

    async def close(self, *, unseen: Sequence[Delivery] = ()) -> None:
        """End the stream. ``unseen`` are messages that were taken from it but not delivered to a handler."""
        if self._is_closed:
            return
        self._is_closed = True
        self._arrived.set()
        if self._reopening is not None:
            self._reopening.cancel()
            with suppress(asyncio.CancelledError):
                await self._reopening
        await self._client.drained()
        unseen = (*unseen, *self._ready.withdraw())
        if self._channel is not None:
            with suppress(Disconnected, Closed):  # the server has already taken them back
                await self._channel.stop(unseen)
        if unseen and (self._is_moved or getattr(self._client.transport, "is_cluster", False)):
            # A channel that ended because the queue moved does not return its messages, so return them explicitly.
            with suppress(FairlaneError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._client.nack_many(self._request.queue, unseen, intent="defer")

    # ------------------------------------------------------------------------------------------------------ deliveries

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Accept leased messages; see ``Sink``."""
        self._ready.add(deliveries)
        self._arrived.set()

    def ended(self, error: FairlaneError) -> None:
        """Reopen the stream, unless the queue no longer exists; see ``Sink``."""
        if self._is_closed:
            return
        if is_passing(error) or isinstance(error, Closed | QueueSplit):
            if not self.is_interrupted:
                self._reopening = asyncio.get_running_loop().create_task(self._reopen(error))
            return
        self._error = error
        self._arrived.set()

    def cancelled(self, ids: Sequence[str]) -> None:
        """Drop messages that were cancelled before they were delivered, and mark the others; see ``Sink``."""
        self._ready.withdraw(frozenset(ids).__contains__)
        for message in list(self._given):
            if message.id in ids:
                message.is_cancelled = message.is_settled = True

    def withdraw(self, matches: Callable[[str], bool]) -> list[Delivery]:
        """Remove messages that have not been delivered yet; see ``Sink``."""
        return self._ready.withdraw(matches)

    async def _reopen(self, error: FairlaneError) -> None:
        self._channel = None
        unseen: tuple[Delivery, ...] = ()
        self._is_moved = self._is_moved or isinstance(error, LEASES_STAY)
        if not isinstance(error, LEASES_STAY):
            unseen = tuple(self._ready.withdraw())
        if not isinstance(error, Disconnected):  # a server that shuts down still accepts returned messages
            await self._defer(unseen)
        until = asyncio.get_running_loop().time() + self._client.retries.patience_s
        for wait_s in self._client.retries.waits_s():
            try:
                self._channel = await self._client.transport.open(self._request, self)
            except FairlaneError as refused:
                if not is_passing(refused) or asyncio.get_running_loop().time() > until:
                    self._error = refused
                    self._arrived.set()
                    return
                pause = pause_s(refused, wait_s)
            else:
                if isinstance(error, Disconnected):  # a server that has crashed has not taken them back
                    await self._defer(unseen)
                return
            await asyncio.sleep(pause)

    async def _defer(self, unseen: Sequence[Delivery]) -> None:
        """Return messages that user code has not seen. Those that the server has taken back stay where they are."""
        if unseen:
            with suppress(FairlaneError):
                await self._client.nack_many(self._request.queue, unseen, intent="defer")

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise StopAsyncIteration
        await self.open()
        if not self._ready:
            self._arrived.clear()
            if self._is_measured:
                await self._measure()
            await self._arrived.wait()

    async def _measure(self) -> None:
        """Count the messages that user code works on at the same time, and send the broker a changed count.

        It asks for another message while it has some that are not settled, so it has a handler for each of them and one
        more. Code that takes one message after the other has one handler.
        """
        self._forget_settled()
        needed = min(len(self._given) + 1, self._request.credit)
        if self._count.update(needed, round(asyncio.get_running_loop().time() * 1000)):
            self._request = msgspec.structs.replace(self._request, handlers=self._count.count)
            if self._channel is not None:
                await self._channel.widen(self._count.count)

    def _forget_settled(self) -> None:
        with self._forgetting:
            count = len(self._given)  # other threads may append meanwhile
            unsettled = [message for message in self._given[:count] if not message.is_settled]
            # No more than the credit are in flight: the others were settled through the client, or have expired.
            self._given[:count] = unsettled[-self._request.credit :]
