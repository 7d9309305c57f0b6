"""Tests of consumers that fail and restart."""

from __future__ import annotations

from itertools import islice

import pytest

from fairlane.errors import Forbidden, QueueNotFound, StoreFailed, TooManyWaiters
from fairlane.worker import Restarts, WorkMessage

from .bench import WorkerBench, on_bench


def test_a_consumer_that_could_not_begin_begins_again() -> None:
    """Each refusal is reported to on_error, and messages arrive afterwards."""

    async def test(bench: WorkerBench) -> None:
        told: list[object] = []
        refusals = [StoreFailed("It is full."), TooManyWaiters("So many."), QueueNotFound("No such queue.")]
        bench.tap.refusals["open"] = list(refusals)
        bench.app.on_error(lambda error, message: told.append((error, message)))

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")
        assert told == [(error, None) for error in refusals]

    on_bench(test)


def test_a_caller_without_the_right_is_not_tried_again() -> None:
    """A refused API key ends the worker."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["open"] = [Forbidden("Not this queue.")]

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        with pytest.raises(Forbidden):
            await bench.app.run()
        assert len([verb for verb, _ in bench.tap.calls if verb == "open"]) == 1

    on_bench(test)


def test_a_consumer_gives_up_when_it_failed_as_often_as_it_may() -> None:
    """With failures_max=2, the second failure ends the worker."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["open"] = [QueueNotFound("No such queue.")] * 5
        bench.app.restarts = Restarts(failures_max=2)

        @bench.app.handler("jobs")
        async def handle(_: WorkMessage) -> None:
            return None

        with pytest.raises(QueueNotFound):
            await bench.app.run()
        assert len([verb for verb, _ in bench.tap.calls if verb == "open"]) == 2

    on_bench(test)


def test_restarts_are_immediate_at_first_and_then_slower() -> None:
    """One restart happens at once, then delays double from 250 ms to two seconds, and never get longer."""
    waits_s = list(islice(Restarts(jitter=0).waits_s(), 8))
    assert waits_s == [0, 0.25, 0.5, 1, 2, 2, 2, 2]


def test_the_jitter_of_restarts_shortens_waits_only() -> None:
    """A delay stays within the bounds of its jitter."""
    waits_s = islice(Restarts(jitter=0.5, longest_s=60).waits_s(), 1, 6)
    assert all(full / 2 <= wait <= full for wait, full in zip(waits_s, (0.25, 0.5, 1, 2, 4), strict=True))
