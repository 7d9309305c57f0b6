"""Firq: the scheduler in the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fairlane.errors import Closed, GlobalFull, KeyFull
from fairlane.scheduler import Backpressure, DepartureReason, Item, Kernel, KeyPolicy, Scheduler
from tests.kit.waiting import PATIENCE_S
from tests.unit.scheduler.workload import offer, take_keys


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, ms: int) -> None:
        self.now_ns += ms * 1_000_000


def in_threads(calls: list[Callable[[], object]]) -> list[Future[object]]:
    """Run calls in threads of their own."""
    pool = ThreadPoolExecutor(max_workers=len(calls))
    futures = [pool.submit(call) for call in calls]
    pool.shutdown(wait=False)
    return futures


def waiting_threads(scheduler: Scheduler[int], count: int) -> list[Future[object]]:
    """Return threads that wait for a task, once all of them do."""
    futures = in_threads([scheduler.dequeue] * count)
    while scheduler._idle_consumers < count:
        threading.Event().wait(0.001)
    return futures


def test_131_it_is_embedded() -> None:
    """The scheduler runs in the process, without a server."""
    scheduler: Scheduler[str] = Scheduler()
    scheduler.enqueue("tenant", "work")
    assert scheduler.dequeue().payload == "work"


def test_132_the_core_needs_no_runtime() -> None:
    """`fairlane.scheduler` imports nothing but the standard library."""
    code = (
        "import sys, fairlane.scheduler;"
        "print([n for n in sys.modules if '.' not in n and n not in sys.stdlib_module_names and n[0] != '_'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['fairlane']"


def test_133_enqueue() -> None:
    """`enqueue(tenant, task)` adds a task."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    assert (len(scheduler), scheduler.waiting("a")) == (1, 1)


def test_134_results_are_exceptions() -> None:
    """A refused task raises `KeyFull`, `GlobalFull` or `Closed` instead of returning an `EnqueueResult`."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=2, key_waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(KeyFull):
        scheduler.enqueue("a", 2)
    scheduler.enqueue("b", 1)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("c", 1)
    scheduler.close()
    with pytest.raises(Closed):
        scheduler.enqueue("d", 1)


def test_135_try_dequeue_does_not_block() -> None:
    """`try_dequeue` returns None if there is nothing."""
    scheduler: Scheduler[int] = Scheduler()
    assert scheduler.try_dequeue() is None


def test_136_dequeue_blocks_without_polling() -> None:
    """`dequeue` sleeps until a task is there: without a task and a timer it waits without a timeout."""
    scheduler: Scheduler[int] = Scheduler()
    (waiter,) = waiting_threads(scheduler, 1)
    assert scheduler._watched_ms is None
    task = scheduler.enqueue("a", 1)
    assert waiter.result(PATIENCE_S) is task


def test_137_dequeue_says_that_it_is_closed() -> None:
    """`dequeue` and `try_dequeue` raise `Closed` once the scheduler is closed."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.close()
    for call in (scheduler.dequeue, scheduler.try_dequeue):
        with pytest.raises(Closed):
            call()


def test_138_stats() -> None:
    """`stats` returns counts and wait times."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    scheduler.dequeue()
    assert (scheduler.stats().total.enqueued, scheduler.stats().total.dequeued) == (1, 1)


def test_139_close_wakes_the_blocked() -> None:
    """`close` wakes all consumers that wait."""
    scheduler: Scheduler[int] = Scheduler()
    waiters = waiting_threads(scheduler, 3)
    scheduler.close()
    assert [type(waiter.exception(PATIENCE_S)) for waiter in waiters] == [Closed] * 3


def test_140_close_immediately() -> None:
    """`close` returns the tasks that were left."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(3):
        scheduler.enqueue("a", number)
    assert [task.payload for task in scheduler.close()] == [0, 1, 2]


def test_141_close_and_drain() -> None:
    """`close(drain=True)` takes nothing new, and hands out what is left."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(3):
        scheduler.enqueue("a", number)
    scheduler.close(drain=True)
    with pytest.raises(Closed):
        scheduler.enqueue("a", 3)
    assert [task.payload for task in scheduler] == [0, 1, 2]


def test_142_there_are_no_shards() -> None:
    """There are no shards: under Python's global lock they would add no speed, and they would cost fairness."""
    with pytest.raises(TypeError):
        Scheduler(shards=4)  # type: ignore[call-arg]  # the point of the test


def test_143_a_global_limit() -> None:
    """`waiting_max` limits all waiting tasks; 10,000 by default."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(10_000):
        scheduler.enqueue(str(number % 3), number)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("a", 1)


def test_144_a_limit_per_tenant() -> None:
    """`key_waiting_max` limits the waiting tasks of one tenant."""
    scheduler: Scheduler[int] = Scheduler(key_waiting_max=2)
    for number in range(2):
        scheduler.enqueue("a", number)
        scheduler.enqueue("b", number)
    with pytest.raises(KeyFull):
        scheduler.enqueue("a", 2)


def test_145_a_quantum() -> None:
    """`quantum` is the deficit that one turn adds."""
    scheduler: Scheduler[int] = Scheduler(quantum=2)
    for number in range(4):
        scheduler.enqueue("a", number)
        scheduler.enqueue("b", number)
    assert [scheduler.dequeue().key for _ in range(8)] == ["a", "a", "b", "b", "a", "a", "b", "b"]


def test_146_the_backpressure_reject() -> None:
    """`REJECT`, the default, refuses a task at a limit."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("a", 2)
    assert len(scheduler) == 1


def test_147_refused_at_the_global_limit() -> None:
    """The error at the global limit names the limit."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(GlobalFull, match="1"):
        scheduler.enqueue("b", 1)


def test_148_refused_at_the_tenants_limit() -> None:
    """The error at a tenant's limit names the tenant."""
    scheduler: Scheduler[int] = Scheduler(key_waiting_max=1)
    scheduler.enqueue("acme", 1)
    with pytest.raises(KeyFull, match="acme"):
        scheduler.enqueue("acme", 2)


def test_149_the_global_limit_is_strict() -> None:
    """With eight threads at once, exactly as many tasks are accepted as the limit allows."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1_000)

    def produce() -> int:
        accepted = 0
        for number in range(250):
            try:
                scheduler.enqueue(str(number % 5), number)
            except GlobalFull:
                continue
            accepted += 1
        return accepted

    counts = [future.result(PATIENCE_S) for future in in_threads([produce] * 8)]
    assert sum(count for count in counts if isinstance(count, int)) == 1_000


def test_150_expired_tasks_are_dropped_at_dequeue() -> None:
    """A task whose deadline has passed is dropped instead of handed out."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    scheduler.enqueue("a", 1, deadline_in_ms=100)
    scheduler.enqueue("a", 2)
    clock.advance_ms(101)
    assert scheduler.dequeue().payload == 2


def test_152_an_expiry_is_counted() -> None:
    """There is no result "expired": expiries are counted, and `on_departure` is called with each."""
    clock = ManualClock()
    gone: list[tuple[int, DepartureReason]] = []
    scheduler: Scheduler[int] = Scheduler(
        clock_ns=clock, on_departure=lambda task, reason: gone.append((task.payload, reason))
    )
    scheduler.enqueue("a", 7, deadline_in_ms=100)
    clock.advance_ms(101)
    assert scheduler.try_dequeue() is None
    assert (scheduler.stats().total.expired, gone) == (1, [(7, DepartureReason.EXPIRED)])


def test_153_a_deadline_is_inclusive() -> None:
    """A task expires after its deadline: at the deadline itself it is still handed out."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    scheduler.enqueue("a", 1, deadline_in_ms=100)
    clock.advance_ms(100)
    assert scheduler.try_dequeue() is not None


def test_154_all_expired_tasks_are_cleared() -> None:
    """One call clears all expired tasks; they leave room, and the counts fall."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock, waiting_max=1_000)
    for number in range(1_000):
        scheduler.enqueue("a", number, deadline_in_ms=10)
    clock.advance_ms(11)
    scheduler.enqueue("a", 1)
    assert (len(scheduler), scheduler.stats().total.expired) == (1, 1_000)


def test_155_a_task_has_its_payload() -> None:
    """`task.payload` is the object that the producer passed."""
    work = object()
    scheduler: Scheduler[object] = Scheduler()
    scheduler.enqueue("a", work)
    assert scheduler.dequeue().payload is work


def test_156_a_task_knows_when_it_was_enqueued() -> None:
    """`task.enqueued_ns` is when it was enqueued."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    assert scheduler.enqueue("a", 1).enqueued_ns == clock.now_ns


def test_157_a_task_has_its_deadline() -> None:
    """`task.deadline_ms` is its deadline."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    assert scheduler.enqueue("a", 1, deadline_in_ms=100).deadline_ms == clock.now_ns // 1_000_000 + 100


def test_158_a_task_has_a_cost() -> None:
    """Shares are shares of cost: tasks of cost 10 get a tenth of the tasks of cost 1."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "dear", 100, cost=10)
    offer(kernel, "cheap", 1_000)
    assert Counter(take_keys(kernel, 550)) == {"cheap": 500, "dear": 50}


def test_159_a_cost_above_the_quantum_accumulates() -> None:
    """A task that costs more than a quantum is served once its key has saved enough."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "dear", cost=100)
    offer(kernel, "cheap", 200)
    assert take_keys(kernel, 201).index("dear") in (98, 99, 100)


def test_160_huge_costs_do_not_spin() -> None:
    """A task that costs a billion quanta is handed out by arithmetic, not by a billion rounds."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", cost=10**9)
    offer(kernel, "b", cost=10**9)
    assert take_keys(kernel, 2) == ["a", "b"]


def test_161_nobody_starves() -> None:
    """Each of 100 tenants is served within 100 tasks, however many tasks others have."""
    kernel: Kernel[Item] = Kernel()
    for tenant in range(100):
        offer(kernel, str(tenant), 1 + 50 * (tenant % 3))
    assert len(set(take_keys(kernel, 100))) == 100


def test_162_a_hot_tenant_does_not_monopolise() -> None:
    """A tenant with 10,000 tasks is served every other time beside one with 10."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "hot", 10_000)
    offer(kernel, "cold", 10)
    assert Counter(take_keys(kernel, 20)) == {"hot": 10, "cold": 10}


def test_163_a_quantum_above_the_cost_keeps_shares() -> None:
    """Weights hold with a quantum above the cost: 5 to 1 is exact at a quantum of 100."""
    kernel: Kernel[Item] = Kernel(quantum=100)
    kernel.set_policy("a", KeyPolicy(weight=5))
    offer(kernel, "a", 2_000)
    offer(kernel, "b", 2_000)
    assert Counter(take_keys(kernel, 1_200)) == {"a": 1_000, "b": 200}


def test_164_tenant_keys() -> None:
    """A key is a text, or a path of up to eight such as `(tenant, route)`, which is fair on each level."""
    kernel: Kernel[Item] = Kernel()
    for route in ("x", "y", "z"):
        offer(kernel, ("many", route), 10)
    offer(kernel, ("one", "x"), 10)
    assert Counter(key[0] for key in take_keys(kernel, 12)) == {"many": 6, "one": 6}


def test_165_the_metric_enqueued() -> None:
    """`enqueued` counts accepted tasks, in total and by tenant."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    scheduler.enqueue("b", 1)
    assert (scheduler.stats().total.enqueued, scheduler.stats().keys["a"].enqueued) == (2, 1)


def test_166_the_metric_dequeued() -> None:
    """`dequeued` counts tasks that were handed out."""
    scheduler: Scheduler[int] = Scheduler()
    scheduler.enqueue("a", 1)
    scheduler.dequeue()
    assert scheduler.stats().total.dequeued == 1


def test_167_refused_tasks_are_counted_as_rejected() -> None:
    """Refused tasks are `rejected`; `dropped` counts tasks that made room for others."""
    scheduler: Scheduler[int] = Scheduler(waiting_max=1)
    scheduler.enqueue("a", 1)
    with pytest.raises(GlobalFull):
        scheduler.enqueue("a", 2)
    assert (scheduler.stats().total.rejected, scheduler.stats().total.dropped) == (1, 0)
    dropping: Scheduler[int] = Scheduler(waiting_max=1, backpressure=Backpressure.DROP_OLDEST)
    for number in range(2):
        dropping.enqueue("a", number)
    assert (dropping.stats().total.rejected, dropping.stats().total.dropped) == (0, 1)


def test_168_the_metric_expired() -> None:
    """`expired` counts tasks whose deadline passed."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    scheduler.enqueue("a", 1, deadline_in_ms=1)
    clock.advance_ms(2)
    scheduler.try_dequeue()
    assert scheduler.stats().total.expired == 1


def test_169_the_length_is_exact() -> None:
    """`len(scheduler)` and `stats().waiting` are exact, not estimates."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(7):
        scheduler.enqueue(str(number), number)
    assert (len(scheduler), scheduler.stats().total.waiting) == (7, 7)


def test_170_queue_time_has_sum_and_count() -> None:
    """`stats().wait` has the sum and the number of waits."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    scheduler.enqueue("a", 1)
    scheduler.enqueue("a", 2)
    clock.advance_ms(5)
    scheduler.dequeue()
    scheduler.dequeue()
    assert (scheduler.stats().total.wait.count, scheduler.stats().total.wait.sum_ns) == (2, 10_000_000)


def test_171_percentiles() -> None:
    """Waits have percentiles such as p50 and p99, in total and by tenant, at most one eighth too high."""
    clock = ManualClock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    for number in range(100):
        scheduler.enqueue("a", number)
    for _ in range(100):
        clock.advance_ms(1)
        scheduler.dequeue()
    for wait in (scheduler.stats().total.wait, scheduler.stats().keys["a"].wait):
        assert 99_000_000 <= wait.p99_ns <= 99_000_000 * 9 / 8
        assert 50_000_000 <= wait.p50_ns <= 50_000_000 * 9 / 8


def test_172_a_tenant_is_first_in_first_out() -> None:
    """Tenants take turns, and each tenant's tasks are first in, first out."""
    scheduler: Scheduler[int] = Scheduler()
    for number in range(3):
        scheduler.enqueue("a", number)
        scheduler.enqueue("b", number)
    assert [scheduler.dequeue().payload for _ in range(6)] == [0, 0, 1, 1, 2, 2]


def test_173_an_empty_tenant_leaves_the_ring() -> None:
    """A tenant without tasks takes no turns."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 1)
    offer(kernel, "b", 3)
    assert take_keys(kernel, 9) == ["a", "b", "b", "b"]


def test_174_no_wake_up_is_lost() -> None:
    """Four threads hand over 5,000 tasks, and all of them arrive."""
    scheduler: Scheduler[int] = Scheduler()
    consumers = in_threads([lambda: [task.payload for task in scheduler]] * 4)
    for number in range(5_000):
        scheduler.enqueue(str(number % 7), number)
    scheduler.close(drain=True)
    lists = [consumer.result(PATIENCE_S) for consumer in consumers]
    assert sorted(number for each in lists if isinstance(each, list) for number in each) == list(range(5_000))
