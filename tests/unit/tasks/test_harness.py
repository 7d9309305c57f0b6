"""Tests of the harness for apps: virtual time, and the real worker on it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from fairlane.client import QueuePolicy
from fairlane.errors import QueueNotFound
from fairlane.tasks import App
from fairlane.testing import make_message, verdict
from fairlane.worker import Acknowledge, DeadLetter, Retry, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_job_that_keeps_failing_becomes_a_dead_letter_in_virtual_time() -> None:
    """Four retries with growing backoff pass at once, and the dead letter has the error."""
    app = App()

    @app.task(queue="mail", policy=QueuePolicy(max_attempts=5, backoff_ms=10_000, backoff_jitter=0))
    def send(to: str) -> None:
        raise ValueError(f"no such address {to}")

    with app.testing(now=NOW) as harness:
        send.send_sync("nobody")
        counters = harness.run()
        (letter,) = harness.dead_letters("mail")
        assert (counters.failed, counters.retried, counters.dead) == (5, 4, 1)
        assert letter.errors[-1].error == "ValueError: no such address nobody"
        waited = harness.now - NOW
    assert timedelta(seconds=150) <= waited < timedelta(seconds=151)  # 10 + 20 + 40 + 80


@pytest.mark.no_cover
def test_a_dead_letter_takes_less_than_a_tenth_of_a_second() -> None:
    """Once a process has imported the broker, the CPU time of such a test is about 15 ms."""
    spent_s = []
    for _ in range(4):  # the first one imports the broker, and a garbage collection may hit one of the others
        begun_s = time.process_time()
        test_a_job_that_keeps_failing_becomes_a_dead_letter_in_virtual_time()
        spent_s.append(time.process_time() - begun_s)
    assert min(spent_s[1:]) < 0.1


def test_dead_letters_are_found_where_the_policy_puts_them() -> None:
    """A queue whose dead letters go to a shared queue has its own ones, and the shared queue all."""
    app = App()

    @app.task(queue="mail", policy=QueuePolicy(dead_letter_queue="failures", max_attempts=1))
    def send(to: str) -> None:
        raise ValueError(to)

    @app.task(queue="fax", policy=QueuePolicy(dead_letter_queue="failures", max_attempts=1))
    def fax(to: str) -> None:
        raise ValueError(to)

    with app.testing(now=NOW) as harness:
        harness.client.create_queue("failures")
        harness.client.enqueue("failures", b"own")
        send.send_sync("a")
        fax.send_sync("b")
        harness.run()
        found = {name: harness.dead_letters(name) for name in ("mail", "fax", "failures")}
    origins = {name: [letter.dead and letter.dead.origin for letter in letters] for name, letters in found.items()}
    assert origins == {"mail": ["mail"], "fax": ["fax"], "failures": ["mail", "fax"]}


def test_run_skips_delays_and_advance_stops_in_time() -> None:
    """A delayed job runs at its time: not before, while time is advanced, and at once in a run."""
    app = App()
    ran: list[tuple[str, datetime]] = []

    with app.testing(now=NOW) as harness:

        @app.task
        async def job(name: str) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await asyncio.Event().wait()
            ran.append((name, harness.now))

        job.options(delay="2h").send_sync("a")
        job.options(at=NOW + timedelta(days=2)).send_sync("b")
        assert harness.advance("1h").handled == 0
        assert harness.now == NOW + timedelta(hours=1)
        assert harness.run().handled == 2
    assert ran == [("a", NOW + timedelta(hours=2, minutes=1)), ("b", NOW + timedelta(days=2, minutes=1))]


def test_jobs_of_jobs_run_in_the_same_run() -> None:
    """Sync and async tasks send further jobs, which the run handles before it ends."""
    app = App()
    ran: list[int] = []

    @app.task(queue="a")
    async def first(left: int) -> None:
        ran.append(left)
        await second.send(left - 1)

    @app.task(queue="b")
    def second(left: int) -> None:
        ran.append(left)
        if left:
            first.send_sync(left - 1)

    with app.testing() as harness:
        first.send_sync(3)
        harness.run()
    assert ran == [3, 2, 1, 0]


def test_a_run_that_cannot_end_names_what_is_left() -> None:
    """A handler that waits for ever, or a delay beyond the limit, ends the run with an error."""
    app = App()

    @app.task(queue="mail")
    async def stuck() -> None:
        await asyncio.Event().wait()

    with app.testing() as harness:
        handle = stuck.send_sync()
        with pytest.raises(AssertionError, match=f"After 1h there are still jobs: {handle.id} of mail"):
            harness.run(limit="1h")


def test_a_web_application_sends_from_its_own_loop() -> None:
    """An endpoint sends as in production, from an event loop that is not the worker's."""
    app, web = App(), FastAPI()
    charged: list[tuple[int, str]] = []

    @app.task(queue="payments", key="tenant")
    async def charge(order_id: int, tenant: str) -> None:
        charged.append((order_id, tenant))

    @web.post("/orders/{order_id}")
    async def order(order_id: int) -> dict[str, str]:
        return {"job": (await charge.send(order_id, tenant="acme")).id}

    async def browse() -> dict[str, str]:
        async with AsyncClient(transport=ASGITransport(web), base_url="http://shop") as browser:
            answer: dict[str, str] = (await browser.post("/orders/7")).json()
            return answer

    with app.testing() as harness:
        answer = asyncio.run(browse())
        assert harness.client.get("payments", answer["job"]).fairness_key == "acme"
        assert charged == []
        harness.run()
    assert charged == [(7, "acme")]


def test_an_async_test_sends_with_await() -> None:
    """A test that is a coroutine uses the harness on its own event loop."""
    app = App()
    threads: set[str] = set()

    @app.task
    async def job() -> None:
        threads.add(threading.current_thread().name)

    async def main() -> None:
        async with app.testing() as harness:
            await job.send()
            assert harness.run().handled == 1

    asyncio.run(main())
    assert threads == {"fairlane-harness"}


def test_the_client_sees_messages_and_waits_in_virtual_time() -> None:
    """A lease that waits for a message times out at once, because time passes for it."""
    app = App()

    @app.task(queue="mail")
    def job() -> None: ...

    with app.testing(now=NOW) as harness:
        job.send_sync()
        (message,) = harness.client.lease("mail", wait_ms=1_000)
        message.ack()
        assert harness.client.lease("mail", wait_ms=60_000) == []
        assert harness.now >= NOW + timedelta(seconds=60)


def test_an_app_can_be_tested_again_and_again() -> None:
    """Each harness has an empty broker, and the app is as before afterwards."""
    app = App("ws://127.0.0.1:9", timeout=0.01)

    @app.task
    def job() -> None: ...

    for _ in range(2):
        with app.testing() as harness:
            job.send_sync()
            assert harness.run().handled == 1
    with pytest.raises(Exception, match="No answer"):
        job.send_sync()
    app.close_sync()


def test_an_error_of_on_start_fails_the_run() -> None:
    """A worker that does not start raises in the test."""
    app = App()
    app.task(name="job")(lambda: None)

    @app.on_start
    def fail() -> None:
        raise RuntimeError("no database")

    with app.testing() as harness, pytest.raises(RuntimeError, match="no database"):
        harness.run()


def test_a_verdict_needs_no_broker() -> None:
    """A constructed message, the handler, its middleware and its policy give the verdict of a worker."""
    app = App()

    @app.handler("orders", retries=1, dead_letter_on=(KeyError,))
    async def order(message: WorkMessage) -> Acknowledge | None:
        if not message.payload:
            raise KeyError("empty")
        if message.json() == "late":
            raise TimeoutError("late")
        return Acknowledge(cost=3)

    @app.task(queue="shop")
    def charge(order_id: int) -> Retry | None:
        return Retry(delay_ms=5) if order_id == 0 else None

    assert verdict(app, make_message(json="now", queue="orders")) == Acknowledge(cost=3)
    assert verdict(app, make_message(queue="orders")) == DeadLetter("KeyError: 'empty'")
    assert verdict(app, make_message(json="late", queue="orders")) == Retry(error="TimeoutError: late")
    assert verdict(app, make_message(json="late", queue="orders", attempt=2)) == DeadLetter("TimeoutError: late")
    assert verdict(app, make_message(charge.message(0), queue="shop")) == Retry(delay_ms=5)
    assert verdict(app, make_message(charge.message(1), queue="shop")) == Acknowledge()
    wrong = verdict(app, make_message(json={"order_id": "x"}, queue="shop"))
    assert isinstance(wrong, DeadLetter)
    assert "order_id: Expected `int`" in wrong.error
    with pytest.raises(QueueNotFound, match="it has orders, shop"):
        verdict(app, make_message(queue="nowhere"))


def test_a_handler_can_be_called_with_a_message() -> None:
    """A registered handler is still the function that it was."""
    app = App()

    @app.handler("orders")
    async def order(message: WorkMessage) -> DeadLetter | None:
        await message.set_state(b"seen")
        return DeadLetter("first") if message.attempt == 1 else None

    message = make_message(b"x", queue="orders", fairness_key="acme")
    assert asyncio.run(order(message)) == DeadLetter("first")
    assert (message.state, message.fairness_key) == (b"seen", "acme")


@pytest.mark.parametrize("is_async", [False, True])
def test_tracebacks_begin_in_the_code_of_the_user(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What the worker calls around middleware and tasks is in no dead letter and in no log, in threads and without."""
    app = App()

    @app.middleware
    async def watch(message: WorkMessage, handle: AsyncHandle) -> Answer:
        return await handle(message)

    def fail(to: str) -> None:
        raise ValueError(f"no such address {to}")

    async def fail_later(to: str) -> None:
        fail(to)

    send = app.task(queue="mail", name="send", policy={"max_attempts": 1})(fail_later if is_async else fail)
    with app.testing() as harness:
        send.send_sync("nobody")
        harness.run()
        detail = harness.dead_letters("mail")[0].errors[-1].detail
    assert detail is not None
    places = [line.strip().rpartition(" in ")[2] for line in detail.traceback.splitlines() if line.startswith("  File")]
    assert places == ["watch", *(["fail_later"] if is_async else []), "fail"]
    assert all(place in caplog.text for place in places)
    assert "in _outcome" not in caplog.text
