"""Tests of handlers that get messages in lists."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fairlane.errors import InvalidArgument
from fairlane.tasks import App
from fairlane.worker import Counters, DeadLetter, Retry, WorkMessage
from fairlane.worker.policy import Answer
from tests.kit.waiting import PATIENCE_S, pass_loop, until

from .bench import WorkerBench, on_bench
from .test_leases import SHORT_MS, take_away


def payloads(messages: list[WorkMessage]) -> list[bytes]:
    return [message.payload for message in messages]


def test_a_full_batch_goes_at_once_and_the_rest_in_time() -> None:
    """Five messages in batches of two: two full ones, and the last one when its time has come."""
    app = App()
    batches: list[list[bytes]] = []

    @app.batch_handler("rows", size=2, wait_ms=60_000, policy={})
    async def insert(messages: list[WorkMessage]) -> None:
        batches.append(payloads(messages))

    with app.testing() as harness:
        harness.client.create_queue("rows")
        for number in range(5):
            harness.client.enqueue("rows", b"%d" % number)
        begun = harness.now
        assert harness.run().handled == 5
        assert (harness.now - begun).total_seconds() >= 60
    assert batches == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_each_message_has_its_own_verdict(kind: str) -> None:
    """A list of verdicts acknowledges, retries and kills messages of one batch."""
    app = App()

    def judge(messages: list[WorkMessage]) -> list[Answer]:
        known: dict[bytes, Answer] = {b"bad": DeadLetter("bad"), b"again": Retry(delay_ms=10)}
        return [None if message.attempt > 1 else known.get(message.payload) for message in messages]

    async def judge_later(messages: list[WorkMessage]) -> list[Answer]:
        return judge(messages)

    app.batch_handler("rows", size=3)(judge if kind == "sync" else judge_later)
    with app.testing() as harness:
        harness.client.create_queue("rows")
        for payload in (b"good", b"bad", b"again"):
            harness.client.enqueue("rows", payload)
        counters = harness.run()
    assert (counters.handled, counters.dead, counters.retried) == (2, 1, 1)


def test_an_exception_fails_every_message_of_its_batch() -> None:
    """Each message is retried by itself, and the next batch may succeed."""
    app = App()
    calls: list[int] = []

    @app.batch_handler("rows", size=3)
    async def insert(messages: list[WorkMessage]) -> None:
        calls.append(len(messages))
        if len(calls) == 1:
            raise ConnectionError("no database")

    with app.testing() as harness:
        harness.client.create_queue("rows")
        for _ in range(3):
            harness.client.enqueue("rows", b"row")
        counters = harness.run()
    assert (counters.failed, counters.handled, calls) == (3, 3, [3, 3])


def test_too_few_verdicts_are_a_failure() -> None:
    """A list that does not fit the batch is an error of the handler, and no message is acknowledged by guess."""
    app = App()

    @app.batch_handler("rows", size=2, retries=0)
    async def insert(_: list[WorkMessage]) -> list[Answer]:
        return [None]

    with app.testing() as harness:
        harness.client.create_queue("rows")
        for _ in range(2):
            harness.client.enqueue("rows", b"row")
        assert harness.run().dead == 2
        assert "one verdict per message" in harness.dead_letters("rows")[0].errors[-1].error


def test_a_batch_that_takes_too_long_is_cancelled() -> None:
    """When the time of all messages of a batch is up, its handler is cancelled, and each message has failed."""
    app = App()
    ended: list[int] = []

    @app.batch_handler("rows", size=2, timeout_s=60, retries=0)
    async def insert(messages: list[WorkMessage]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(len(messages))

    with app.testing() as harness:
        harness.client.create_queue("rows")
        for _ in range(2):
            harness.client.enqueue("rows", b"row")
        assert harness.run().dead == 2
        assert ended == [2]


def test_a_batch_is_cancelled_with_its_last_message() -> None:
    """The handler goes on while one of its messages is wanted, and is told which are not."""

    async def test(bench: WorkerBench) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()
        seen: list[WorkMessage] = []

        @bench.app.batch_handler("jobs", size=2)
        async def insert(messages: list[WorkMessage]) -> None:
            seen.extend(messages)
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        ids = await bench.enqueue(b"a", b"b")
        async with bench.app:
            await begun.wait()
            await bench.client.cancel("jobs", ids[0])
            await pass_loop(20)
            assert [message.is_lost for message in seen] == [True, False]
            assert not ended.is_set()
            await bench.client.cancel("jobs", ids[1])
            await ended.wait()
        assert bench.app.counters == Counters(cancelled=2)

    on_bench(test)


def test_a_batch_whose_leases_are_lost_is_cancelled() -> None:
    """Other workers handle its messages, which are not settled."""

    async def test(bench: WorkerBench) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        @bench.app.batch_handler("jobs", size=2, visibility_ms=SHORT_MS)
        async def insert(_: list[WorkMessage]) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        ids = await bench.enqueue(b"a", b"b")
        async with bench.app:
            await begun.wait()
            for message_id in ids:
                await take_away(bench, message_id)
            await ended.wait()
        assert bench.app.counters == Counters(lost=2)

    on_bench(test)


def test_the_messages_of_an_interrupted_batch_return_when_its_handler_has_ended() -> None:
    """At the end of the grace period a handler may clean up before another worker gets the messages."""

    async def test(bench: WorkerBench) -> None:
        begun = asyncio.Event()
        returned: list[int] = []

        @bench.app.batch_handler("jobs", size=2)
        async def insert(_: list[WorkMessage]) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await pass_loop(20)
                returned.append(bench.tap.count("nack"))

        await bench.enqueue(b"a", b"b")
        async with bench.app:
            await begun.wait()
            bench.app.stop(is_hurried=True)
        assert returned == [0]
        assert bench.app.counters == Counters(deferred=2)

    on_bench(test)


def test_a_sync_batch_that_takes_too_long_keeps_its_slots() -> None:
    """Its messages are returned at once, but no batch is started beside it until its thread has ended."""

    async def test(bench: WorkerBench) -> None:
        go_on = threading.Event()
        running = most = 0

        @bench.app.batch_handler("jobs", size=2, concurrency=2, timeout_s=0.05)
        def insert(messages: list[WorkMessage]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if messages[0].attempt == 1:
                assert messages[0].wait_lost(PATIENCE_S)
                assert go_on.wait(PATIENCE_S)
            running -= 1

        await bench.enqueue(b"a", b"b")
        async with bench.app:
            await bench.until(lambda: bench.app.counters.retried == 2)
            await pass_loop(100)
            assert bench.app.counters.in_flight == 2
            go_on.set()
            await bench.until(lambda: bench.app.counters.handled == 2)
        assert most == 1
        assert bench.app.counters == Counters(handled=2, failed=2, retried=2)

    on_bench(test)


def test_a_message_that_is_cancelled_keeps_its_slot_in_a_sync_batch() -> None:
    """The handler has it until it ends, and goes on for the other message."""

    async def test(bench: WorkerBench) -> None:
        loop = asyncio.get_running_loop()
        begun, go_on = asyncio.Event(), threading.Event()

        @bench.app.batch_handler("jobs", size=2, concurrency=2)
        def insert(_: list[WorkMessage]) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(PATIENCE_S)

        ids = await bench.enqueue(b"a", b"b")
        async with bench.app:
            await begun.wait()
            await bench.client.cancel("jobs", ids[0])
            await until(lambda: bench.app.counters.cancelled == 1, "the message is cancelled")
            assert bench.app.counters.in_flight == 2
            go_on.set()
            await bench.until(lambda: bench.app.counters.handled == 1)
        assert bench.app.counters == Counters(handled=1, cancelled=1)

    on_bench(test)


def test_a_sync_batch_that_outlasts_the_grace_does_not_hold_up_the_end() -> None:
    """Its messages are returned, and worker and event loop end although the thread still runs."""
    go_on = threading.Event()

    async def test(bench: WorkerBench) -> None:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        @bench.app.batch_handler("jobs", size=2)
        def insert(_: list[WorkMessage]) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(PATIENCE_S)

        await bench.enqueue(b"a", b"b")
        bench.app.grace_s = 0.01
        async with bench.app:
            await begun.wait()
        assert bench.app.counters == Counters(deferred=2)

    try:
        on_bench(test)
    finally:
        go_on.set()


def test_any_exception_of_a_sync_batch_fails_its_messages() -> None:
    """Even one that asyncio's futures refuse to hold."""
    app = App()

    @app.batch_handler("rows", size=2, retries=0)
    def insert(_: list[WorkMessage]) -> None:
        raise StopIteration

    with app.testing() as harness:
        harness.client.create_queue("rows")
        for _ in range(2):
            harness.client.enqueue("rows", b"row")
        assert harness.run().dead == 2


def test_a_batch_that_could_never_be_full_is_refused() -> None:
    """The size is at most the number of messages that are handled at the same time."""
    app = App()
    with pytest.raises(InvalidArgument, match="1 <= size <= concurrency"):
        app.batch_handler("rows", size=10, concurrency=5)(payloads)  # type: ignore[type-var] # refused before it is called
