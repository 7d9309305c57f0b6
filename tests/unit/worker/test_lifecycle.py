"""Tests of start, drain, middleware and callbacks."""

from __future__ import annotations

import asyncio
import os
import socket

from fairlane.errors import Closed
from fairlane.wire.frames import Consume
from fairlane.worker import Counters, HandlerResult, Retry, ThreadMessage, WorkMessage
from fairlane.worker.policy import AsyncHandle

from .bench import WorkerBench, on_bench


def test_no_more_run_at_the_same_time_than_may() -> None:
    """With a concurrency of three, three handlers run at the same time and never four."""

    async def test(bench: WorkerBench) -> None:
        most, go_on = 0, asyncio.Event()

        @bench.app.handler("jobs", concurrency=3, credit=10)
        async def handle(_: WorkMessage) -> None:
            nonlocal most
            most = max(most, bench.app.counters.in_flight)
            if bench.app.counters.in_flight == 3:
                go_on.set()
            await go_on.wait()

        async with bench.app:
            await bench.enqueue(*[b"work"] * 10)
            await bench.until(lambda: bench.app.counters.handled == 10)
        assert most == 3

    on_bench(test)


def test_all_that_may_run_at_the_same_time_do_so() -> None:
    """With a concurrency of two hundred, two hundred handlers that wait for something run at the same time."""

    async def test(bench: WorkerBench) -> None:
        go_on = asyncio.Event()

        @bench.app.handler("jobs", concurrency=200, credit=500)
        async def handle(_: WorkMessage) -> None:
            if bench.app.counters.in_flight == 200:
                go_on.set()
            await go_on.wait()

        async with bench.app:
            await bench.enqueue(*[b"work"] * 500)
            await bench.until(lambda: bench.app.counters.handled == 500)

    on_bench(test)


def test_handlers_that_wait_for_nothing_share_tasks() -> None:
    """Five hundred messages whose handlers never await anything take few tasks, whatever the concurrency."""

    async def test(bench: WorkerBench) -> None:
        tasks: set[asyncio.Task[object] | None] = set()

        @bench.app.handler("jobs", concurrency=200, credit=500)
        async def handle(_: WorkMessage) -> None:
            tasks.add(asyncio.current_task())

        await bench.enqueue(*[b"work"] * 500)
        async with bench.app:
            await bench.until(lambda: bench.app.counters.handled == 500)
        assert len(tasks) < 50

    on_bench(test)


def test_middleware_is_around_every_handler() -> None:
    """The first middleware is the outermost; it sees results and errors, and can change them."""

    async def test(bench: WorkerBench) -> None:
        steps: list[str] = []

        @bench.app.middleware
        async def outer(message: WorkMessage, handle: AsyncHandle) -> HandlerResult | None:
            steps.append("outer")
            try:
                return await handle(message)
            except ValueError:
                return Retry(delay_ms=0, error="seen by the outer")

        @bench.app.middleware
        async def inner(message: WorkMessage, handle: AsyncHandle) -> HandlerResult | None:
            steps.append("inner")
            return await handle(message)

        @bench.app.handler("jobs")
        def handle(message: ThreadMessage) -> None:
            steps.append("handler")
            if message.attempt == 1:
                raise ValueError("bad")
            assert message.errors[-1].error == "seen by the outer"

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert steps == ["outer", "inner", "handler"] * 2
        assert bench.app.counters == Counters(handled=1, retried=1)

    on_bench(test)


def test_hooks_are_called_at_the_beginning_and_at_the_end() -> None:
    """on_start runs before the first message is taken, on_stop after the last one is settled."""

    async def test(bench: WorkerBench) -> None:
        steps: list[str] = []
        bench.app.on_start(lambda: steps.append("start"))

        @bench.app.on_stop
        async def end() -> None:
            steps.append(f"stop after {bench.app.counters.handled}")

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            steps.append("message")

        await bench.enqueue(b"work")
        async with bench.app:
            await bench.settled("ack")
        assert steps == ["start", "message", "stop after 1"]

    on_bench(test)


def test_a_drain_finishes_what_runs_and_gives_back_what_does_not() -> None:
    """Running messages are acknowledged; prefetched ones go back without a failure."""

    async def test(bench: WorkerBench) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        @bench.app.handler("jobs", concurrency=1, credit=3)
        async def handle(_: WorkMessage) -> None:
            began.set()
            await go_on.wait()

        await bench.enqueue(b"one", b"two", b"three")
        async with bench.app:
            await began.wait()
            bench.app.stop()
            go_on.set()
        assert bench.app.counters == Counters(handled=1)
        waiting = await bench.client.peek("jobs")
        assert [(message.status, message.failures) for message in waiting] == [("waiting", 0)] * 2

    on_bench(test)


def test_what_outlasts_the_grace_is_cancelled_and_given_back() -> None:
    """A handler that is interrupted by the shutdown does not count as failed."""

    async def test(bench: WorkerBench) -> None:
        began = asyncio.Event()

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            began.set()
            await asyncio.Event().wait()

        await bench.enqueue(b"work")
        bench.app.grace_s = 0.01
        async with bench.app:
            await began.wait()
        assert bench.app.counters == Counters(deferred=1)
        (message,) = await bench.client.peek("jobs")
        assert (message.status, message.failures) == ("waiting", 0)

    on_bench(test)


def test_a_thread_that_outlasts_the_grace_is_told_and_its_message_given_back() -> None:
    """A sync handler cannot be stopped, but its message is returned."""

    async def test(bench: WorkerBench) -> None:
        loop = asyncio.get_running_loop()
        began = asyncio.Event()

        @bench.app.handler("jobs")
        def handle(message: ThreadMessage) -> None:
            loop.call_soon_threadsafe(began.set)
            message.wait_lost(20)

        await bench.enqueue(b"work")
        bench.app.grace_s = 0.01
        async with bench.app:
            await began.wait()
        assert bench.app.counters == Counters(deferred=1)
        (message,) = await bench.client.peek("jobs")
        assert (message.status, message.failures) == ("waiting", 0)

    on_bench(test)


def test_a_server_that_goes_down_gets_its_acks_and_what_was_not_begun() -> None:
    """When the server shuts down, the worker finishes the running handlers, returns the rest, and reconnects."""

    async def test(bench: WorkerBench) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        @bench.app.handler("jobs", concurrency=1, credit=3)
        async def handle(message: WorkMessage) -> None:
            assert message.failures == 0
            began.set()
            await go_on.wait()

        async with bench.app:
            await bench.enqueue(b"one", b"two", b"three")
            await began.wait()
            bench.tap.sinks[0].ended(Closed("The server is going down."))
            go_on.set()
            await bench.until(lambda: bench.app.counters.handled == 3)
        assert bench.app.counters.lost == 0

    on_bench(test)


def test_every_consumer_has_a_name_of_its_own() -> None:
    """Without an owner, each handler consumes as host, process and its own name, and no two have the same."""

    async def test(bench: WorkerBench) -> None:
        async def count_consumers(_: WorkMessage) -> None:
            pass

        for owner in (None, None, "mine"):
            bench.app.handler("jobs", owner=owner)(count_consumers)
        async with bench.app:
            await bench.until(lambda: len(bench.tap.sinks) == 3)
        owners = [str(request.owner) for _, request in bench.tap.calls if isinstance(request, Consume)]
        name = f"{socket.gethostname()[:64]}:{os.getpid()}:count_consumers"
        assert sorted(owners) == sorted([name, f"{name}-2", "mine"])

    on_bench(test)
