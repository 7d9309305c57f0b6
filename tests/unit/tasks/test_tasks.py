"""Tests of tasks: sent, found by name, run, and returned."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlane.client import QueuePolicy
from fairlane.errors import FairlaneError, Forbidden, InvalidArgument, QueueNotFound, WrongEventLoop
from fairlane.model.message import NewMessage
from fairlane.tasks import App
from fairlane.worker import DeadLetter, Retry, ThreadMessage, WorkMessage

from .bench import AppBench, on_app


def test_sync_and_async_tasks_of_one_queue_run() -> None:
    """Each job runs the function that it names, with its arguments, and knows its fairness key."""

    async def test(bench: AppBench) -> None:
        ran: list[object] = []

        @bench.app.task(queue="shop", key="tenant")
        async def charge(message: WorkMessage, order_id: int, tenant: str) -> None:
            ran.append((order_id, tenant, message.fairness_key))

        @bench.app.task(queue="shop")
        def mail(to: str, text: str = "hello") -> None:
            ran.append((to, text))

        async with bench.working():
            handle = await charge.send(order_id=7, tenant="acme")
            await mail.send("someone")
            await bench.until(lambda: bench.app.counters.handled == 2)
        assert sorted(ran, key=str) == [("someone", "hello"), (7, "acme", "acme")]
        assert (handle.queue, handle.task) == ("shop", "charge")

    on_app(test)


def test_a_task_is_still_its_function() -> None:
    """Calling a task runs its function in place, so that tests need no queue."""
    app = App()

    @app.task
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert (double.name, double.queue) == ("double", "default")


def test_a_job_can_be_sent_from_a_thread_of_the_worker() -> None:
    """A sync task sends over the worker's own connection."""

    async def test(bench: AppBench) -> None:
        ran: list[str] = []

        @bench.app.task(queue="shop")
        async def second(name: str) -> None:
            ran.append(name)

        @bench.app.task(queue="shop")
        def first(names: list[str]) -> None:
            second.send_sync(names[0])
            sent = second.send_many_sync([{"name": name} for name in names[1:]])
            assert not any(isinstance(each, FairlaneError) for each in sent)

        async with bench.working():
            await first.send(["a", "b", "c"])
            await bench.until(lambda: bench.app.counters.handled == 4)
        assert sorted(ran) == ["a", "b", "c"]

    on_app(test)


def test_a_sync_call_on_the_event_loop_is_refused() -> None:
    """It would wait for itself; the error says what to call instead."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop")
        async def job() -> None: ...

        async with bench.working():
            with pytest.raises(WrongEventLoop, match=r"await task\.send"):
                job.send_sync()

    on_app(test)


def test_options_become_terms_of_the_message() -> None:
    """Delay, instant, deadline, key and priority are those of the options; the task's own options stay as they are."""
    app = App()

    @app.task(queue="shop", key="tenant", priority="low", throttles=("smtp",))
    def job(tenant: str) -> None: ...

    job.context.now_ms = lambda: 1_000_000
    plain = job.message("acme")
    assert (plain.fairness_key, plain.priority, plain.throttles, plain.delay_ms) == ("acme", "low", ("smtp",), 0)
    other = job.options(delay="1h30m", key=("acme", "eu"), priority="high", deadline=timedelta(hours=2)).message("x")
    assert (other.delay_ms, other.fairness_key, other.priority) == (5_400_000, ("acme", "eu"), "high")
    assert other.deadline_ms == 7_200_000
    later = job.options(at=datetime.fromtimestamp(1_060, UTC)).message("x")
    assert later.delay_ms == 60_000
    assert plain.headers == {"fairlane-task": "job"}


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"delay": 5}, "delay is 5; expected a text with a unit"),
        ({"delay": "5 minutes"}, "delay: Invalid duration"),
        ({"at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is what is refused
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), "delay": "1s"}, "either delay or at"),
        ({"dely": "5s"}, "'dely' is not an option of a job. Did you mean 'delay'"),
        ({"priority": "urgent"}, "priority must be one of high, normal, low, not 'urgent'"),
    ],
)
def test_wrong_options_are_refused_by_name(terms: Any, told: str) -> None:
    """A wrong option is refused when it is given, and the error names it."""
    app = App()

    @app.task
    def job() -> None: ...

    with pytest.raises(InvalidArgument, match=told):
        job.options(**terms)


def test_a_wrong_option_of_a_task_is_refused_by_name() -> None:
    """A misspelt option would else be ignored, and the task would run without the limit that it was to set."""
    app, terms = App(), {"timout_s": 5}
    with pytest.raises(InvalidArgument, match=r"'timout_s' is not an option of a task\. Did you mean 'timeout_s'"):
        app.task(**terms)  # type: ignore[call-overload] # that is what is refused


def test_a_key_may_be_a_function_of_the_arguments() -> None:
    """The function gets all arguments by name, defaults included; a number becomes its text."""
    app = App()

    @app.task(key=lambda customer, region: (region, str(customer)))
    def by_path(customer: int, region: str = "eu") -> None: ...

    @app.task(key="customer")
    def by_number(customer: int = 5) -> None: ...

    assert by_path.message(7).fairness_key == ("eu", "7")
    assert by_number.message().fairness_key == "5"


def test_a_key_of_no_parameter_is_refused() -> None:
    """A misspelt parameter is refused when the task is registered."""
    app = App()
    with pytest.raises(InvalidArgument, match=r"no parameter 'tenat'.*tenant"):

        @app.task(key="tenat")
        def job(tenant: str) -> None: ...


def test_two_tasks_of_one_name_or_policies_that_differ_are_refused() -> None:
    """Names are unique in an app, and the tasks of a queue agree about its policy."""
    app = App()

    @app.task(queue="shop", policy={"max_attempts": 3})
    def job() -> None: ...

    with pytest.raises(InvalidArgument, match="already has a task 'job'"):
        app.task(queue="other", name="job")(lambda: None)
    with pytest.raises(InvalidArgument, match="max_attempts=3 and max_attempts=4"):
        app.task(queue="shop", name="second", policy=QueuePolicy(max_attempts=4))(lambda: None)


def test_a_queue_has_handlers_or_tasks() -> None:
    """Both would compete for the messages of a queue, so the second is refused, whatever comes first."""
    app = App()
    app.task(queue="shop", name="charge")(lambda: None)
    app.handler("mail")(print)
    for register in (app.handler("shop"), app.batch_handler("shop")):
        with pytest.raises(InvalidArgument, match=r"'shop' has tasks \(charge\), so it can't have the handler 'print'"):
            register(print)
    with pytest.raises(InvalidArgument, match="'mail' has a handler, so it can't have the task 'job' as well"):
        app.task(queue="mail", name="job")(lambda: None)
    assert app.queues == ["mail", "shop"]


def test_order_keys_come_from_arguments_or_options() -> None:
    """From a parameter, a function or an option; jobs of one order key run in order, and others pass them."""
    app, ran = App(), list[str]()

    @app.task(queue="accounts", key="tenant", order_key="account", policy={"order": "strict", "backoff_ms": 1_000})
    def update(message: ThreadMessage, tenant: str, account: int, change: str) -> None:
        ran.append(f"{tenant} {account} {change}")
        if message.attempt == 1 and change == "flaky":
            raise ConnectionError("the database is away")

    @app.task(order_key=lambda number, **_: number % 10)
    def by_function(number: int, note: str = "") -> None: ...

    assert by_function.message(17).order_key == "7"
    assert by_function.options(order_key="own").message(17).order_key == "own"
    with app.testing() as jobs:
        for account, change in ((1, "flaky"), (1, "later"), (2, "other")):
            update.send_sync("acme", account, change)
        jobs.run()
    assert ran == ["acme 1 flaky", "acme 2 other", "acme 1 flaky", "acme 1 later"]
    with pytest.raises(InvalidArgument, match=r"no parameter 'acount' for its order key.*account"):

        @app.task(order_key="acount")
        def wrong(account: str) -> None: ...


def test_verdicts_and_exceptions_settle_jobs() -> None:
    """A task may return a verdict; other values acknowledge, and exceptions are retried or not, task by task."""

    async def test(bench: AppBench) -> None:
        attempts: list[str] = []

        @bench.app.task(queue="shop")
        async def verdict(dies: bool) -> Retry | DeadLetter | str:
            attempts.append("verdict")
            return DeadLetter("hopeless") if dies else "a value"

        @bench.app.task(queue="shop", retries=0)
        async def fails() -> None:
            attempts.append("fails")
            raise ValueError("never")

        async with bench.working():
            await verdict.send(dies=True)
            await verdict.send(dies=False)
            await fails.send()
            await bench.until(lambda: bench.app.counters.handled == 1 and bench.app.counters.dead == 2)
        letters = await bench.client.peek("shop.dlq", 10)
        assert sorted(letter.errors[-1].error for letter in letters) == ["ValueError: never", "hopeless"]
        assert sorted(attempts) == ["fails", "verdict", "verdict"]

    on_app(test)


def test_a_job_whose_arguments_do_not_fit_becomes_a_dead_letter() -> None:
    """A retry could not help, so it is not tried again; the error names the argument."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop")
        async def charge(order_id: int) -> None: ...

        async with bench.working():
            await bench.client.enqueue("shop", json={"order_id": "seven"})
            await bench.until(lambda: bench.app.counters.dead == 1)
        (letter,) = await bench.client.peek("shop.dlq")
        assert "order_id: Expected `int`, got `str`" in letter.errors[-1].error

    on_app(test)


def test_an_unknown_task_goes_back_for_another_worker(caplog: pytest.LogCaptureFixture) -> None:
    """The job waits again without a failure, and the log names the task and those that the worker has."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop")
        async def known() -> None: ...

        async with bench.working():
            for _ in range(2):
                await bench.client.enqueue("shop", NewMessage(payload=b"{}", headers={"fairlane-task": "newer"}))
            await bench.until(lambda: bench.app.counters.deferred == 2)
        first, _ = await bench.client.peek("shop")
        assert (first.status, first.failures) == ("delayed", 0)

    with caplog.at_level(logging.WARNING, "fairlane.worker"):
        on_app(test)
    told = "Returned a job of task 'newer' to queue shop for another worker: this worker has known."
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_message_without_a_task_is_for_the_only_one() -> None:
    """A producer in another language need not know the name if the queue has one task."""

    async def test(bench: AppBench) -> None:
        ran: list[int] = []

        @bench.app.task(queue="shop")
        async def charge(order_id: int) -> None:
            ran.append(order_id)

        async with bench.working():
            await bench.client.enqueue("shop", b'{"order_id": 7}')
            await bench.until(lambda: bench.app.counters.handled == 1)
        assert ran == [7]

    on_app(test)


def test_the_first_send_creates_a_missing_queue() -> None:
    """A web process may come before the worker: the queue gets the declared policy."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop", policy=QueuePolicy(max_attempts=2))
        async def charge(order_id: int) -> None: ...

        await charge.send(order_id=7)
        await charge.send_many([{"order_id": 8}])
        view = await bench.client.queue("shop")
        assert (view.waiting, view.policy.max_attempts) == (2, 2)

    on_app(test)


def test_a_sender_that_may_not_create_the_queue_hears_that_it_is_missing() -> None:
    """Without the right to create queues the error is about the queue, not about the right."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop")
        async def charge(order_id: int) -> None: ...

        bench.tap.refusals["ensure_queue"] = [Forbidden("Needs admin.")]
        with pytest.raises(QueueNotFound):
            await charge.send(order_id=7)

    on_app(test)


def test_a_handle_cancels_a_job_that_waits() -> None:
    """A cancelled job leaves its queue."""

    async def test(bench: AppBench) -> None:
        @bench.app.task(queue="shop")
        async def charge(order_id: int) -> None: ...

        handle = await charge.options(delay="1h").send(order_id=7)
        await handle.cancel()
        assert (await bench.client.queue("shop")).waiting == 0

    on_app(test)


def test_a_client_of_one_loop_is_closed_with_it() -> None:
    """An app connects for each event loop that sends, and close ends that connection."""
    app = App("ws://127.0.0.1:9", timeout=0.01)

    @app.task
    async def job() -> None: ...

    async def main() -> None:
        async with app.lifespan():
            with pytest.raises(FairlaneError):
                await job.send()

    asyncio.run(main())
    asyncio.run(main())


def test_a_unique_task_has_one_job_at_a_time() -> None:
    """Jobs with the same argument are one until it is done; another argument, tenant or task is another job."""
    app, ran = App(), []

    @app.task(queue="shop", key="tenant", unique="index")
    def rebuild(index: str, tenant: str) -> None:
        ran.append((index, tenant))

    @app.task(queue="shop", unique=lambda index: index)
    def drop(index: str) -> None:
        ran.append((index, "drop"))

    with app.testing() as jobs:
        first = rebuild.send_sync("a", "acme")
        again = rebuild.send_sync("a", "acme")
        assert (again.id, first.is_repeat, again.is_repeat) == (first.id, False, True)
        assert rebuild.options(unique="a").send_sync("b", "acme").id == first.id
        rebuild.send_sync("b", "acme")
        rebuild.send_sync("a", "bakery")
        drop.send_sync("a")
        drop.send_sync("a")
        jobs.run()
        assert sorted(ran) == [("a", "acme"), ("a", "bakery"), ("a", "drop"), ("b", "acme")]
        assert rebuild.send_sync("a", "acme").id != first.id


def test_a_batch_says_which_jobs_are_known_already() -> None:
    """Of several jobs sent together, those that repeat another have its id, and say so."""
    app = App()

    @app.task(queue="shop", unique="index")
    def rebuild(index: str) -> None: ...

    with app.testing():
        first = rebuild.send_sync("a")
        sent = rebuild.send_many_sync([{"index": index} for index in ("a", "b", "b")])
        handles = [handle for handle in sent if not isinstance(handle, FairlaneError)]
        assert [handle.is_repeat for handle in handles] == [True, False, True]
        assert (handles[0].id, handles[2].id) == (first.id, handles[1].id)


def test_a_unique_argument_must_be_a_parameter() -> None:
    """The error names the task and suggests the parameter."""
    app = App()
    with pytest.raises(InvalidArgument, match=r"no parameter 'indx' for its unique key.*index"):
        app.task(unique="indx")(_unique)


def _unique(index: str) -> None: ...


def test_a_recurring_unique_task_skips_ticks_that_overlap() -> None:
    """A schedule's message has no unique key; its overlap policy does the same."""
    app = App()

    @app.task(queue="shop", every="1m", unique=lambda: "once")
    def sweep() -> None: ...

    (spec,) = app.handlers[0].schedules.values()
    assert (spec.overlap, spec.message.unique_key) == ("skip", None)
