"""Tests of handlers that raise or take too long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fairlane.worker import Counters, HandlerResult, ThreadMessage, WorkMessage
from tests.kit.waiting import PATIENCE_S

from .bench import WorkerBench, on_bench


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_a_handler_raises_is_told_to_the_next_attempt(error: BaseException) -> None:
    """Any exception, even SystemExit, returns the message, and the worker continues."""

    async def test(bench: WorkerBench) -> None:
        told: list[tuple[BaseException, str]] = []

        @bench.app.on_error
        def note(raised: BaseException, message: WorkMessage) -> None:
            told.append((raised, message.id))

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                raise error
            assert message.errors[-1].error == f"{type(error).__name__}: {error}"

        async with bench.app:
            (message_id,) = await bench.enqueue(b"work")
            await bench.settled("ack")
        assert told == [(error, message_id)]
        assert bench.app.counters == Counters(handled=1, failed=1, retried=1)

    on_bench(test)


@pytest.mark.parametrize(
    ("error", "is_dead"), [(ConnectionError("later"), False), (ValueError("bad"), True), (TypeError("odd"), True)]
)
def test_the_type_of_an_error_decides(error: Exception, is_dead: bool) -> None:
    """Only exceptions in retry_on and not in dead_letter_on are retried."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", retry_on=(OSError, ValueError), dead_letter_on=(ValueError,))
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                raise error

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack" if is_dead else "ack")
        assert bench.app.counters.dead == is_dead
        assert (await bench.client.queue("jobs")).dead == is_dead

    on_bench(test)


def test_retries_are_counted() -> None:
    """A message with two retries is attempted three times and then becomes a dead letter."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", retries=2)
        async def handle(_: WorkMessage) -> None:
            raise ValueError("always")

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.until(lambda: bench.app.counters.dead == 1)
        assert bench.app.counters == Counters(failed=3, retried=2, dead=1)

    on_bench(test, max_attempts=0)


def test_an_error_in_a_hook_for_errors_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An on_error function that raises does not affect the message."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.on_error
        async def note(*_: object) -> None:
            raise RuntimeError("of the hook")

        @bench.app.handler("jobs", retries=0)
        async def handle(_: WorkMessage) -> None:
            raise ValueError("of the handler")

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack")
        assert bench.app.counters.dead == 1

    on_bench(test)
    assert "An on_error function failed." in caplog.text


def test_an_async_handler_that_takes_too_long_is_cancelled() -> None:
    """A handler is cancelled after its timeout, and its runner continues with the next message."""

    async def test(bench: WorkerBench) -> None:
        was_cancelled = asyncio.Event()

        @bench.app.handler("jobs", concurrency=1, timeout_s=0.01)
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    was_cancelled.set()
            assert message.errors[-1].error == "TimeoutError: The handler took longer than 0.01 s."

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert was_cancelled.is_set()
        assert bench.app.counters == Counters(handled=1, failed=1, retried=1)

    on_bench(test)


def test_a_handler_that_will_not_be_cancelled_has_timed_out_all_the_same() -> None:
    """The result of a handler has no effect after its timeout."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", timeout_s=0.01, retries=0)
        async def handle(_: WorkMessage) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack")
        assert bench.app.counters == Counters(failed=1, dead=1)

    on_bench(test)


def test_sync_handlers_run_in_threads_side_by_side() -> None:
    """Sync handlers run in threads, as many at the same time as the concurrency allows."""

    async def test(bench: WorkerBench) -> None:
        together = threading.Barrier(4)
        threads: set[str] = set()

        @bench.app.handler("jobs", concurrency=4)
        def handle(_: ThreadMessage) -> HandlerResult | None:
            threads.add(threading.current_thread().name)
            together.wait(PATIENCE_S)
            return None

        async with bench.app:
            await bench.enqueue(*[b"work"] * 4)
            await bench.until(lambda: bench.app.counters.handled == 4)
        assert len(threads) == 4

    on_bench(test)


def test_sync_handlers_fail_and_write_state_too() -> None:
    """An exception in a sync handler returns its message; the state that it has written is kept."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", with_state=True)
        def handle(message: ThreadMessage) -> None:
            if message.attempt == 1:
                message.set_state(b"half")
                raise StopIteration("odd, but it happens")
            assert message.state == b"half"

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters == Counters(handled=1, failed=1, retried=1)

    on_bench(test)


def test_a_sync_handler_that_takes_too_long_is_told_and_keeps_its_place() -> None:
    """Its message is returned at once, but its slot stays occupied until its thread ends."""

    async def test(bench: WorkerBench) -> None:
        most, running = 0, 0

        @bench.app.handler("jobs", concurrency=1, timeout_s=0.05)
        def handle(message: ThreadMessage) -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            if message.attempt == 1:
                assert message.wait_lost(PATIENCE_S)
                assert message.is_lost
            running -= 1

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert most == 1
        assert bench.app.counters == Counters(handled=1, failed=1, retried=1)

    on_bench(test)
