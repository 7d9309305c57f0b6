"""Handlers that raise or take too long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fairlane.worker import Counters, Result, ThreadMessage, WorkMessage

from .shop import Shop, in_shop


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_a_handler_raises_is_told_to_the_next_attempt(error: BaseException) -> None:
    """Whatever is raised, even what ends programs, gives the message back and lets the worker go on."""

    async def test(shop: Shop) -> None:
        told: list[tuple[BaseException, str]] = []

        @shop.app.on_error
        def note(raised: BaseException, message: WorkMessage) -> None:
            told.append((raised, message.id))

        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                raise error
            assert message.errors[-1].error == f"{type(error).__name__}: {error}"

        async with shop.app:
            (message_id,) = await shop.enqueue(b"work")
            await shop.settled("ack")
        assert told == [(error, message_id)]
        assert shop.app.counters == Counters(handled=1, failed=1, retried=1)

    in_shop(test)


@pytest.mark.parametrize(
    ("error", "is_dead"), [(ConnectionError("later"), False), (ValueError("bad"), True), (TypeError("odd"), True)]
)
def test_the_type_of_an_error_decides(error: Exception, is_dead: bool) -> None:
    """Only what is named in retry_on and not in dead_letter_on is retried."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", retry_on=(OSError, ValueError), dead_letter_on=(ValueError,))
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                raise error

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("nack" if is_dead else "ack")
        assert shop.app.counters.dead == is_dead
        assert (await shop.client.queue("jobs")).dead == is_dead

    in_shop(test)


def test_retries_are_counted() -> None:
    """A message with two retries is tried three times and then a dead letter."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", retries=2)
        async def handle(_: WorkMessage) -> None:
            raise ValueError("always")

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.until(lambda: shop.app.counters.dead == 1)
        assert shop.app.counters == Counters(failed=3, retried=2, dead=1)

    in_shop(test, max_attempts=0)


def test_an_error_in_a_hook_for_errors_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that raises changes nothing for the message."""

    async def test(shop: Shop) -> None:
        @shop.app.on_error
        async def note(*_: object) -> None:
            raise RuntimeError("of the hook")

        @shop.app.handler("jobs", retries=0)
        async def handle(_: WorkMessage) -> None:
            raise ValueError("of the handler")

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("nack")
        assert shop.app.counters.dead == 1

    in_shop(test)
    assert "A hook for errors failed." in caplog.text


def test_an_async_handler_that_takes_too_long_is_cancelled() -> None:
    """After its timeout a handler is cancelled, and its runner goes on with the next message."""

    async def test(shop: Shop) -> None:
        was_cancelled = asyncio.Event()

        @shop.app.handler("jobs", concurrency=1, timeout_s=0.01)
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    was_cancelled.set()
            assert message.errors[-1].error == "TimeoutError: It took longer than 0.01 s."

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert was_cancelled.is_set()
        assert shop.app.counters == Counters(handled=1, failed=1, retried=1)

    in_shop(test)


def test_a_handler_that_will_not_be_cancelled_has_timed_out_all_the_same() -> None:
    """What a handler answers after its time is over has no effect."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", timeout_s=0.01, retries=0)
        async def handle(_: WorkMessage) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("nack")
        assert shop.app.counters == Counters(failed=1, dead=1)

    in_shop(test)


def test_sync_handlers_run_in_threads_side_by_side() -> None:
    """As many sync handlers as may run at the same time do, each in a thread of its own."""

    async def test(shop: Shop) -> None:
        together = threading.Barrier(4)
        threads: set[str] = set()

        @shop.app.handler("jobs", concurrency=4)
        def handle(_: ThreadMessage) -> Result | None:
            threads.add(threading.current_thread().name)
            together.wait(20)
            return None

        async with shop.app:
            await shop.enqueue(*[b"work"] * 4)
            await shop.until(lambda: shop.app.counters.handled == 4)
        assert len(threads) == 4

    in_shop(test)


def test_sync_handlers_fail_and_write_state_too() -> None:
    """What a sync handler raises gives its message back; the state it has written is kept."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", with_state=True)
        def handle(message: ThreadMessage) -> None:
            if message.attempt == 1:
                message.set_state(b"half")
                raise StopIteration("odd, but it happens")
            assert message.state == b"half"

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters == Counters(handled=1, failed=1, retried=1)

    in_shop(test)


def test_a_sync_handler_that_takes_too_long_is_told_and_keeps_its_place() -> None:
    """Its message is given back at once, but nothing else runs in its place until its thread ends."""

    async def test(shop: Shop) -> None:
        most, running = 0, 0

        @shop.app.handler("jobs", concurrency=1, timeout_s=0.05)
        def handle(message: ThreadMessage) -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            if message.attempt == 1:
                assert message.wait_lost(20)
                assert message.is_lost
            running -= 1

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert most == 1
        assert shop.app.counters == Counters(handled=1, failed=1, retried=1)

    in_shop(test)
