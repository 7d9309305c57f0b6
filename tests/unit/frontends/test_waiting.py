"""Waiting consumers and producers are woken, also by tasks and capacity that come in indirect ways."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import InvalidArgument, WaitTimedOut
from fairlane.scheduler import AsyncScheduler, Backpressure, DepartureReason, KeyPolicy, Scheduler, Task
from tests.unit.frontends.loops import PATIENCE, in_loop, settled


@in_loop
async def test_a_take_that_parks_a_lane_leaves_a_timer_for_the_others() -> None:
    """One consumer finds a throttled task and takes another; the second is still woken when the token comes."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    scheduler.set_throttle("slow", rate=50, burst=1)
    scheduler.enqueue_nowait("z", 0, throttles=["slow"])
    await scheduler.dequeue()
    scheduler.pause("p")
    scheduler.enqueue_nowait(("p", "a"), 1, throttles=["slow"])
    scheduler.enqueue_nowait(("p", "b"), 2)
    consumers = [asyncio.create_task(scheduler.dequeue()) for _ in range(2)]
    await settled()
    scheduler.resume("p")
    assert sorted([(await consumer).payload for consumer in consumers]) == [1, 2]


@in_loop
async def test_capacity_that_its_first_producer_cannot_use_goes_to_the_next() -> None:
    """A producer woken at the global limit, but held back by its own key, passes the wake-up on."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=2, backpressure=Backpressure.WAIT)
    scheduler.set_policy("a", KeyPolicy(waiting_max=1))
    for number in range(2):
        scheduler.enqueue_nowait("b", number)
    producers = {}
    for name, key in (("first a", "a"), ("second a", "a"), ("c", "c")):
        producers[name] = asyncio.create_task(scheduler.enqueue(key, 0))
        await settled()
    for _ in range(2):
        assert scheduler.try_dequeue() is not None
        await settled()
    assert {name: producer.done() for name, producer in producers.items()} == {
        "first a": True,
        "second a": False,
        "c": True,
    }
    producers["second a"].cancel()


@in_loop
async def test_an_expiry_frees_capacity_without_any_consumer() -> None:
    """A waiting producer is woken when a task expires, in an event loop without consumers."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=1)
    await scheduler.enqueue("a", 1, deadline_in_ms=20)
    await scheduler.enqueue("a", 2, timeout=PATIENCE)
    assert scheduler.stats().total.expired == 1


def test_an_expiry_frees_capacity_without_any_consumer_thread() -> None:
    """A waiting producer is woken when a task expires, without any consumer thread."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1, deadline_in_ms=20)
    scheduler.enqueue("a", 2, timeout=PATIENCE)
    assert scheduler.stats().total.expired == 1


@in_loop
async def test_a_handler_cancelled_before_its_first_step_is_done() -> None:
    """When a dispatcher fails in the middle of starting a handler, no cap stays filled."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(counts_use=True)
    for number in range(5):
        scheduler.enqueue_nowait("a", number)

    async def fail(_: Task[int]) -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    def fall_over(_: Task[int], error: Exception) -> None:
        raise RuntimeError("on_error") from error

    with pytest.raises(ExceptionGroup):
        await scheduler.dispatch(fail, in_flight=1, on_error=fall_over)
    assert scheduler.in_use("a") == 0


def test_a_callback_may_enqueue_again_what_was_dropped() -> None:
    """Enqueueing a dropped task again in the callback drops the next one, terminates, and reports each task once."""
    told: list[int] = []

    def put_back(task: Task[int], reason: DepartureReason) -> None:
        told.append(task.payload)
        if reason is DepartureReason.DROPPED and len(told) < 5_000:
            scheduler.enqueue("a", task.payload + 10)

    scheduler: Scheduler[int] = Scheduler(waiting_max=3, backpressure=Backpressure.DROP_OLDEST, on_departure=put_back)
    for number in range(4):
        scheduler.enqueue("a", number)
    assert len(told) == 5_000
    assert len(scheduler) == 3
    assert scheduler.stats().total.waiting == 3


@pytest.mark.parametrize("timeout", [1e10, float("inf")])
def test_very_long_timeouts_and_delays_work(timeout: float) -> None:
    """A task due in three hundred years and an infinite timeout wait like any other."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=2)
    scheduler.enqueue("a", 1, due_in_ms=10**13)
    scheduler.enqueue("a", 2, due_in_ms=10)
    assert scheduler.dequeue(timeout=timeout).payload == 2
    scheduler.enqueue("a", 3, deadline_in_ms=10)
    scheduler.enqueue("a", 4, timeout=timeout)
    with pytest.raises(WaitTimedOut):
        scheduler.enqueue("a", 5, timeout=0.001)


def test_a_task_of_another_scheduler_is_not_done_here() -> None:
    """A task can be marked done only in the scheduler that handed it out."""
    owner: Scheduler[int] = Scheduler(counts_use=True)
    other: Scheduler[int] = Scheduler(counts_use=True)
    owner.enqueue("a", 1)
    task = owner.dequeue()
    with pytest.raises(InvalidArgument):
        other.done(task)
    owner.done(task)
    assert owner.in_use("a") == 0
