"""Tests of the results that a handler can return."""

from __future__ import annotations

import os
import socket

import pytest

from fairlane.client import NewMessage
from fairlane.errors import InvalidArgument
from fairlane.model.message import FailureDetail
from fairlane.worker import (
    Acknowledge,
    Counters,
    DeadLetter,
    Defer,
    ForwardTo,
    HandlerResult,
    Retry,
    Worker,
    WorkMessage,
)

from .bench import WorkerBench, on_bench


@pytest.mark.parametrize("answer", [None, Acknowledge(), Acknowledge(cost=7)])
def test_a_message_whose_handler_returns_nothing_or_an_ack_is_done(answer: HandlerResult | None) -> None:
    """None and Acknowledge acknowledge the message."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            assert message.payload == b"work"
            return answer

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters == Counters(handled=1)
        view = await bench.client.queue("jobs")
        assert (view.waiting, view.leased, view.dead) == (0, 0, 0)

    on_bench(test)


def test_a_retry_comes_again_with_its_error() -> None:
    """Retry counts a failure, and the next attempt has its error."""

    async def test(bench: WorkerBench) -> None:
        errors: list[str] = []

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            errors.extend(failed.error for failed in message.errors)
            return Retry(delay_ms=1, error="not yet") if message.attempt == 1 else None

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert errors == ["not yet"]
        assert bench.app.counters == Counters(handled=1, retried=1)

    on_bench(test, backoff_ms=60_000)


def test_a_failure_keeps_traceback_worker_and_host() -> None:
    """An exception is kept with the place that raised it, and a Retry with its worker; the next attempt has both."""

    async def test(bench: WorkerBench) -> None:
        seen: list[FailureDetail | None] = []

        @bench.app.handler("jobs", owner="w1")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            seen[:] = [failed.detail for failed in message.errors]
            if message.attempt == 1:
                return Retry(delay_ms=1, error="not yet")
            if message.attempt == 2:
                raise ValueError("no such order")
            return None

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        first, second = seen
        assert first == FailureDetail(worker="w1", host=socket.gethostname())
        assert second is not None
        assert (second.worker, second.host) == ("w1", socket.gethostname())
        assert 'raise ValueError("no such order")' in second.traceback
        assert second.traceback.endswith("ValueError: no such order\n")

    on_bench(test, backoff_ms=1)


def test_a_deferred_message_comes_again_without_a_failure() -> None:
    """Defer returns a message without a failure."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            assert message.failures == 0
            return Defer(1) if message.attempt == 1 else None

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters == Counters(handled=1, deferred=1)

    on_bench(test)


def test_a_dead_letter_goes_to_the_dead_letters_at_once() -> None:
    """DeadLetter moves a message at its first attempt, with the reason."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> HandlerResult:
            return DeadLetter("nobody can read this")

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack")
        (dead,) = await bench.client.peek("jobs.dlq")
        assert dead.errors[-1].error == "nobody can read this"
        assert bench.app.counters == Counters(dead=1)

    on_bench(test)


def test_the_last_failure_counts_as_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    """The queue allows two attempts: the first failure is a retry, and the second a dead letter, as the log says."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            raise ValueError("no good")

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack", 2)
        assert bench.app.counters == Counters(failed=2, retried=1, dead=1)

    on_bench(test, max_attempts=2)
    told = [record for record in caplog.records if "was dead-lettered" in record.message]
    assert [record.__dict__["attempt"] for record in told] == [2]


def test_operators_see_which_handler_holds_a_message() -> None:
    """While a handler runs, peek and explain name its worker as the owner of the lease."""

    async def test(bench: WorkerBench) -> None:
        seen: list[str | None] = []

        @bench.app.handler("jobs")
        async def send_mail(message: WorkMessage) -> None:
            (view,) = await bench.client.peek("jobs")
            explained = await bench.client.explain("jobs", message.id)
            seen.extend([view.owner, explained.owner])

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert [f":{os.getpid()}:send_mail" in str(owner) for owner in seen] == [True, True]

    on_bench(test)


def test_a_forward_acks_and_enqueues_in_one_commit() -> None:
    """Forward acknowledges a message and enqueues others."""

    async def test(bench: WorkerBench) -> None:
        await bench.client.create_queue("parcels")

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult:
            return ForwardTo({"parcels": [NewMessage(payload=message.payload + b"ed")]})

        async with bench.app:
            await bench.enqueue(b"pack")
            await bench.settled("forward")
        (parcel,) = await bench.client.peek("parcels", with_body=True)
        assert parcel.payload == b"packed"
        assert bench.app.counters == Counters(handled=1)

    on_bench(test)


def test_a_forward_that_is_refused_counts_as_a_failure() -> None:
    """A forward to a missing queue acknowledges nothing; the message is returned with the error."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> HandlerResult | None:
            if message.attempt > 1:
                assert "QueueNotFound" in message.errors[-1].error
                return None
            return ForwardTo({"nowhere": [NewMessage()]})

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters == Counters(handled=1, failed=1, retried=1)

    on_bench(test)


def test_what_is_no_result_is_a_failure() -> None:
    """Any other result is a failure, and the error lists the valid ones."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", retries=0)
        async def handle(_: WorkMessage) -> HandlerResult | None:
            return True  # type: ignore[return-value] # that is the point

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("nack")
        (dead,) = await bench.client.peek("jobs.dlq")
        assert "A handler must return None" in dead.errors[-1].error

    on_bench(test)


def test_state_is_fetched_and_written() -> None:
    """The next attempt sees the workflow state of the one before."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", with_state=True)
        async def handle(message: WorkMessage) -> HandlerResult | None:
            if message.attempt == 1:
                assert message.state is None
                await message.set_state(b"half")
                return Defer()
            assert message.state == b"half"
            return None

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert bench.app.counters.handled == 1

    on_bench(test)


def test_acks_of_one_pass_travel_together() -> None:
    """Acknowledgements of handlers that await nothing are sent in few requests."""

    async def test(bench: WorkerBench) -> None:
        @bench.app.handler("jobs", concurrency=2, credit=100)
        async def handle(_: WorkMessage) -> None:
            return None

        await bench.client.enqueue_many("jobs", [NewMessage() for _ in range(100)])
        async with bench.app:
            await bench.until(lambda: bench.app.counters.handled == 100)
        assert bench.tap.count("ack") < 100

    on_bench(test)


def test_a_worker_without_a_handler_is_refused() -> None:
    """A worker without a handler does not run."""

    async def test(bench: WorkerBench) -> None:
        with pytest.raises(InvalidArgument, match="nothing to do; register a task"):
            await bench.app.run()

    on_bench(test)


@pytest.mark.parametrize(
    "terms", [{"concurrency": 0}, {"concurrency": 8, "credit": 4}, {"visibility_ms": 0}, {"timeout_s": 0}]
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, int]) -> None:
    """A handler's options are checked when it is registered."""
    with pytest.raises(InvalidArgument):
        Worker().handler("jobs", **terms)  # type: ignore[arg-type] # wrong values are the point
