"""Results that the broker refuses: those that no attempt can change, and those that have to wait for room."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.client import NewMessage
from fairlane.errors import QueueFull
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.tasks import App
from fairlane.worker import Acknowledge, Counters, ForwardTo, HandlerResult, Retry, WorkMessage

from .bench import WorkerBench, on_bench

LARGE = b"x" * (RESULT_BYTES_MAX + 1)


def test_a_result_that_is_too_large_makes_a_dead_letter() -> None:
    """The task runs once, and its dead letter says how large the result was."""
    app, attempts = App(), list[int]()

    @app.task(queue="reports", result_ttl="1h", policy={"max_attempts": 2})
    def report(size: int) -> str:
        attempts.append(size)
        return "x" * size

    with app.testing() as jobs:
        report.send_sync(2 * RESULT_BYTES_MAX)
        jobs.run(limit="10m")
        (letter,) = jobs.dead_letters("reports")
    assert len(attempts) == 1
    assert letter.errors[-1].error.startswith("ResultTooLarge: The result has 2097154 bytes")


@pytest.mark.parametrize(
    "answer",
    [
        Acknowledge(cost=-1),
        Acknowledge(result=LARGE),
        Retry(delay_ms=-1),
        ForwardTo({"jobs": [NewMessage(cost=0)]}),
        ForwardTo({"jobs": [NewMessage()]}, result=LARGE),
    ],
)
def test_a_result_that_the_broker_never_accepts_makes_a_dead_letter(answer: HandlerResult) -> None:
    """The handler runs once, and others that are settled with it are not affected."""

    async def test(bench: WorkerBench) -> None:
        attempts: list[bytes] = []

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            attempts.append(message.payload)
            return answer if message.payload == b"bad" else None

        await bench.client.enqueue_many("jobs", [NewMessage(payload=name) for name in (b"a", b"bad", b"b")])
        async with bench.app:
            await bench.until(lambda: bench.app.counters.dead == 1 and bench.app.counters.handled == 2)
        assert attempts == [b"a", b"bad", b"b"]
        assert bench.app.counters == Counters(handled=2, failed=1, dead=1)
        assert len(await bench.client.peek("jobs.dlq")) == 1

    on_bench(test, result_ttl_ms=60_000)


def test_a_forward_to_a_full_queue_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    """The handler runs once, its message is acknowledged when there is room, and the log says once why not yet."""

    async def test(bench: WorkerBench) -> None:
        attempts: list[int] = []
        await bench.client.create_queue("parcels", {"waiting_max": 1})
        await bench.client.enqueue("parcels", b"first")

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult:
            attempts.append(message.attempt)
            return ForwardTo({"parcels": [NewMessage(payload=b"second")]})

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.until(lambda: [verb for verb, _ in bench.tap.calls].count("forward") >= 3)
            (first,) = await bench.client.lease("parcels")
            await first.ack()
            await bench.until(lambda: bench.app.counters.handled == 1)
        (parcel,) = await bench.client.peek("parcels", with_body=True)
        assert (parcel.payload, attempts) == (b"second", [1])
        assert bench.app.counters == Counters(handled=1)

    on_bench(test)
    told = [record.message for record in caplog.records if "until there is capacity" in record.message]
    assert len(told) == 1


def test_a_worker_that_stops_returns_what_waits_for_room() -> None:
    """The message goes back without a failure, and the worker does not wait for room."""

    async def test(bench: WorkerBench) -> None:
        await bench.client.create_queue("parcels", {"waiting_max": 1})
        await bench.client.enqueue("parcels", b"first")

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> HandlerResult:
            return ForwardTo({"parcels": [NewMessage()]})

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.until(lambda: "forward" in [verb for verb, _ in bench.tap.calls])
        (waiting,) = await bench.client.peek("jobs")
        assert (waiting.status, waiting.failures) == ("waiting", 0)
        assert bench.app.counters == Counters(deferred=1)

    on_bench(test)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_message_that_is_removed_while_it_waits_for_room_is_dropped(is_cancelled: bool) -> None:
    """Cancelled or purged: the next request about it is refused, and nothing is forwarded or counted as handled."""

    async def test(bench: WorkerBench) -> None:
        await bench.client.create_queue("parcels")
        bench.tap.refusals["forward"] = [QueueFull("Queue parcels is full.")]

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> HandlerResult:
            return ForwardTo({"parcels": [NewMessage()]})

        (message_id,) = await bench.enqueue(b"work")
        cancelling = asyncio.create_task(bench.until(lambda: not bench.tap.refusals["forward"]))
        async with bench.app:
            await cancelling
            if is_cancelled:
                await bench.client.cancel("jobs", message_id)
            else:
                await bench.client.purge("jobs", with_leased=True)
        assert bench.app.counters == (Counters(cancelled=1) if is_cancelled else Counters(lost=1))
        assert await bench.client.peek("parcels") == []

    on_bench(test)
