"""The front end for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from fairlane.errors import Closed, GlobalFull, InvalidArgument, WaitTimedOut
from fairlane.scheduler import AsyncScheduler, Backpressure, KeyPolicy, Task
from tests.unit.frontends.loops import PATIENCE, in_loop, settled


@in_loop
async def test_tasks_of_two_keys_alternate() -> None:
    """Two keys with work waiting are served in turn."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    for key in ("a", "b"):
        for number in range(2):
            await scheduler.enqueue(key, number)
    order = [await scheduler.dequeue() for _ in range(4)]
    assert [(task.key, task.payload) for task in order] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@in_loop
async def test_consumers_are_served_in_the_order_they_came() -> None:
    """Waiting consumers get tasks first come first served."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    served: list[str] = []

    async def consume(name: str) -> None:
        await scheduler.dequeue()
        served.append(name)

    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(consume(name))
        await settled()
        for number in range(3):
            await scheduler.enqueue("a", number)
    assert served == ["first", "second", "third"]


@in_loop
async def test_a_cancelled_consumer_loses_nothing() -> None:
    """A consumer cancelled at the very moment it is woken leaves its task to the next one."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    unlucky = asyncio.create_task(scheduler.dequeue())
    lucky = asyncio.create_task(scheduler.dequeue())
    await settled()
    await scheduler.enqueue("a", 1)  # wakes the consumer to be cancelled, which has not run yet
    unlucky.cancel()
    assert (await lucky).payload == 1
    with pytest.raises(asyncio.CancelledError):
        await unlucky
    assert scheduler.stats().total.dequeued == 1


@in_loop
async def test_cancelling_at_random_loses_nothing() -> None:
    """When consumers are cancelled under load, another consumer gets every task."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    seen: list[int] = []

    async def consume() -> None:
        async for task in scheduler:
            seen.append(task.payload)
            await asyncio.sleep(0)

    consumers = [asyncio.create_task(consume()) for _ in range(8)]
    for number in range(2_000):
        await scheduler.enqueue(f"key-{number % 5}", number)
        if number % 10 == 0:
            consumers[number % 8].cancel()
            consumers[number % 8] = asyncio.create_task(consume())
            await asyncio.sleep(0)
    scheduler.close(drain=True)
    await asyncio.gather(*consumers)
    assert sorted(seen) == list(range(2_000))


@in_loop
async def test_a_producer_waits_for_capacity() -> None:
    """With the policy to wait, producers continue one by one as capacity becomes free, in the order they came."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    await scheduler.enqueue("a", 0)
    producers = [asyncio.create_task(scheduler.enqueue("a", number)) for number in (1, 2)]
    await settled()
    assert len(scheduler) == 1
    assert [(await scheduler.dequeue()).payload for _ in range(3)] == [0, 1, 2]
    await asyncio.gather(*producers)


@in_loop
async def test_a_cancelled_producer_passes_its_capacity_on() -> None:
    """A producer cancelled at the moment it is woken leaves the free capacity to the next."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    await scheduler.enqueue("a", 0)
    unlucky, lucky = (asyncio.create_task(scheduler.enqueue("a", number)) for number in (1, 2))
    await settled()
    await scheduler.dequeue()
    unlucky.cancel()
    assert (await lucky).payload == 2
    assert [task.payload for task in scheduler.try_dequeue_many(5)] == [2]


@in_loop
async def test_timeouts_on_both_sides() -> None:
    """Producer and consumer give up in time, and nothing has changed."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=1)
    with pytest.raises(WaitTimedOut):
        await scheduler.dequeue(timeout=0.01)
    await scheduler.enqueue("a", 1)
    with pytest.raises(WaitTimedOut) as caught:
        await scheduler.enqueue("a", 2, timeout=0.01)
    assert isinstance(caught.value.__cause__, GlobalFull)
    with pytest.raises(GlobalFull):
        scheduler.enqueue_nowait("a", 2)
    assert len(scheduler) == 1


@in_loop
async def test_tokens_and_due_times_wake_a_consumer() -> None:
    """Throttled and delayed tasks are handed out when their time comes, the throttled ones in order."""
    scheduler: AsyncScheduler[str] = AsyncScheduler()
    scheduler.set_throttle("api", rate=100, burst=1)
    await scheduler.enqueue("a", "delayed", due_in_ms=35)
    for name in ("first token", "second token", "third token"):
        await scheduler.enqueue("b", name, throttles=["api"])
    order = [(await scheduler.dequeue()).payload for _ in range(4)]
    order.remove("delayed")
    assert order == ["first token", "second token", "third token"]


@in_loop
async def test_a_removed_throttle_wakes_a_consumer() -> None:
    """Removing a throttle frees the tasks it held back at once."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    scheduler.set_throttle("api", rate=0, burst=1)
    for number in range(2):
        await scheduler.enqueue("a", number, throttles=["api"])
    assert (await scheduler.dequeue()).payload == 0
    waiting = asyncio.create_task(scheduler.dequeue())
    await settled()
    assert not waiting.done()
    assert scheduler.remove_throttle("api")
    assert (await waiting).payload == 1


@in_loop
async def test_close_ends_every_wait() -> None:
    """Waiting consumers and producers get an error."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    consumer = asyncio.create_task(scheduler.dequeue())
    await settled()
    scheduler.pause("a")
    await scheduler.enqueue("a", 1)
    producer = asyncio.create_task(scheduler.enqueue("a", 2))
    await settled()
    assert [task.payload for task in scheduler.close()] == [1]
    for waiting in (consumer, producer):
        with pytest.raises(Closed):
            await waiting


@in_loop
async def test_dispatch_keeps_to_its_limit_and_to_the_turns() -> None:
    """Never more than the limit run at once, tasks start in the order of their turns, and the drain ends it."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    running = most = 0
    started: list[tuple[object, int]] = []

    async def handle(task: Task[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        started.append((task.key, task.payload))
        await settled()
        running -= 1

    for key in ("a", "b"):
        for number in range(10):
            await scheduler.enqueue(key, number)
    scheduler.close(drain=True)
    await scheduler.dispatch(handle, in_flight=3)
    assert most == 3
    assert started == [(key, number) for number in range(10) for key in ("a", "b")]


@in_loop
async def test_dispatch_takes_a_task_only_when_it_can_run() -> None:
    """While all slots are taken the next task still waits, so that a later but more entitled one can go first."""
    scheduler: AsyncScheduler[str] = AsyncScheduler()
    gate = asyncio.Event()
    started: list[str] = []

    async def handle(task: Task[str]) -> None:
        started.append(task.payload)
        await gate.wait()

    for number in range(3):
        await scheduler.enqueue("noisy", f"noisy {number}")
    dispatcher = asyncio.create_task(scheduler.dispatch(handle, in_flight=1))
    await settled()
    await scheduler.enqueue("quiet", "quiet")
    scheduler.close(drain=True)
    gate.set()
    await dispatcher
    assert started == ["noisy 0", "noisy 1", "quiet", "noisy 2"]


@in_loop
async def test_a_failing_handler_is_reported_and_frees_its_slot() -> None:
    """A handler that raises keeps neither its slot nor its key's cap."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(counts_use=True)
    scheduler.set_policy("a", KeyPolicy(cap=1))
    errors: list[tuple[int, str]] = []
    handled: list[int] = []

    async def handle(task: Task[int]) -> None:
        if task.payload == 0:
            raise RuntimeError("broken")
        handled.append(task.payload)

    for number in range(3):
        await scheduler.enqueue("a", number)
    scheduler.close(drain=True)
    await scheduler.dispatch(
        handle, in_flight=1, on_error=lambda task, error: errors.append((task.payload, str(error)))
    )
    assert errors == [(0, "broken")]
    assert handled == [1, 2]
    assert scheduler.in_use("a") == 0


@in_loop
async def test_errors_reach_the_loop_by_default() -> None:
    """Without ``on_error`` a handler's exception goes to the event loop's exception handler."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def handle(task: Task[int]) -> None:
        raise RuntimeError(f"broken {task.payload}")

    await scheduler.enqueue("a", 7)
    scheduler.close(drain=True)
    await scheduler.dispatch(handle, in_flight=1)
    assert [str(context["exception"]) for context in reported] == ["broken 7"]


@in_loop
async def test_a_cancelled_dispatcher_leaves_the_rest_waiting() -> None:
    """Cancelling a dispatcher cancels its handlers, frees their caps, and takes no other task."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(counts_use=True)
    gate = asyncio.Event()

    async def handle(_: Task[int]) -> None:
        await gate.wait()

    for number in range(5):
        await scheduler.enqueue("a", number)
    dispatcher = asyncio.create_task(scheduler.dispatch(handle, in_flight=2))
    await settled()
    dispatcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dispatcher
    assert len(scheduler) == 3
    assert scheduler.in_use("a") == 0


@in_loop
async def test_a_dispatcher_needs_a_slot() -> None:
    """An ``in_flight`` below 1 is refused."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()

    async def handle(_: Task[int]) -> None: ...

    with pytest.raises(InvalidArgument):
        await scheduler.dispatch(handle, in_flight=0)


@in_loop
async def test_many_producers_and_dispatchers() -> None:
    """Under load with limits, caps and throttles every task is handled once."""
    scheduler: AsyncScheduler[int] = AsyncScheduler(
        waiting_max=20, backpressure=Backpressure.WAIT, counts_use=True, idle_keys_max=3
    )
    scheduler.set_policy_provider(lambda key: KeyPolicy(cap=2, weight=len(str(key))))
    scheduler.set_throttle("api", rate=50_000, burst=5)
    handled: list[int] = []

    async def handle(task: Task[int]) -> None:
        await asyncio.sleep(0)
        handled.append(task.payload)

    async def produce(first: int) -> None:
        for number in range(first, first + 500):
            await scheduler.enqueue(f"key-{number % 11}", number, throttles=["api"] if number % 2 else ())

    async def all_produced(producers: list[Awaitable[None]]) -> None:
        await asyncio.gather(*producers)
        scheduler.close(drain=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(scheduler.dispatch(handle, in_flight=4))
        group.create_task(all_produced([produce(first * 500) for first in range(4)]))
    assert sorted(handled) == list(range(2_000))


def test_a_scheduler_may_outlive_its_loop() -> None:
    """A scheduler that waited for a due time in one event loop does so again in the next."""
    scheduler: AsyncScheduler[int] = AsyncScheduler()

    async def give_up() -> None:
        scheduler.enqueue_nowait("a", 1, due_in_ms=40)
        with pytest.raises(WaitTimedOut):
            await scheduler.dequeue(timeout=0.005)

    async def wait() -> int:
        return (await scheduler.dequeue(timeout=PATIENCE)).payload

    asyncio.run(give_up())
    assert asyncio.run(wait()) == 1
