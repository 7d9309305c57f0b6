"""Streams of leased messages from a broker in this process, for asyncio and for threads.

Leaving a stream gives back what was not acked. What it still holds then was never seen, and is deferred; what it has
given out counts as a lost attempt.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NotRequired, Self, TypedDict, Unpack, cast

from fairlane.broker.handlers.checks import check_handlers, check_taking
from fairlane.broker.requests import AttachedConsumer
from fairlane.broker.waiting.room import Room, delivery_bytes
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.ids import number_in
from fairlane.model.message import Delivery
from fairlane.verbs.handler_count import HandlerCount

if TYPE_CHECKING:
    from fairlane.broker.frontends.aio import AsyncBroker
    from fairlane.broker.frontends.threads import Broker

CREDIT = 32


class ConsumerTerms(TypedDict):
    """On which terms a stream consumes a queue; see ``AttachedConsumer``."""

    queue: str
    credit: int
    visibility_ms: int | None
    owner: str | None
    with_state: bool
    handlers: int | None
    room: NotRequired[Room | None]


class DeliveryStream(ABC):
    """The consumer behind a stream, and the messages that have come and were not taken yet."""

    def __init__(self, now_ms: Callable[[], int], **terms: Unpack[ConsumerTerms]) -> None:
        self._now_ms = now_ms
        self._given: list[int] = []
        self._forgetting = threading.Lock()
        self._is_measured = terms["handlers"] is None
        self._count = HandlerCount()
        if self._is_measured:
            terms["handlers"] = self._count.count
        check_taking(terms["credit"], 0, terms["visibility_ms"], terms["owner"])
        check_handlers(terms["handlers"])
        self._given_max = 2 * terms["credit"]
        self._ready: deque[Delivery] = deque()
        self._is_entered = False
        self._is_over = False
        self._consumer = AttachedConsumer(
            **terms, deliver=self._deliver, unseen=self._ready, on_cancelled=self._drop_cancelled
        )
        self.on_cancelled: Callable[[list[str]], None] = lambda _ids: None

    @abstractmethod
    def _deliver(self, deliveries: list[Delivery]) -> None:
        """Take messages that were leased."""

    def _drop_cancelled(self, ids: list[str]) -> None:
        """Drop messages that were cancelled before they were taken, and pass on the ids of the others."""
        for delivery in [delivery for delivery in self._ready if delivery.id in ids]:
            self._ready.remove(delivery)
        self.on_cancelled(ids)

    def _give(self, delivery: Delivery) -> Delivery:
        if self._is_measured:
            self._given.append(cast("int", number_in(delivery.id)))
        return delivery

    def _forget_settled(self) -> None:
        with self._forgetting:
            count = len(self._given)  # other threads may append meanwhile
            self._given[:count] = [number for number in self._given[:count] if number in self._consumer.held]

    def _handlers(self) -> int | None:
        """Return how many handlers the reader has if that has changed: one for each message it holds, and one free.

        So a reader that takes one message after the other has one handler, and gets prompt messages one by one.
        """
        if not self._is_measured or len(self._given) < self._count.count:
            return None
        self._forget_settled()
        needed = min(len(self._given) + 1, self._consumer.credit)
        return self._count.count if self._count.update(needed, self._now_ms()) else None

    def _is_late(self, delivery: Delivery) -> bool:
        """Return whether a message has missed its deadline here. It is given back then, and expires in its queue."""
        return delivery.deadline_ms is not None and delivery.deadline_ms < self._now_ms()

    def _enter(self) -> None:
        if self._is_entered:
            raise InvalidArgument("A stream can be entered only once; open another one.")
        self._is_entered = True


class AsyncDeliveries(DeliveryStream):
    """A stream of leased messages, for one event loop."""

    def __init__(self, broker: AsyncBroker, **terms: Unpack[ConsumerTerms]) -> None:
        super().__init__(broker._engine.now_ms, **terms)
        self._broker = broker
        self._arrived = asyncio.Event()

    def _deliver(self, deliveries: list[Delivery]) -> None:
        self._ready.extend(deliveries)
        if self._consumer.room is not None:
            self._consumer.room.add(sum(map(delivery_bytes, deliveries)))
        self._arrived.set()

    async def __aenter__(self) -> Self:
        self._enter()
        try:
            await self._broker.attach(self._consumer)
        except asyncio.CancelledError:
            self._broker.abandon(self._consumer)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the stream."""
        if self._is_over:
            return
        self._is_over = True
        self._arrived.set()
        if self._broker.is_closed:
            return
        await self._broker.detach(self._consumer)
        self._ready.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if not self._is_entered:
            raise InvalidArgument("Enter the stream with `async with` before iterating over it.")
        while True:
            if len(self._given) >= self._given_max:
                self._measure()
            while self._is_over or not self._ready:
                if self._is_over or self._consumer.is_closed or self._broker.is_closed:
                    raise StopAsyncIteration
                self._arrived.clear()
                self._measure()
                await self._arrived.wait()
            delivery = self._ready.popleft()
            if not self._is_late(delivery):
                return self._give(delivery)
            if self._consumer.room is not None:
                self._consumer.room.remove(delivery_bytes(delivery))
            self._broker.give_back(delivery.queue, [delivery])

    def _measure(self) -> None:
        if (handlers := self._handlers()) is not None:
            self._broker.widen(self._consumer, handlers)


class Deliveries(DeliveryStream):
    """A stream of leased messages. Several threads may iterate it."""

    def __init__(self, broker: Broker, **terms: Unpack[ConsumerTerms]) -> None:
        super().__init__(broker._engine.now_ms, **terms)
        self._broker = broker
        self._arrived = threading.Condition()

    def _deliver(self, deliveries: list[Delivery]) -> None:
        with self._arrived:
            self._ready.extend(deliveries)
            self._arrived.notify_all()

    def __enter__(self) -> Self:
        self._enter()
        try:
            self._broker._attach(self._consumer)
        except FairlaneError:
            raise
        except BaseException:
            self._broker._engine.abandon(self._consumer)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream."""
        with self._arrived:
            if self._is_over:
                return
            self._is_over = True
            self._arrived.notify_all()
        if not self._broker.is_closed:
            self._broker._attach(self._consumer, is_closing=True)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        delivery = self.next()
        if delivery is None:
            raise StopIteration
        return delivery

    def next(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next message; None when the stream is over or nothing came in time."""
        if not self._is_entered:
            raise InvalidArgument("Enter the stream with `with` before iterating over it.")
        while (delivery := self._next(timeout_s)) is not None and self._is_late(delivery):
            self._broker._engine.give_back(delivery.queue, [delivery])
            self._broker._run()
        return None if delivery is None else self._give(delivery)

    def _next(self, timeout_s: float | None) -> Delivery | None:
        is_due = not self._ready or len(self._given) >= self._given_max
        if is_due and (handlers := self._handlers()) is not None:
            self._broker._widen(self._consumer, handlers)
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._ready) or self._has_ended(), timeout_s)
            return self._ready.popleft() if self._ready and not self._is_over else None

    def _has_ended(self) -> bool:
        return self._is_over or self._consumer.is_closed or self._broker.is_closed
