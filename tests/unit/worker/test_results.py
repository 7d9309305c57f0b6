"""What a handler answers, and what becomes of its message."""

from __future__ import annotations

import pytest

from fairlane.client import NewMessage
from fairlane.errors import InvalidArgument
from fairlane.worker import Ack, Counters, DeadLetter, Defer, Forward, Result, Retry, Worker, WorkMessage

from .shop import Shop, in_shop


@pytest.mark.parametrize("answer", [None, Ack(), Ack(cost=7)])
def test_a_message_whose_handler_returns_nothing_or_an_ack_is_done(answer: Result | None) -> None:
    """None and Ack let a message be done."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> Result | None:
            assert message.payload == b"work"
            return answer

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters == Counters(handled=1)
        view = await shop.client.queue("jobs")
        assert (view.waiting, view.leased, view.dead) == (0, 0, 0)

    in_shop(test)


def test_a_retry_comes_again_with_its_error() -> None:
    """Retry counts as a failure, and the next attempt knows why."""

    async def test(shop: Shop) -> None:
        errors: list[str] = []

        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> Result | None:
            errors.extend(failed.error for failed in message.errors)
            return Retry(delay_ms=1, error="not yet") if message.attempt == 1 else None

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert errors == ["not yet"]
        assert shop.app.counters == Counters(handled=1, retried=1)

    in_shop(test, backoff_ms=60_000)


def test_a_deferred_message_comes_again_without_a_failure() -> None:
    """Defer gives a message back, and no failure is counted."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> Result | None:
            assert message.failures == 0
            return Defer(1) if message.attempt == 1 else None

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters == Counters(handled=1, deferred=1)

    in_shop(test)


def test_a_dead_letter_goes_to_the_dead_letters_at_once() -> None:
    """DeadLetter moves a message at its first attempt, with the reason."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> Result:
            return DeadLetter("nobody can read this")

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("nack")
        (dead,) = await shop.client.peek("jobs.dlq")
        assert dead.errors[-1].error == "nobody can read this"
        assert shop.app.counters == Counters(dead=1)

    in_shop(test)


def test_a_forward_acks_and_enqueues_in_one_commit() -> None:
    """Forward lets a message be done and others be enqueued."""

    async def test(shop: Shop) -> None:
        await shop.client.create_queue("parcels")

        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> Result:
            return Forward({"parcels": [NewMessage(payload=message.payload + b"ed")]})

        async with shop.app:
            await shop.enqueue(b"pack")
            await shop.settled("forward")
        (parcel,) = await shop.client.peek("parcels", with_body=True)
        assert parcel.payload == b"packed"
        assert shop.app.counters == Counters(handled=1)

    in_shop(test)


def test_a_forward_that_is_refused_counts_as_a_failure() -> None:
    """A forward to nowhere acks nothing; the message goes back with the reason."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> Result | None:
            if message.attempt > 1:
                assert "QueueNotFound" in message.errors[-1].error
                return None
            return Forward({"nowhere": [NewMessage()]})

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters == Counters(handled=1, failed=1, retried=1)

    in_shop(test)


def test_what_is_no_result_is_a_failure() -> None:
    """A handler that returns something else has failed, and is told what it may return."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", retries=0)
        async def handle(_: WorkMessage) -> Result | None:
            return True  # type: ignore[return-value] # that is the point

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("nack")
        (dead,) = await shop.client.peek("jobs.dlq")
        assert "A handler returns None" in dead.errors[-1].error

    in_shop(test)


def test_state_is_fetched_and_written() -> None:
    """The workflow state that one attempt writes is there in the next."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", with_state=True)
        async def handle(message: WorkMessage) -> Result | None:
            if message.attempt == 1:
                assert message.state is None
                await message.set_state(b"half")
                return Defer()
            assert message.state == b"half"
            return None

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters.handled == 1

    in_shop(test)


def test_acks_of_one_pass_travel_together() -> None:
    """Many messages whose handlers do not wait are acked in few calls."""

    async def test(shop: Shop) -> None:
        @shop.app.handler("jobs", concurrency=2, credit=100)
        async def handle(_: WorkMessage) -> None:
            return None

        await shop.client.enqueue_many("jobs", [NewMessage() for _ in range(100)])
        async with shop.app:
            await shop.until(lambda: shop.app.counters.handled == 100)
        assert shop.tap.count("ack") < 100

    in_shop(test)


def test_a_worker_without_a_handler_is_refused() -> None:
    """There is nothing to run without a handler."""

    async def test(shop: Shop) -> None:
        with pytest.raises(InvalidArgument, match="no handler"):
            await shop.app.run()

    in_shop(test)


@pytest.mark.parametrize(
    "terms", [{"concurrency": 0}, {"concurrency": 8, "credit": 4}, {"visibility_ms": 0}, {"timeout_s": 0}]
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, int]) -> None:
    """A handler's terms are checked when it is registered."""
    with pytest.raises(InvalidArgument):
        Worker().handler("jobs", **terms)  # type: ignore[arg-type] # wrong values are the point
