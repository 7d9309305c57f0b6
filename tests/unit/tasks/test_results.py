"""Tests of handles: status, result and cancel of jobs."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.client import QueuePolicy
from fairlane.errors import Forbidden, MessageCancelled, MessageDead, WaitTimedOut
from fairlane.tasks import App
from fairlane.worker import DeadLetter, ThreadMessage, WorkMessage
from tests.kit.waiting import PATIENCE_S

from .bench import AppBench, on_app
from .definitions import Customer, Item


def test_a_result_comes_back_as_its_type() -> None:
    """Structs, lists of models and plain values return as what the function is annotated with."""
    app = App()

    @app.task(result_ttl="1d")
    async def price(name: str) -> Item:
        return Item(name, 250)

    @app.task(result_ttl="1d")
    def customers(count: int) -> list[Customer]:
        return [Customer(email="a@b.c", age=number) for number in range(count)]

    @app.task(result_ttl="1d")
    def doubtful(dies: bool) -> str | DeadLetter:
        return DeadLetter("it had to") if dies else "alive"

    with app.testing() as harness:
        first, second, third = price.send_sync("cup"), customers.send_sync(2), doubtful.send_sync(dies=False)
        dead = doubtful.send_sync(dies=True)
        assert first.status().status == "waiting"
        with pytest.raises(WaitTimedOut):
            first.result(timeout=60)
        harness.run()
        assert first.result() == Item("cup", 250)
        assert [customer.age for customer in second.result()] == [0, 1]
        assert third.result() == "alive"
        assert price.thread_job(first.id).status().status == "done"
        with pytest.raises(MessageDead, match="it had to"):
            dead.result()


def test_results_are_off_unless_declared() -> None:
    """A task without a time to live may return what can't be encoded, and its result is None."""
    app = App()

    @app.task
    def job() -> object:
        return object()

    with app.testing() as harness:
        handle = job.send_sync()
        assert harness.run().handled == 1
        assert handle.status().status == "done"
        assert handle.result() is None


def test_the_options_of_a_job_decide_about_its_result() -> None:
    """A job with a time to live of its own has a result though its task has none, and one with 0 has none."""
    app = App()

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task(result_ttl="1d")
    def anything() -> object:
        return object()

    with app.testing() as harness:
        kept, plain = double.options(result_ttl="1h").send_sync(4), double.send_sync(5)
        dropped = anything.options(result_ttl="0s").send_sync()
        assert harness.run().handled == 3
        assert [kept.result(), plain.result(), dropped.result()] == [8, None, None]


def test_the_result_of_a_chain_is_that_of_its_last_job() -> None:
    """A job that a worker forwards keeps the options that it was made with."""
    app, ids = App(), list[str]()

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def later(message: ThreadMessage, number: int) -> int:
        ids.append(message.id)
        return 2 * number

    with app.testing() as harness:
        first = app.chain(double.call(1), later.options(result_ttl="1h").call(4)).send_sync()
        assert harness.run().handled == 2
        assert first.result() is None
        assert later.thread_job(ids[0]).result() == 8


def test_an_operator_turns_results_on() -> None:
    """A worker keeps results where the policy of the queue says so, whatever its tasks declare."""
    app = App()

    @app.task(queue="shop")
    def double(number: int) -> int:
        return 2 * number

    @app.task(queue="shop", result_ttl="0s")
    def anything() -> object:
        return object()

    with app.testing() as harness:
        harness.client.create_queue("shop", {"result_ttl_ms": 3_600_000})
        kept, dropped = double.send_sync(4), anything.send_sync()
        assert harness.run().handled == 2
        assert [kept.result(), dropped.result()] == [8, None]


def test_a_worker_without_the_right_to_create_queues_keeps_results() -> None:
    """A worker with a consume key reads the policy of the queue, whose operator turned results on."""

    async def test(bench: AppBench) -> None:
        bench.tap.refusals["ensure_queue"] = [Forbidden("Needs admin.")]
        await bench.client.create_queue("shop", {"result_ttl_ms": 3_600_000})

        @bench.app.task(queue="shop")
        async def double(number: int) -> int:
            return 2 * number

        async with bench.working():
            assert await (await double.send(4)).result(timeout=PATIENCE_S) == 8

    on_app(test)


def test_a_result_is_awaited_while_the_job_runs() -> None:
    """A caller that waits gets the result with the commit that ends the job."""

    async def test(bench: AppBench) -> None:
        may_go = asyncio.Event()

        @bench.app.task(queue="shop", result_ttl="1h")
        async def job(number: int) -> int:
            await may_go.wait()
            return 2 * number

        async with bench.working():
            handle = await job.send(4)
            waiting = asyncio.create_task(handle.result(timeout=PATIENCE_S))
            await bench.until(lambda: any(verb == "result" for verb, _ in bench.tap.calls))
            may_go.set()
            assert await waiting == 8

    on_app(test)


def test_a_job_is_watched_from_its_queue_to_its_end() -> None:
    """Each change comes once, without polling: leased, every report of progress, and the end."""

    async def test(bench: AppBench) -> None:
        steps = asyncio.Queue[float]()

        @bench.app.task(queue="shop")
        async def job(message: WorkMessage) -> None:
            while (fraction := await steps.get()) < 1:
                message.report_progress(fraction)

        handle = await job.send()
        seen = []
        watching = handle.watch()
        seen.append(await anext(watching))
        async with bench.working():
            seen.append(await anext(watching))
            for fraction in (0.25, 0.5):
                steps.put_nowait(fraction)
                seen.append(await anext(watching))
            steps.put_nowait(1)
            seen += [view async for view in watching]
        assert [(view.status, view.progress and view.progress.fraction) for view in seen] == [
            ("waiting", None),
            ("running", None),
            ("running", 0.25),
            ("running", 0.5),
            ("done", None),
        ]
        assert bench.tap.count("status") <= len(seen) + 2  # the server ends a wait after ten seconds

    on_app(test)


def test_a_thread_watches_a_job() -> None:
    """A retry, a dead letter: a thread sees the same changes, over virtual time."""
    app = App()

    @app.task(queue="shop", policy=QueuePolicy(max_attempts=2, backoff_ms=60_000))
    def job() -> None:
        raise ValueError("no")

    with app.testing() as harness:
        watching = job.send_sync().watch()
        assert next(watching).status == "waiting"
        harness.advance("1s")
        assert (failed := next(watching)).status == "failed"
        assert failed.errors[-1].error == "ValueError: no"
        harness.run()
        assert [view.status for view in watching] == ["dead"]


def test_a_running_job_is_cancelled() -> None:
    """An async task is cancelled at once, a sync one is told, and the result says why."""

    async def test(bench: AppBench) -> None:
        both = asyncio.Barrier(3)
        loop, stopped = asyncio.get_running_loop(), list[str]()

        @bench.app.task(queue="shop")
        async def patient() -> None:
            await both.wait()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("async")

        @bench.app.task(queue="shop")
        def busy(message: WorkMessage) -> None:
            asyncio.run_coroutine_threadsafe(both.wait(), loop).result()
            message.wait_lost(30)
            stopped.append("sync")

        async with bench.working():
            handles = [await patient.send(), await busy.send()]
            await both.wait()
            for handle in handles:
                await handle.cancel("the customer left")
                with pytest.raises(MessageCancelled, match="the customer left"):
                    await handle.result()
        assert sorted(stopped) == ["async", "sync"]

    on_app(test)
