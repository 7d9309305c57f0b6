"""A stream of leased messages, for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, Self

from fairlane.client.message_aio import AsyncMessage, AsyncSettling
from fairlane.client.retrying import LEASES_STAY, Retries, is_passing, pause_s
from fairlane.client.transport import Channel, Transport
from fairlane.errors import Closed, Disconnected, FairlaneError, QueueSplit
from fairlane.model.message import Delivery
from fairlane.verbs.leases import NackIntent
from fairlane.wire.frames import Consume

_LAST_WORDS_S: Final = 5.0


class AsyncStreaming(AsyncSettling, Protocol):
    """What a stream needs of its client."""

    transport: Transport
    retries: Retries

    async def nack_many(
        self, queue: str, leased: Sequence[Delivery], *, intent: NackIntent
    ) -> list[FairlaneError | None]:
        """Give messages back."""

    async def drained(self) -> None:
        """Wait until the acks that are under way have their answers."""


class AsyncStream:
    """Leased messages as they come: enter it with ``async with``, iterate it with ``async for``.

    At most its credit of messages is in the stream or out of it and not yet acked, nacked or expired. Leaving it gives
    back what was not acked: what it still holds was never seen, and is deferred; what it has given out counts as a
    failed attempt. When the connection is lost, what it holds is given back by the server, and it opens anew. When its
    queue moves to another node of a cluster, it opens anew there, and what it holds stays leased.
    """

    def __init__(self, client: AsyncStreaming, request: Consume) -> None:
        self._client = client
        self._request = request
        self._ready: deque[Delivery] = deque()
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
        while not self._ready:
            await self._wait()
        return AsyncMessage(self._ready.popleft(), self._client)

    @property
    def is_interrupted(self) -> bool:
        """Whether the connection was lost or the server goes down, and the stream is about to open anew."""
        return self._reopening is not None and not self._reopening.done()

    async def open(self) -> None:
        """Begin, if it has not begun.

        Raises:
            QueueNotFound, InvalidArgument, Disconnected: it can't.
        """
        async with self._opening:
            if self._channel is None and not self._is_closed and not self.is_interrupted:
                self._channel = await self._client.transport.open(self._request, self)

    async def take(self) -> list[Delivery]:
        """Return all that has come, waiting for the first; an empty list when the stream is closed."""
        while not self._ready:
            try:
                await self._wait()
            except StopAsyncIteration:
                return []
        taken = list(self._ready)
        self._ready.clear()
        return taken

    async def close(self, *, unseen: Sequence[Delivery] = ()) -> None:
        """End the stream; ``unseen`` are messages that were taken from it and not looked at."""
        if self._is_closed:
            return
        self._is_closed = True
        self._arrived.set()
        if self._reopening is not None:
            self._reopening.cancel()
            with suppress(asyncio.CancelledError):
                await self._reopening
        await self._client.drained()
        unseen = (*unseen, *self._ready)
        self._ready.clear()
        if self._channel is not None:
            with suppress(Disconnected, Closed):  # then all of it is given back already
                await self._channel.stop(unseen)
        if unseen and (self._is_moved or getattr(self._client.transport, "is_cluster", False)):
            # Some of it may be leased by a channel that has ended because the queue moved, and that gives nothing back.
            with suppress(FairlaneError, TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._client.nack_many(self._request.queue, unseen, intent="defer")

    # ------------------------------------------------------------------------------------------------ what is delivered

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Take in leased messages; see ``Sink``."""
        self._ready.extend(deliveries)
        self._arrived.set()

    def ended(self, error: FairlaneError) -> None:
        """Open anew, unless the queue is gone; see ``Sink``."""
        if self._is_closed:
            return
        if is_passing(error) or isinstance(error, Closed | QueueSplit):
            if not self.is_interrupted:
                self._reopening = asyncio.get_running_loop().create_task(self._reopen(error))
            return
        self._error = error
        self._arrived.set()

    def withdraw(self, is_meant: Callable[[str], bool]) -> list[Delivery]:
        """Hand out none of these messages any more; see ``Sink``."""
        withdrawn = [delivery for delivery in self._ready if is_meant(delivery.id)]
        if withdrawn:
            self._ready = deque(delivery for delivery in self._ready if not is_meant(delivery.id))
        return withdrawn

    async def _reopen(self, error: FairlaneError) -> None:
        self._channel = None
        unseen: tuple[Delivery, ...] = ()
        self._is_moved = self._is_moved or isinstance(error, LEASES_STAY)
        if not isinstance(error, LEASES_STAY):
            unseen = tuple(self._ready)
            self._ready.clear()
        if unseen and not isinstance(error, Disconnected):
            with suppress(FairlaneError):  # it goes down, but still takes what was not seen, and acks of the rest
                await self._client.nack_many(self._request.queue, unseen, intent="defer")
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
                return
            await asyncio.sleep(pause)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise StopAsyncIteration
        await self.open()
        if not self._ready:
            self._arrived.clear()
            await self._arrived.wait()
