"""Consumers that could not begin, and how they begin again."""

from __future__ import annotations

from itertools import islice

import pytest

from fairlane.errors import Forbidden, QueueNotFound, StoreFailed, TooManyWaiters
from fairlane.worker import Restarts, WorkMessage

from .shop import Shop, in_shop


def test_a_consumer_that_could_not_begin_begins_again() -> None:
    """Each refusal is told to the hook, and after them messages come."""

    async def test(shop: Shop) -> None:
        told: list[object] = []
        refusals = [StoreFailed("It is full."), TooManyWaiters("So many."), QueueNotFound("No such queue.")]
        shop.tap.refusals["open"] = list(refusals)
        shop.app.on_error(lambda error, message: told.append((error, message)))

        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        async with shop.app:
            await shop.enqueue(b"work")
            await shop.settled("ack")
        assert told == [(error, None) for error in refusals]

    in_shop(test)


def test_a_caller_without_the_right_is_not_tried_again() -> None:
    """What no waiting mends ends the worker."""

    async def test(shop: Shop) -> None:
        shop.tap.refusals["open"] = [Forbidden("Not this queue.")]

        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        with pytest.raises(Forbidden):
            await shop.app.run()
        assert len([verb for verb, _ in shop.tap.calls if verb == "open"]) == 1

    in_shop(test)


def test_a_consumer_gives_up_when_it_failed_as_often_as_it_may() -> None:
    """With two failures at most, the second is the last."""

    async def test(shop: Shop) -> None:
        shop.tap.refusals["open"] = [QueueNotFound("No such queue.")] * 5
        shop.app.restarts = Restarts(failures_max=2)

        @shop.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        with pytest.raises(QueueNotFound):
            await shop.app.run()
        assert len([verb for verb, _ in shop.tap.calls if verb == "open"]) == 2

    in_shop(test)


def test_restarts_are_immediate_at_first_and_then_ever_slower() -> None:
    """Three at once, then a quarter of a second, doubled up to five minutes."""
    waits_s = list(islice(Restarts(jitter=0).waits_s(), 15))
    assert waits_s == [0, 0, 0, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_the_jitter_of_restarts_shortens_waits_only() -> None:
    """A wait is never longer than without chance, and never shorter than chance may make it."""
    waits_s = islice(Restarts(jitter=0.5).waits_s(), 3, 8)
    assert all(full / 2 <= wait <= full for wait, full in zip(waits_s, (0.25, 0.5, 1, 2, 4), strict=True))
