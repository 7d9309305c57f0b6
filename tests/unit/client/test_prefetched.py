"""Messages in a stream's buffer: those whose deadline passes there never reach user code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlane.client import AsyncClient, Client
from fairlane.client.prefetched import Prefetched
from fairlane.client.transport import Channel
from fairlane.client.transport.protocol import Sink
from fairlane.embedded import EmbeddedTransport
from fairlane.model.message import Delivery, NewMessage
from fairlane.verbs import handler_count
from fairlane.wire.frames import Consume

if TYPE_CHECKING:
    import pytest


def _delivery(message_id: str, time_left_ms: int | None) -> Delivery:
    return Delivery(
        id=message_id,
        queue="jobs",
        token=int(message_id),
        payload=b"",
        headers={},
        fairness_key="default",
        attempt=1,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
        time_left_ms=time_left_ms,
    )


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def __call__(self) -> float:
        return self.at_s


def _next(ready: Prefetched) -> tuple[str, bool]:
    """Take the next message, and return its id and whether it is too late."""
    delivery = ready.waiting.popleft()
    return delivery.id, ready.is_late(delivery)


def test_the_time_left_counts_from_the_receipt() -> None:
    """A message is good until its time left has passed, inclusively, by the client's own clock."""
    clock = Hand()
    ready = Prefetched(clock)
    ready.add([_delivery("1", 500), _delivery("2", 500)])
    clock.at_s += 0.2
    ready.add([_delivery("3", 500), _delivery("4", None)])
    clock.at_s += 0.3
    assert _next(ready) == ("1", False)
    clock.at_s += 0.1
    taken = ready.take_all()
    assert [_next(taken) for _ in range(3)] == [("2", True), ("3", False), ("4", False)]
    assert (len(ready), len(taken)) == (0, 0)


def test_withdrawn_messages_are_forgotten() -> None:
    """What is withdrawn and received again has the time left of its second receipt."""
    clock = Hand()
    ready = Prefetched(clock)
    ready.add([_delivery("1", 100), _delivery("2", 100)])
    assert ready.withdraw(lambda message_id: message_id == "1") == [_delivery("1", 100)]
    clock.at_s += 1
    ready.add([_delivery("1", 100)])
    assert [_next(ready), _next(ready)] == [("2", True), ("1", False)]


class Slow(EmbeddedTransport):
    """A transport on which the time left of a message is over when it arrives."""

    async def open(self, request: Consume, sink: Sink) -> Channel:  # type: ignore[override] # any channel will do
        return await super().open(request, _Late(sink))


class _Late:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.ended, self.withdraw, self.cancelled = sink.ended, sink.withdraw, sink.cancelled

    def deliver(self, deliveries: list[Delivery]) -> None:
        self._sink.deliver([_overdue(delivery) for delivery in deliveries])


def _overdue(delivery: Delivery) -> Delivery:
    fields = {name: getattr(delivery, name) for name in delivery.__struct_fields__}
    return delivery if delivery.time_left_ms is None else Delivery(**(fields | {"time_left_ms": -1}))


TWO = [NewMessage(payload=b"late", deadline_ms=60_000), NewMessage(payload=b"whenever")]


def test_asyncio_a_late_message_goes_back_instead_of_out() -> None:
    """The stream returns it without a failure, and gives out the next one."""

    async def main() -> None:
        async with AsyncClient(Slow()) as client:
            await client.create_queue("jobs")
            await client.enqueue_many("jobs", TWO)
            async with client.consume("jobs", visibility_ms=60_000) as stream:
                message = await anext(stream)
                assert message.payload == b"whenever"
                await message.ack()
            (view,) = await client.peek("jobs")
            assert (view.status, view.failures) == ("waiting", 0)

    asyncio.run(main())


def test_threads_a_late_message_goes_back_instead_of_out() -> None:
    """The same for threads, whose stream has a buffer of its own."""
    with Client(Slow()) as client:
        client.create_queue("jobs")
        client.enqueue_many("jobs", TWO)
        with client.consume("jobs", visibility_ms=60_000) as stream:
            message = next(stream)
            assert message.payload == b"whenever"
            message.ack()
        (view,) = client.peek("jobs")
        assert (view.status, view.failures) == ("waiting", 0)


def test_asyncio_a_reader_that_keeps_fewer_messages_has_fewer_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a phase with four in hand, one that settles each message gets prompt messages one by one again."""
    monkeypatch.setattr(handler_count, "PERIOD_MS", 0)

    async def main() -> None:
        async with AsyncClient(EmbeddedTransport()) as client:
            await client.create_queue("jobs")
            await client.enqueue_many("jobs", [NewMessage(deadline_ms=3_600_000) for _ in range(50)])
            async with client.consume("jobs", credit=4) as stream:
                for message in [await anext(stream) for _ in range(4)]:
                    await message.ack()
                assert (await client.queue("jobs")).leased == 4
                for _ in range(30):
                    await (await anext(stream)).ack()
                await anext(stream)
                assert (await client.queue("jobs")).leased == 1

    asyncio.run(main())


def test_threads_a_reader_that_keeps_fewer_messages_has_fewer_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for threads."""
    monkeypatch.setattr(handler_count, "PERIOD_MS", 0)
    with Client(EmbeddedTransport()) as client:
        client.create_queue("jobs")
        client.enqueue_many("jobs", [NewMessage(deadline_ms=3_600_000) for _ in range(50)])
        with client.consume("jobs", credit=4) as stream:
            for message in [next(stream) for _ in range(4)]:
                message.ack()
            assert client.queue("jobs").leased == 4
            for _ in range(30):
                next(stream).ack()
            next(stream)
            assert client.queue("jobs").leased == 1


def test_a_stream_whose_messages_are_settled_elsewhere_remembers_few() -> None:
    """Messages that are acknowledged through the client count as unsettled, up to the credit and no further."""

    async def main() -> None:
        async with AsyncClient(EmbeddedTransport()) as client:
            await client.create_queue("jobs")
            await client.enqueue_many("jobs", [NewMessage() for _ in range(20)])
            async with client.consume("jobs", credit=2) as stream:
                for _ in range(20):
                    await client.ack(await anext(stream))
                assert len(stream._given) <= 4

    asyncio.run(main())
