"""Firq: asyncio, the HTTP middleware and the roadmap."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlane.asgi import FairGate, FairQueue
from fairlane.errors import WaitTimedOut
from fairlane.scheduler import AsyncScheduler, Backpressure, Kernel, KeyPolicy, Scheduler
from fairlane.scheduler.frontend import FrontEnd
from tests.kit.waiting import PATIENCE_S
from tests.unit.asgi.driver import Clock, FairService, Stage, run

ROOT = Path(__file__).parents[2]


def service(clock: Clock, **options: int) -> FairService:
    """Return an application behind a fair queue with one slot."""
    stage = Stage()
    gate = FairGate(**({"in_flight": 1} | options), clock=clock)  # type: ignore[arg-type]  # numbers all
    return FairService(FairQueue(stage, gate=gate), stage)


def test_175_async_dequeue_does_not_poll() -> None:
    """`AsyncScheduler.dequeue` waits for a task without polling: no time passes before it has one."""
    clock = Clock()

    async def main() -> None:
        scheduler: AsyncScheduler[int] = AsyncScheduler()
        waiter = asyncio.create_task(scheduler.dequeue())
        await asyncio.sleep(0)
        before_ms = clock.now_ms
        await scheduler.enqueue("a", 1)
        assert (await waiter).payload == 1
        assert clock.now_ms == before_ms

    run(clock, main())


def test_176_a_cancelled_dequeue_loses_nothing() -> None:
    """A cancelled `dequeue` has taken nothing, even if a task was on its way."""

    async def main() -> None:
        scheduler: AsyncScheduler[int] = AsyncScheduler()
        waiter = asyncio.create_task(scheduler.dequeue())
        await asyncio.sleep(0)
        scheduler.enqueue_nowait("a", 1)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert waiter.cancelled()
        assert (await scheduler.dequeue()).payload == 1

    asyncio.run(main())


def test_177_a_stream() -> None:
    """`async for` goes over tasks until the scheduler is closed."""

    async def main() -> list[int]:
        scheduler: AsyncScheduler[int] = AsyncScheduler()
        for number in range(3):
            await scheduler.enqueue("a", number)
        scheduler.close(drain=True)
        return [task.payload async for task in scheduler]

    assert asyncio.run(main()) == [0, 1, 2]


def test_178_a_dispatcher_with_limited_concurrency() -> None:
    """`dispatch` runs a handler for each task, and never more at once than `in_flight`."""
    running: list[int] = [0]
    most: list[int] = [0]

    async def handle(_task: object) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1

    async def main() -> None:
        scheduler: AsyncScheduler[int] = AsyncScheduler()
        for number in range(20):
            await scheduler.enqueue("a", number)
        scheduler.close(drain=True)
        await scheduler.dispatch(handle, in_flight=4)

    asyncio.run(main())
    assert most == [4]


def test_179_both_front_ends_share_the_kernel() -> None:
    """The front ends for threads and asyncio add waiting to the same kernel; neither picks."""
    for kind in (Scheduler, AsyncScheduler):
        assert issubclass(kind, FrontEnd)
        assert type(kind()._kernel) is Kernel


def test_180_the_middleware_reads_the_key() -> None:
    """The middleware takes the key from a header, or from a function of the request, such as of its path."""
    clock = Clock()

    async def main() -> None:
        by_header = service(clock)
        await by_header.send_waiting("a1", "a2", "b1")
        assert (by_header.gate.waiting("a"), by_header.gate.waiting("b")) == (1, 1)
        await by_header.drained()
        stage = Stage()
        queue = FairQueue(stage, gate=FairGate(in_flight=1, clock=clock), key=lambda scope: scope["path"])
        by_path = FairService(queue, stage)
        await by_path.send_waiting("x1", "y1")
        assert by_path.gate.waiting("/y1") == 1
        await by_path.drained()

    run(clock, main())


def test_181_the_middleware_refuses_by_backpressure() -> None:
    """A tenant at its limit is answered with 429 and `Retry-After`; a full service with 503."""
    clock = Clock()

    async def main() -> None:
        there = service(clock, key_waiting_max=1, waiting_max=2)
        await there.send_waiting("a0", "a1")
        full_key = await there.send("a2").response()
        await there.send_waiting("b1")
        full = await there.send("c1").response()
        assert (full_key.status, full.status) == (429, 503)
        assert int(full_key.headers["retry-after"]) >= 1
        await there.drained()

    run(clock, main())


def test_182_the_middleware_orders_execution() -> None:
    """Requests run in fair order: a tenant's first request is next, whatever another one has waiting."""
    clock = Clock()

    async def main() -> list[str]:
        there = service(clock)
        await there.send_waiting("n0", *(f"n{number}" for number in range(1, 21)), "q1")
        await there.drained()
        return there.stage.started

    assert run(clock, main()).index("q1") <= 3


def test_183_plug_and_play() -> None:
    """One line puts the middleware in front of an ASGI application; it needs no configuration."""
    clock = Clock()

    async def main() -> int:
        stage = Stage()
        stage.open()
        there = FairService(FairQueue(stage), stage)
        return (await there.send("a1").response()).status

    assert run(clock, main()) == 200


def test_184_the_middleware_measures_queue_time() -> None:
    """The middleware reports waits with p50, p95 and p99, in total and by tenant."""
    clock = Clock()

    async def main() -> None:
        there = service(clock)
        await there.send_waiting("a1", "a2")
        clock.now_ms += 250
        await there.drained()
        stats = there.gate.stats()
        for counts in (stats.total, stats.keys["a"]):
            assert 250_000_000 <= counts.wait.p99_ns <= 250_000_000 * 9 / 8
            assert counts.wait.p50_ns <= counts.wait.p95_ns <= counts.wait.p99_ns

    run(clock, main())


def test_192_drop_oldest() -> None:
    """`DROP_OLDEST` drops the task that has waited longest."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=2, backpressure=Backpressure.DROP_OLDEST)
    for number in range(3):
        scheduler.enqueue("a", number)
    assert [scheduler.dequeue().payload for _ in range(2)] == [1, 2]


def test_193_a_timeout_for_room() -> None:
    """With `WAIT`, a producer waits for room up to a timeout."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1, backpressure=Backpressure.WAIT)
    scheduler.enqueue("a", 1)
    with pytest.raises(WaitTimedOut):
        scheduler.enqueue("a", 2, timeout=0.0)
    with ThreadPoolExecutor(max_workers=1) as pool:
        producer = pool.submit(lambda: scheduler.enqueue("a", 3, timeout=PATIENCE_S))
        assert scheduler.dequeue().payload == 1
        producer.result(PATIENCE_S)
    assert scheduler.dequeue().payload == 3


def test_194_drop_newest() -> None:
    """`DROP_NEWEST` drops the newest waiting task, and takes the new one."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=2, backpressure=Backpressure.DROP_NEWEST)
    for number in range(3):
        scheduler.enqueue("a", number)
    assert [scheduler.dequeue().payload for _ in range(2)] == [0, 2]


def test_195_backpressure_per_tenant() -> None:
    """Each tenant can have a limit and a backpressure policy of its own."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.set_policy("a", KeyPolicy(waiting_max=1, backpressure=Backpressure.DROP_OLDEST))
    scheduler.enqueue("a", 1)
    scheduler.enqueue("a", 2)
    scheduler.enqueue("b", 3)
    scheduler.enqueue("b", 4)
    assert sorted(task.payload for task in scheduler.close()) == [2, 3, 4]


def test_196_weights_and_quanta_per_tenant() -> None:
    """A policy provider gives each tenant a weight and a quantum."""
    scheduler: Scheduler[int] = Scheduler()
    policies = {"a": KeyPolicy(weight=5), "b": KeyPolicy(quantum=3)}
    scheduler.set_policy_provider(policies.get)  # type: ignore[arg-type]  # keys are names here
    for number in range(100):
        for key in "abc":
            scheduler.enqueue(key, number)
    assert "".join(str(scheduler.dequeue().key) for _ in range(18)) == "aaaaabbbc" * 2


def test_197_a_task_can_be_cancelled() -> None:
    """`cancel` removes a task that still waits, once."""
    scheduler: Scheduler[int] = Scheduler()
    task = scheduler.enqueue("a", 1)
    assert (scheduler.cancel(task), scheduler.cancel(task), len(scheduler)) == (True, False, 0)


def test_198_a_tenant_needs_no_shard() -> None:
    """Nothing selects a shard, because there is one kernel: many threads share it without losing order."""
    scheduler: Scheduler[int] = Scheduler()
    started = threading.Barrier(4)

    def produce(tenant: str) -> None:
        started.wait(PATIENCE_S)
        for number in range(100):
            scheduler.enqueue(tenant, number)

    with ThreadPoolExecutor(max_workers=4) as pool:
        for done in [pool.submit(produce, tenant) for tenant in "abcd"]:
            done.result(PATIENCE_S)
    order: dict[object, list[int]] = {}
    for task in scheduler.try_dequeue_many(400):
        order.setdefault(task.key, []).append(task.payload)
    assert all(numbers == list(range(100)) for numbers in order.values())


def test_199_caps_weights_and_throttles_in_the_middleware() -> None:
    """The middleware has caps, weights and throttles, which change live."""
    clock = Clock()

    async def main() -> None:
        stage = Stage()
        gate = FairGate(in_flight=4, clock=clock, wait_timeout_ms=None)
        queue = FairQueue(stage, gate=gate, throttles=lambda scope: [scope["path"][1]])
        there = FairService(queue, stage)
        gate.set_policy("a", KeyPolicy(cap=1))
        gate.throttles.set("c", rate=0, tokens=0)
        await there.send_waiting("a1", "a2", "b1", "c1")
        assert stage.started == ["a1", "b1"]
        gate.clear_policy("a")
        gate.throttles.remove("c")
        await there.started("a1", "b1", "a2", "c1")
        gate.set_policy("b", KeyPolicy(weight=2))
        await there.send_waiting("a3", "a4", "b2", "b3", "b4", "b5")
        await there.drained()
        assert stage.started[4:] == ["a3", "b2", "b3", "a4", "b4", "b5"]

    run(clock, main())


def test_203_a_limit_on_what_is_in_flight() -> None:
    """Firq recommends a semaphore for what is in flight; `dispatch` and caps do it."""
    scheduler: Scheduler[int] = Scheduler(counts_use=True)
    scheduler.set_policy("a", KeyPolicy(cap=1))
    for number in range(2):
        scheduler.enqueue("a", number)
    first = scheduler.dequeue()
    assert scheduler.try_dequeue() is None
    scheduler.done(first)
    assert scheduler.dequeue().payload == 1
