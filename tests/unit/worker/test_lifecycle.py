"""Beginning, draining, and what is around handlers."""

from __future__ import annotations

import asyncio

from fairlane.errors import Closed
from fairlane.worker import Counters, Result, Retry, ThreadMessage, WorkMessage
from fairlane.worker.policy import AsyncHandle

from .shop import Shop, in_shop


def test_no_more_run_at_the_same_time_than_may() -> None:
    """With a concurrency of three, three handlers run at the same time and never four."""

    async def test(shop: Shop) -> None:
        most, go_on = 0, asyncio.Event()

        @shop.app.handler("jobs", concurrency=3, credit=10)
        async def handle(_: WorkMessage) -> None:
            nonlocal most
            most = max(most, shop.app.counters.in_flight)
            if shop.app.counters.in_flight == 3:
                go_on.set()
            await go_on.wait()

        async with shop.app:
            await shop.enqueue(*[b"work"] * 10)
            await shop.until(lambda: shop.app.counters.handled == 10)
        assert most == 3

    in_shop(test)


def test_middleware_is_around_every_handler() -> None:
    """The first that is registered is the outermost, it sees results and errors, and may change them."""

    async def test(shop: Shop) -> None:
        steps: list[str] = []

        @shop.app.middleware
        async def outer(message: WorkMessage, handle: AsyncHandle) -> Result | None:
            steps.append("outer")
            try:
                return await handle(message)
            except ValueError:
                return Retry(delay_ms=0, error="seen by the outer")

        @shop.app.middleware
        async def inner(message: WorkMessage, handle: AsyncHandle) -> Result | None:
            steps.append("inner")
            return await handle(message)

        @shop.app.handler("jobs")
        def handle(message: ThreadMessage) -> None:
            steps.append("handler")
            if message.attempt == 1:
                raise ValueError("bad")
            assert message.errors[-1].error == "seen by the outer"

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert steps == ["outer", "inner", "handler"] * 2
        assert shop.app.counters == Counters(handled=1, retried=1)

    in_shop(test)


def test_hooks_are_called_at_the_beginning_and_at_the_end() -> None:
    """One before the first message is taken, the other after the last is settled."""

    async def test(shop: Shop) -> None:
        steps: list[str] = []
        shop.app.on_start(lambda: steps.append("start"))

        @shop.app.on_stop
        async def end() -> None:
            steps.append(f"stop after {shop.app.counters.handled}")

        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            steps.append("message")

        await shop.enqueue(b"work")
        async with shop.app:
            await shop.settled("ack")
        assert steps == ["start", "message", "stop after 1"]

    in_shop(test)


def test_a_drain_finishes_what_runs_and_gives_back_what_does_not() -> None:
    """What is running is acked; what was prefetched goes back as never seen."""

    async def test(shop: Shop) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        @shop.app.handler("jobs", concurrency=1, credit=3)
        async def handle(_: WorkMessage) -> None:
            began.set()
            await go_on.wait()

        await shop.enqueue(b"one", b"two", b"three")
        async with shop.app:
            await began.wait()
            shop.app.stop()
            go_on.set()
        assert shop.app.counters == Counters(handled=1)
        waiting = await shop.client.peek("jobs")
        assert [(message.status, message.failures) for message in waiting] == [("waiting", 0)] * 2

    in_shop(test)


def test_what_outlasts_the_grace_is_cancelled_and_given_back() -> None:
    """A handler that is stopped because the worker goes down has not failed."""

    async def test(shop: Shop) -> None:
        began = asyncio.Event()

        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            began.set()
            await asyncio.Event().wait()

        await shop.enqueue(b"work")
        shop.app.grace_s = 0.01
        async with shop.app:
            await began.wait()
        assert shop.app.counters == Counters(deferred=1)
        (message,) = await shop.client.peek("jobs")
        assert (message.status, message.failures) == ("waiting", 0)

    in_shop(test)


def test_a_thread_that_outlasts_the_grace_is_told_and_its_message_given_back() -> None:
    """A sync handler can't be stopped, but its message is not kept from others."""

    async def test(shop: Shop) -> None:
        loop = asyncio.get_running_loop()
        began = asyncio.Event()

        @shop.app.handler("jobs")
        def handle(message: ThreadMessage) -> None:
            loop.call_soon_threadsafe(began.set)
            message.wait_lost(20)

        await shop.enqueue(b"work")
        shop.app.grace_s = 0.01
        async with shop.app:
            await began.wait()
        assert shop.app.counters == Counters(deferred=1)
        (message,) = await shop.client.peek("jobs")
        assert (message.status, message.failures) == ("waiting", 0)

    in_shop(test)


def test_a_server_that_goes_down_gets_its_acks_and_what_was_not_begun() -> None:
    """When told that the server goes down it finishes what is running and gives back the rest, then begins again."""

    async def test(shop: Shop) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        @shop.app.handler("jobs", concurrency=1, credit=3)
        async def handle(message: WorkMessage) -> None:
            assert message.failures == 0
            began.set()
            await go_on.wait()

        async with shop.app:
            await shop.enqueue(b"one", b"two", b"three")
            await began.wait()
            shop.tap.sinks[0].ended(Closed("The server is going down."))
            go_on.set()
            await shop.until(lambda: shop.app.counters.handled == 3)
        assert shop.app.counters.lost == 0

    in_shop(test)
