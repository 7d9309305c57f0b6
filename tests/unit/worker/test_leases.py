"""Tests of leases that are extended, and leases that are lost."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import Disconnected, StoreFailed
from fairlane.verbs.leases import Extend
from fairlane.verbs.status import ReportProgress
from fairlane.worker import Acknowledge, Counters, ThreadMessage, WorkMessage
from tests.kit.ids import numbered
from tests.kit.waiting import PATIENCE_S

from .bench import WorkerBench, on_bench

SHORT_MS = 900
"""Short, but longer than a busy machine keeps a process waiting."""


def test_what_is_running_and_what_is_prefetched_is_extended() -> None:
    """A handler that runs for three lease times keeps its message, and those that wait behind it."""

    async def test(bench: WorkerBench) -> None:
        attempts: list[int] = []

        @bench.app.handler("jobs", concurrency=1, credit=3, visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            attempts.append(message.attempt)
            if len(attempts) == 1:
                await bench.settled("extend", 10)

        async with bench.app:
            ids = await bench.enqueue(b"one", b"two", b"three")
            await bench.until(lambda: bench.app.counters.handled == 3)
        extended = [request for _, request in bench.tap.calls if isinstance(request, Extend)]
        assert {receipt.id for receipt in extended[3].receipts} == set(ids)
        assert attempts == [1, 1, 1]
        assert bench.app.counters == Counters(handled=3)

    on_bench(test)


async def take_away(bench: WorkerBench, message_id: str) -> None:
    """End the lease of a message as another holder of its receipt would."""
    events = (await bench.client.read_journal()).events
    number = f"{numbered(message_id):016x}"
    token = max(event["token"] for event in events if event["kind"] == "leased" and event["message_id"] == number)
    held = type("Held", (), {"id": message_id, "queue": "jobs", "token": token})()
    await bench.client.nack(held, intent="dead")


def test_an_async_handler_whose_lease_is_lost_is_cancelled() -> None:
    """An async handler is cancelled when its lease is lost, and its message is not settled."""

    async def test(bench: WorkerBench) -> None:
        began, ended = asyncio.Event(), asyncio.Event()
        seen: list[WorkMessage] = []

        @bench.app.handler("jobs", visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            seen.append(message)
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with bench.app:
            (message_id,) = await bench.enqueue(b"work")
            await began.wait()
            await take_away(bench, message_id)
            await ended.wait()
        assert seen[0].is_lost
        assert bench.app.counters == Counters(lost=1)
        assert [verb for verb, _ in bench.tap.calls if verb in ("ack", "nack")] == ["nack"]

    on_bench(test)


def test_a_sync_handler_whose_lease_is_lost_is_told() -> None:
    """A sync handler sees the loss on its message, and its result has no effect."""

    async def test(bench: WorkerBench) -> None:
        loop = asyncio.get_running_loop()
        began, ended = asyncio.Event(), asyncio.Event()

        @bench.app.handler("jobs", visibility_ms=SHORT_MS)
        def handle(message: ThreadMessage) -> None:
            loop.call_soon_threadsafe(began.set)
            assert message.wait_lost(PATIENCE_S)
            loop.call_soon_threadsafe(ended.set)

        async with bench.app:
            (message_id,) = await bench.enqueue(b"work")
            await began.wait()
            await take_away(bench, message_id)
            await ended.wait()
        assert bench.app.counters == Counters(lost=1)

    on_bench(test)


def test_a_prefetched_message_that_is_lost_is_never_begun() -> None:
    """A waiting message whose lease is lost is skipped."""

    async def test(bench: WorkerBench) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()
        begun: list[bytes] = []

        @bench.app.handler("jobs", concurrency=1, credit=3, visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            begun.append(message.payload)
            began.set()
            await go_on.wait()

        async with bench.app:
            ids = await bench.enqueue(b"one", b"two", b"three")
            await began.wait()
            await take_away(bench, ids[1])
            await bench.until(lambda: bench.app.counters.lost == 1)
            go_on.set()
            await bench.until(lambda: bench.app.counters.handled == 2)
        assert begun == [b"one", b"three"]

    on_bench(test)


def test_a_lease_that_could_not_be_extended_in_time_is_taken_for_lost() -> None:
    """Handlers are stopped when the server does not answer for a whole lease, since another worker may have started."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["extend"] = [StoreFailed("The disk is full.")] * 1_000

        @bench.app.handler("jobs", visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                await asyncio.Event().wait()

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert (bench.app.counters.lost, bench.app.counters.handled) == (1, 1)

    on_bench(test)


@pytest.mark.parametrize("error", [Disconnected("It fell."), StoreFailed("It is full.")])
def test_an_ack_that_was_not_answered_is_repeated(error: Disconnected | StoreFailed) -> None:
    """An ack names its fencing token, so it is repeated after a lost connection until it is answered."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["ack"] = [error, error]

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            assert message.attempt == 1

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters == Counters(handled=1)

    on_bench(test)


def test_after_a_lost_connection_it_finds_out_what_is_still_its_own() -> None:
    """After a lost connection no waiting message starts until an extension has confirmed its lease."""

    async def test(bench: WorkerBench) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()
        begun: list[bytes] = []

        @bench.app.handler("jobs", concurrency=1, credit=3)
        async def handle(message: WorkMessage) -> None:
            begun.append(message.payload)
            began.set()
            await go_on.wait()

        async with bench.app:
            ids = await bench.enqueue(b"one", b"two", b"three")
            await began.wait()
            await take_away(bench, ids[1])
            bench.tap.sinks[0].ended(Disconnected("It fell."))
            go_on.set()
            await bench.until(lambda: bench.app.counters.handled == 2)
        assert begun == [b"one", b"three"]
        assert bench.app.counters == Counters(handled=2, lost=1)
        assert bench.tap.count("extend") == 1

    on_bench(test)


def test_an_async_handler_of_a_cancelled_message_is_cancelled_at_once() -> None:
    """The stream tells the worker, which does not wait for an extension to find out, and goes on with the next one."""

    async def test(bench: WorkerBench) -> None:
        began, ended = asyncio.Event(), asyncio.Event()
        seen: list[WorkMessage] = []

        @bench.app.handler("jobs", concurrency=1)
        async def handle(message: WorkMessage) -> None:
            seen.append(message)
            if len(seen) == 1:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        async with bench.app:
            first, second, _ = await bench.enqueue(b"one", b"two", b"three")
            await began.wait()
            await bench.client.cancel_many("jobs", [first, second], reason="not needed")
            await ended.wait()
            await bench.until(lambda: bench.app.counters.handled == 1)
        assert [message.payload for message in seen] == [b"one", b"three"]
        assert (seen[0].is_cancelled, seen[0].is_lost, seen[1].is_cancelled) == (True, True, False)
        assert bench.app.counters == Counters(handled=1, cancelled=2)

    on_bench(test)


def test_a_sync_handler_of_a_cancelled_message_is_notified() -> None:
    """A thread learns that it should stop, and its result has no effect."""

    async def test(bench: WorkerBench) -> None:
        began, ended = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        seen: list[bool] = []

        @bench.app.handler("jobs")
        def handle(message: ThreadMessage) -> None:
            loop.call_soon_threadsafe(began.set)
            seen.append(message.wait_lost(PATIENCE_S) and message.is_cancelled)
            loop.call_soon_threadsafe(ended.set)

        async with bench.app:
            (message_id,) = await bench.enqueue(b"one")
            await began.wait()
            await bench.client.cancel("jobs", message_id)
            await ended.wait()
        assert seen == [True]
        assert bench.app.counters == Counters(cancelled=1)

    on_bench(test)


def test_a_handler_returns_a_result() -> None:
    """The result of an acknowledgement is kept for those who ask."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> Acknowledge:
            return Acknowledge(result=message.payload.upper())

        async with bench.app:
            ids = await bench.enqueue(b"one", b"two")
            found = [await bench.client.result(each, wait_ms=int(PATIENCE_S * 1000)) for each in ids]
        assert found == [b"ONE", b"TWO"]

    on_bench(test, result_ttl_ms=60_000)


def test_handlers_report_progress_that_is_coalesced() -> None:
    """Many reports in a row are a few calls, the last of which has the latest, from a coroutine and from a thread."""

    async def test(bench: WorkerBench) -> None:
        seen: list[str] = []

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            for step in range(100):
                message.report_progress(step / 100, note="async")
            await bench.settled("report_progress")
            status = await bench.client.status(message.id)
            seen.append(f"{status.progress.note if status.progress else ''} {status.status}")

        async with bench.app:
            await bench.enqueue(b"one")
            await bench.until(lambda: bench.app.counters.handled == 1)
        reports = [request for _, request in bench.tap.calls if isinstance(request, ReportProgress)]
        assert (seen, len(reports), reports[0].fraction) == (["async running"], 1, 0.99)

    on_bench(test)
