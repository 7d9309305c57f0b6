"""The channels of one connection: consumers to which deliveries are pushed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.handlers.checks import check_handlers, check_taking
from fairlane.broker.requests import AttachedConsumer
from fairlane.errors import Closed, FairlaneError, InvalidArgument, QueueNotFound
from fairlane.gateway.caller import Caller
from fairlane.model.message import Delivery, Receipt
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.outbox import FrameQueue
from fairlane.verbs.columns import DeliveryColumns
from fairlane.verbs.errors import body_of
from fairlane.verbs.verb import Done
from fairlane.wire.frames import CONSUME, Cancelled, Consume, Deliver, Ended, Stop, Widen

_NOTHING = Done()


class Channel:
    """One streaming consumer, whose deliveries are sent as frames."""

    def __init__(
        self,
        number: int,
        request: Consume,
        server: ServerContext,
        broker: AsyncBroker,
        outbox: FrameQueue,
        *,
        has_columns: bool,
    ) -> None:
        self.number = number
        self.broker = broker
        self._server = server
        self._outbox = outbox
        self._is_answered = False
        self._is_ended = False
        self._stop: Stop | None = None
        self._sent = 0
        self._latest: deque[str] = deque(maxlen=request.credit)  # what is in flight is among these
        self._late: list[str] = []
        self.consumer = AttachedConsumer(
            queue=request.queue,
            credit=request.credit,
            deliver=self._deliver,
            visibility_ms=request.visibility_ms,
            owner=request.owner,
            with_state=request.with_state,
            unseen=_Unseen(self),
            room=outbox.room,
            handlers=request.handlers,
            on_cancelled=self._cancelled,
            has_columns=has_columns,
        )

    def answer(self) -> None:
        """Send the answer that the channel is open, before any delivery."""
        if not self._is_answered:
            self._is_answered = True
            self._outbox.put((1, self.number, _NOTHING))

    def _deliver(self, deliveries: list[Delivery]) -> None:
        if self._stop is not None:
            self._late += _ids_of(deliveries)
            return
        self.answer()
        if deliveries:
            self._sent += len(deliveries)
            self._latest.extend(_ids_of(deliveries))
            self._server.tally.delivered += len(deliveries)
            if self._server.spans is not None:
                self._server.spans.delivered(self.consumer.queue, deliveries)
            self._outbox.put(Deliver(self.number, deliveries))
        elif self.consumer.ending is not None:
            self.end(self._server.explained(self.consumer.ending))
        elif self.consumer.is_closed:
            self.end(QueueNotFound(f"Queue {self.consumer.queue!r} has been deleted."))

    def _cancelled(self, ids: list[str]) -> None:
        if self._stop is None:
            self._outbox.put(Cancelled(self.number, ids))

    def end(self, error: FairlaneError) -> None:
        """End the channel. The client may still acknowledge what it has in flight."""
        self.consumer.credit = 0
        if not self._is_ended:
            self._is_ended = True
            self.answer()
            self._outbox.put(Ended(self.number, body_of(error)))

    def stop(self, stop: Stop) -> None:
        """Send nothing from now on, because the client has stopped the channel or is gone."""
        self._stop = stop
        unsent = self._unsent()
        self._late += [delivery.id for frame in unsent for delivery in frame.deliveries]
        self._outbox.take_out(unsent)

    def unseen(self) -> list[str]:
        """Return the messages that no handler has seen: not sent, named by the client, or sent after it stopped."""
        stop = self._stop
        if stop is None:
            return [delivery.id for frame in self._unsent() for delivery in frame.deliveries]
        ids = [*stop.unseen, *self._late]
        if stop.received is not None and stop.received < self._sent:
            ids += list(self._latest)[stop.received - self._sent :]
        return ids

    def _unsent(self) -> list[Deliver]:
        waiting = self._outbox.waiting()
        return [frame for frame in waiting if isinstance(frame, Deliver) and frame.channel == self.number]


def _ids_of(deliveries: Sequence[Delivery]) -> list[str]:
    return deliveries.ids() if isinstance(deliveries, DeliveryColumns) else [delivery.id for delivery in deliveries]


class _Unseen(Collection[Any]):
    """The unseen messages of a channel at the moment of iteration, which is the engine cycle that detaches it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __iter__(self) -> Iterator[Any]:
        return (Receipt(message_id, 0) for message_id in self._channel.unseen())

    def __len__(self) -> int:
        return len(self._channel.unseen())

    def __contains__(self, message: object) -> bool:
        return any(message == unseen for unseen in self)


class Channels:
    """The channels of one connection, by number."""

    def __init__(
        self, server: ServerContext, outbox: FrameQueue, holder: str | None, *, has_columns: bool = False
    ) -> None:
        self._server = server
        self._has_columns = has_columns
        self._outbox = outbox
        self._holder = holder
        self._open: dict[int, Channel] = {}

    async def open(self, number: int, request: Consume) -> None:
        """Open a channel, and answer the call that opens it.

        Raises:
            InvalidArgument, QueueNotFound, QueueElsewhere, QueueMoving, TooManyWaiters: the channel was not opened.
        """
        check_taking(request.credit, 0, request.visibility_ms, request.owner)
        check_handlers(request.handlers)
        broker, served = await self._server.gateway.served(request.queue)
        if served != request.queue:
            request = msgspec.structs.replace(request, queue=served)
        if number in self._open:
            raise InvalidArgument(f"Channel {number} is already open.")
        self._server.waiters.begin(self._holder)
        channel = Channel(number, request, self._server, broker, self._outbox, has_columns=self._has_columns)
        self._open[number] = channel
        try:
            await broker.attach(channel.consumer)
        except BaseException as error:
            self._forget(number)
            if isinstance(error, asyncio.CancelledError):
                broker.abandon(channel.consumer)  # it may still have been attached
            if isinstance(error, FairlaneError):
                raise self._server.explained(error) from error
            raise
        channel.answer()
        if self._server.draining.is_set():
            channel.end(going_down())

    def _forget(self, number: int) -> Channel | None:
        channel = self._open.pop(number, None)
        if channel is not None:
            self._server.waiters.end(self._holder)
        return channel

    async def change(self, number: int, request: Consume | Stop, caller: Caller) -> None:
        """Open or close a channel, and answer the call that asks for it.

        Raises:
            FairlaneError: it was not opened, or there is none to close.
        """
        if isinstance(request, Stop):
            self._outbox.put((1, number, await self.stop(request)))
            return
        self._server.tally.calls[CONSUME] += 1
        self._server.check_open()
        caller.check("consume", request.queue)
        await self.open(number, request)

    async def stop(self, request: Stop) -> Done:
        """Close a channel. Raises InvalidArgument if no channel has this number."""
        channel = self._forget(request.channel)
        if channel is None:
            raise InvalidArgument(f"Channel {request.channel} is not open.")
        channel.stop(request)
        if channel.consumer.ending is None:  # else its broker has let it go, and its leases stay
            await channel.broker.detach(channel.consumer)
        return _NOTHING

    def widen(self, request: Widen) -> None:
        """Change how many handlers a consumer has. Raises InvalidArgument if no channel has this number."""
        check_handlers(request.handlers)
        channel = self._open.get(request.channel)
        if channel is None:
            raise InvalidArgument(f"Channel {request.channel} is not open.")
        channel.broker.widen(channel.consumer, request.handlers)

    def end_all(self) -> None:
        """End all channels, because the server shuts down."""
        for channel in self._open.values():
            channel.end(going_down())

    async def close_all(self) -> None:
        """Close all channels, because the connection is gone."""
        channels = list(self._open.values())
        for channel in channels:
            self._forget(channel.number)
        for channel in channels:
            channel.stop(Stop(channel=channel.number))
            if channel.consumer.ending is not None:
                continue
            with suppress(FairlaneError):  # the broker is closed or had to recover; then it holds nothing
                await channel.broker.detach(channel.consumer)


def going_down() -> Closed:
    """Return the error of a server that shuts down."""
    return Closed("The server is shutting down.")
