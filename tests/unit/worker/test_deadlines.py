"""Deadlines in a worker: no handler starts for a message that is too late."""

from __future__ import annotations

import asyncio

import msgspec

from fairlane.client import NewMessage
from fairlane.model.message import Delivery
from fairlane.worker import Counters, WorkMessage

from .bench import WorkerBench, on_bench


def _late_at_first(delivery: Delivery) -> Delivery:
    """Return a delivery whose time left is over at its first attempt, as if the worker had been busy."""
    is_late = delivery.time_left_ms is not None and delivery.attempt == 1
    return msgspec.structs.replace(delivery, time_left_ms=-1) if is_late else delivery


def test_a_late_message_is_returned_before_its_handler_starts() -> None:
    """The worker returns it without a failure and counts it as expired; the broker's clock decides what follows."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.on_deliver = _late_at_first
        handled: list[tuple[bytes, int, int]] = []

        @bench.app.handler("jobs", concurrency=1)
        async def handle(message: WorkMessage) -> None:
            handled.append((message.payload, message.attempt, message.failures))

        await bench.client.enqueue("jobs", NewMessage(payload=b"late", deadline_ms=60_000))
        async with bench.app:
            await bench.settled("ack")
        assert handled == [(b"late", 2, 0)]
        assert bench.app.counters == Counters(handled=1, expired=1)

    on_bench(test)


def test_handlers_of_expired_messages_never_begin() -> None:
    """Four messages with a deadline, and a handler that outlasts it: the first runs, and the queue drops the others."""

    async def test(bench: WorkerBench) -> None:
        begun: list[bytes] = []
        is_over = asyncio.Event()

        @bench.app.handler("jobs", concurrency=1)
        async def handle(message: WorkMessage) -> None:
            begun.append(message.payload)
            asyncio.get_running_loop().call_later(0.1, is_over.set)  # the deadlines have passed by then
            await is_over.wait()

        await bench.client.enqueue_many("jobs", [NewMessage(payload=b"%d" % n, deadline_ms=50) for n in range(4)])
        async with bench.app:
            await bench.settled("ack")
        view = await bench.client.queue("jobs")
        assert (begun, view.waiting, view.leased, view.dead) == ([b"0"], 0, 0, 0)

    on_bench(test)


def test_counters_add_up_with_what_expired() -> None:
    """The sum of two consumers has the expired messages of both."""
    assert Counters(expired=2, lost=1) + Counters(expired=3) == Counters(expired=5, lost=1)
