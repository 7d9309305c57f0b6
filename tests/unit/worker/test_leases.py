"""Leases that are kept, and leases that are lost."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import Disconnected, StoreFailed
from fairlane.verbs.leases import Extend
from fairlane.worker import Counters, ThreadMessage, WorkMessage

from .shop import Shop, in_shop

SHORT_MS = 300


def test_what_is_running_and_what_is_prefetched_is_extended() -> None:
    """A handler that outlasts three leases keeps its message and those that wait behind it."""

    async def test(shop: Shop) -> None:
        attempts: list[int] = []

        @shop.app.handler("jobs", concurrency=1, credit=3, visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            attempts.append(message.attempt)
            if len(attempts) == 1:
                await shop.settled("extend", 10)

        async with shop.app:
            ids = await shop.enqueue(b"one", b"two", b"three")
            await shop.until(lambda: shop.app.counters.handled == 3)
        extended = [request for _, request in shop.tap.calls if isinstance(request, Extend)]
        assert {receipt.id for receipt in extended[3].receipts} == set(ids)
        assert attempts == [1, 1, 1]
        assert shop.app.counters == Counters(handled=3)

    in_shop(test)


async def take_away(shop: Shop, message_id: str) -> None:
    """End the lease of a message as another holder of its receipt would."""
    token = (await shop.client.get("jobs", message_id)).token
    assert token is not None
    held = type("Held", (), {"id": message_id, "queue": "jobs", "token": token})()
    await shop.client.nack(held, intent="dead")


def test_an_async_handler_whose_lease_is_lost_is_cancelled() -> None:
    """It learns of the loss by being cancelled, and nothing is settled."""

    async def test(shop: Shop) -> None:
        began, ended = asyncio.Event(), asyncio.Event()
        seen: list[WorkMessage] = []

        @shop.app.handler("jobs", visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            seen.append(message)
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with shop.app:
            (message_id,) = await shop.enqueue(b"work")
            await began.wait()
            await take_away(shop, message_id)
            await ended.wait()
        assert seen[0].is_lost
        assert shop.app.counters == Counters(lost=1)
        assert [verb for verb, _ in shop.tap.calls if verb in ("ack", "nack")] == ["nack"]

    in_shop(test)


def test_a_sync_handler_whose_lease_is_lost_is_told() -> None:
    """It learns of the loss from its message, and its answer has no effect."""

    async def test(shop: Shop) -> None:
        loop = asyncio.get_running_loop()
        began, ended = asyncio.Event(), asyncio.Event()

        @shop.app.handler("jobs", visibility_ms=SHORT_MS)
        def handle(message: ThreadMessage) -> None:
            loop.call_soon_threadsafe(began.set)
            assert message.wait_lost(20)
            loop.call_soon_threadsafe(ended.set)

        async with shop.app:
            (message_id,) = await shop.enqueue(b"work")
            await began.wait()
            await take_away(shop, message_id)
            await ended.wait()
        assert shop.app.counters == Counters(lost=1)

    in_shop(test)


def test_a_prefetched_message_that_is_lost_is_never_begun() -> None:
    """What another has by now is passed over."""

    async def test(shop: Shop) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()
        begun: list[bytes] = []

        @shop.app.handler("jobs", concurrency=1, credit=3, visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            begun.append(message.payload)
            began.set()
            await go_on.wait()

        async with shop.app:
            ids = await shop.enqueue(b"one", b"two", b"three")
            await began.wait()
            await take_away(shop, ids[1])
            await shop.until(lambda: shop.app.counters.lost == 1)
            go_on.set()
            await shop.until(lambda: shop.app.counters.handled == 2)
        assert begun == [b"one", b"three"]

    in_shop(test)


def test_a_lease_that_could_not_be_extended_in_time_is_taken_for_lost() -> None:
    """When nobody answers for as long as a lease lasts, handlers are stopped, since another may have begun."""

    async def test(shop: Shop) -> None:
        shop.tap.refusals["extend"] = [StoreFailed("The disk is full.")] * 1_000

        @shop.app.handler("jobs", visibility_ms=SHORT_MS)
        async def handle(message: WorkMessage) -> None:
            if message.attempt == 1:
                await asyncio.Event().wait()

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert (shop.app.counters.lost, shop.app.counters.handled) == (1, 1)

    in_shop(test)


@pytest.mark.parametrize("error", [Disconnected("It fell."), StoreFailed("It is full.")])
def test_an_ack_that_was_not_answered_is_repeated(error: Disconnected | StoreFailed) -> None:
    """An ack names its lease, so it is repeated after a lost connection until it is answered."""

    async def test(shop: Shop) -> None:
        shop.tap.refusals["ack"] = [error, error]

        @shop.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            assert message.attempt == 1

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert shop.app.counters == Counters(handled=1)

    in_shop(test)


def test_after_a_lost_connection_it_finds_out_what_is_still_its_own() -> None:
    """Nothing that waits is begun until an extension has told whether it is still ours; then all goes on."""

    async def test(shop: Shop) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()
        begun: list[bytes] = []

        @shop.app.handler("jobs", concurrency=1, credit=3)
        async def handle(message: WorkMessage) -> None:
            begun.append(message.payload)
            began.set()
            await go_on.wait()

        async with shop.app:
            ids = await shop.enqueue(b"one", b"two", b"three")
            await began.wait()
            await take_away(shop, ids[1])
            shop.tap.sinks[0].ended(Disconnected("It fell."))
            go_on.set()
            await shop.until(lambda: shop.app.counters.handled == 2)
        assert begun == [b"one", b"three"]
        assert shop.app.counters == Counters(handled=2, lost=1)
        assert shop.tap.count("extend") == 1

    in_shop(test)
