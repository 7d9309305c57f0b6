"""Counts and wait times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from fairlane.errors import GlobalFull
from fairlane.scheduler import Scheduler
from fairlane.scheduler.prometheus import SchedulerCollector
from fairlane.scheduler.statistics import Tallies, bound_of, step_of

MS_NS = 1_000_000


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@given(st.integers(min_value=0, max_value=10**15))
def test_the_scale_is_never_more_than_an_eighth_too_high(wait_ns: int) -> None:
    """A wait is reported as at least its true value and at most one eighth more."""
    bound_ns = bound_of(step_of(wait_ns))
    assert wait_ns <= bound_ns <= wait_ns + wait_ns // 8


@given(st.lists(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=50), st.integers(1, 100))
def test_percentiles_bound_the_sorted_waits(waits_ns: list[int], percent: int) -> None:
    """A percentile lies between the wait of that rank and an eighth above it."""
    tallies = Tallies(keys_max=10)
    for wait_ns in waits_ns:
        tallies.count_dequeued("a", wait_ns, 1)
    exact = sorted(waits_ns)[-(-percent * len(waits_ns) // 100) - 1]
    measured = tallies.snapshot(None).total.wait.percentile_ns(percent)
    assert exact <= measured <= exact + exact // 8


def scheduler_with_history(clock: Clock) -> Scheduler[int]:
    """Return a scheduler on which every countable event has happened once."""
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock, waiting_max=4)
    scheduler.enqueue("a", 1, cost=3)
    scheduler.enqueue("a", 2, deadline_in_ms=5)
    cancelled = scheduler.enqueue("b", 3)
    scheduler.enqueue("b", 4)
    try:
        scheduler.enqueue("c", 5)
    except GlobalFull:
        scheduler.cancel(cancelled)
    clock.now_ns = 10 * MS_NS
    while scheduler.try_dequeue() is not None:
        pass
    scheduler.enqueue("a", 6)
    return scheduler


def test_everything_is_counted_by_key_and_in_total() -> None:
    """Each event is counted once, for its key and in the total."""
    stats = scheduler_with_history(Clock()).stats()
    total = stats.total
    assert (total.enqueued, total.dequeued, total.rejected) == (5, 2, 1)
    assert (total.dropped, total.expired, total.cancelled) == (0, 1, 1)
    assert (total.waiting, total.cost, stats.waiting_max) == (1, 4, 4)
    assert (stats.keys["a"].dequeued, stats.keys["a"].cost, stats.keys["a"].expired) == (1, 3, 1)
    assert stats.keys["c"].rejected == 1
    assert total.wait.max_ns == 10 * MS_NS
    assert total.wait.mean_ns == 10 * MS_NS


def test_top_keys_are_ordered_by_the_given_count() -> None:
    """The keys are returned in the order of the given count."""
    stats = scheduler_with_history(Clock()).stats()
    assert [key for key, _ in stats.top_keys(1, by="cost")] == ["a"]
    assert [key for key, _ in stats.top_keys(1, by="rejected")] == ["c"]


def test_keys_are_forgotten_and_the_total_stays() -> None:
    """Beyond the limit the oldest idle keys are forgotten, those with waiting tasks stay, and no count is lost."""
    scheduler: Scheduler[int] = Scheduler(idle_keys_max=10)
    scheduler.enqueue("busy", 0)
    scheduler.pause("busy")
    for number in range(1_000):
        scheduler.enqueue(f"key-{number}", number)
        scheduler.try_dequeue()
    stats = scheduler.stats()
    assert len(stats.keys) <= 10
    assert stats.keys["busy"].waiting == 1
    assert stats.total.dequeued == 1_000


def test_prometheus_series_are_bounded() -> None:
    """The busiest keys have series of their own, with unambiguous names, and all keys are in the totals."""
    clock = Clock()
    scheduler: Scheduler[int] = Scheduler(clock_ns=clock)
    for key, count in ((("a", "b"), 6), ("a/b", 5), ("c", 3), ("d", 2)):
        for number in range(count):
            scheduler.enqueue(key, number)
    clock.now_ns = 3 * MS_NS
    scheduler.try_dequeue_many(14)
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(scheduler, keys_max=2))
    text = generate_latest(registry).decode()
    series = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    by_key = {name: value for name, value in series.items() if name.startswith("fairlane_scheduler_key_dequeued")}
    assert by_key == {
        'fairlane_scheduler_key_dequeued_total{key="a/b"}': "5.0",
        'fairlane_scheduler_key_dequeued_total{key="a\\\\/b"}': "4.0",
    }
    assert series["fairlane_scheduler_dequeued_total"] == "14.0"
    assert series["fairlane_scheduler_waiting"] == "2.0"
    assert series['fairlane_scheduler_wait_seconds_bucket{le="0.001"}'] == "0.0"
    assert series['fairlane_scheduler_wait_seconds_bucket{le="0.005"}'] == "14.0"
    assert series["fairlane_scheduler_wait_seconds_count"] == "14.0"
