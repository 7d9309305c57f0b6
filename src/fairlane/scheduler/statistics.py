"""Counts and wait times of tasks, in total and by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fairlane.model.histogram import bucket_of, greatest_in
from fairlane.scheduler.item import Key

_LOOK_PAST = 8
STEP_BITS = 3  # eight steps per power of two: a percentile is at most one eighth too high


class Happening(IntEnum):
    """The events that are counted."""

    ENQUEUED = 0
    DEQUEUED = 1
    REJECTED = 2
    DROPPED = 3
    EXPIRED = 4
    CANCELLED = 5


_WAYS_OUT = (Happening.DEQUEUED, Happening.DROPPED, Happening.EXPIRED, Happening.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """The distribution of how long tasks waited before they were handed out.

    Attributes:
        count: how many tasks were handed out.
        sum_ns: the sum of their waits.
        max_ns: the longest wait.
        buckets: counts by upper bound in nanoseconds, ascending, without empty buckets.
    """

    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)

    @property
    def mean_ns(self) -> float:
        """The average wait; 0 if no task has been handed out."""
        return self.sum_ns / self.count if self.count else 0.0

    def percentile_ns(self, percent: float) -> int:
        """Return a wait that at least this percentage did not exceed; at most one eighth above the exact percentile."""
        rank = percent / 100 * self.count
        seen = 0
        for bound_ns, count in self.buckets.items():
            seen += count
            if seen >= rank:
                return min(bound_ns, self.max_ns)
        return self.max_ns

    def count_up_to(self, bound_ns: int) -> int:
        """Return how many tasks waited no longer than this, to the precision of the buckets."""
        return sum(count for upper_ns, count in self.buckets.items() if upper_ns <= bound_ns)

    @property
    def p50_ns(self) -> int:
        """The median wait."""
        return self.percentile_ns(50)

    @property
    def p95_ns(self) -> int:
        """The 95th percentile of the wait."""
        return self.percentile_ns(95)

    @property
    def p99_ns(self) -> int:
        """The 99th percentile of the wait."""
        return self.percentile_ns(99)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The counts of one key, or of all keys together.

    Attributes:
        enqueued: tasks accepted.
        dequeued: tasks handed out.
        rejected: tasks refused because of a limit.
        dropped: tasks accepted, then dropped for a newer one.
        expired: tasks accepted, then removed after their deadline.
        cancelled: tasks accepted, then cancelled by the caller.
        cost: the total cost of the tasks handed out.
        waiting: tasks that wait now.
        wait: how long the tasks handed out had waited.
    """

    enqueued: int
    dequeued: int
    rejected: int
    dropped: int
    expired: int
    cancelled: int
    cost: int
    waiting: int
    wait: WaitTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A snapshot of a scheduler.

    Attributes:
        total: all keys together, including those no longer remembered.
        keys: each remembered key, most recently active last.
        waiting_max: the global limit on waiting tasks.
    """

    total: KeyCounts
    keys: Mapping[Key, KeyCounts]
    waiting_max: int | None

    def top_keys(self, count: int = 10, *, by: str = "dequeued") -> list[tuple[Key, KeyCounts]]:
        """Return the ``count`` keys with the highest value of one count, highest first."""
        return sorted(self.keys.items(), key=lambda entry: getattr(entry[1], by), reverse=True)[:count]


class KeyTally:
    """Growing counts of one key. The number of waiting tasks follows from the others."""

    __slots__ = ("_cost", "_counts", "_max_ns", "_steps", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * len(Happening)
        self._cost = 0
        self._sum_ns = 0
        self._max_ns = 0
        self._steps: dict[int, int] = {}

    def count(self, happening: Happening, number: int = 1) -> None:
        """Add to a count."""
        self._counts[happening] += number

    def count_dequeued(self, wait_ns: int, cost: int, step: int) -> None:
        """Count a task that was handed out after a wait, which falls on this step of the scale."""
        self._counts[1] += 1  # DEQUEUED, by number because this is per task
        self._cost += cost
        self._sum_ns += wait_ns
        if wait_ns > self._max_ns:
            self._max_ns = wait_ns
        self._steps[step] = self._steps.get(step, 0) + 1

    def count_cost(self, cost: int) -> None:
        """Add a cost that became known after the hand-out."""
        self._cost += cost

    def snapshot(self) -> KeyCounts:
        """Return the current counts."""
        return KeyCounts(
            **{happening.name.lower(): self._counts[happening] for happening in Happening},
            cost=self._cost,
            waiting=self.waiting,
            wait=WaitTimes(
                count=self._counts[Happening.DEQUEUED],
                sum_ns=self._sum_ns,
                max_ns=self._max_ns,
                buckets={bound_of(step): self._steps[step] for step in sorted(self._steps)},
            ),
        )

    @property
    def waiting(self) -> int:
        """How many tasks were accepted and are still waiting."""
        return self._counts[Happening.ENQUEUED] - sum(self._counts[way_out] for way_out in _WAYS_OUT)


class Tallies:
    """The counts in total and of a bounded number of keys. Beyond it, the key inactive longest is forgotten."""

    def __init__(self, keys_max: int) -> None:
        self._total = KeyTally()
        self._keys: OrderedDict[Key, KeyTally] = OrderedDict()
        self._keys_max = keys_max

    def count(self, key: Key, happening: Happening) -> None:
        """Count an event of a key."""
        self._total.count(happening)
        self._of(key).count(happening)

    def count_dequeued(self, key: Key, wait_ns: int, cost: int) -> None:
        """Count a task of a key that was handed out after a wait."""
        step = step_of(wait_ns)
        self._total.count_dequeued(wait_ns, cost, step)
        self._of(key).count_dequeued(wait_ns, cost, step)

    def count_cost(self, key: Key, cost: int) -> None:
        """Add a cost of a key that became known after the hand-out."""
        self._total.count_cost(cost)
        self._of(key).count_cost(cost)

    def snapshot(self, waiting_max: int | None) -> Statistics:
        """Return the current counts of all keys."""
        keys = {key: tally.snapshot() for key, tally in self._keys.items()}
        return Statistics(total=self._total.snapshot(), keys=keys, waiting_max=waiting_max)

    def _of(self, key: Key) -> KeyTally:
        tally = self._keys.get(key)
        if tally is None:
            if len(self._keys) >= self._keys_max:
                self._forget_idle()
            tally = self._keys[key] = KeyTally()
        else:
            self._keys.move_to_end(key)
        return tally

    def _forget_idle(self) -> None:
        """Forget the keys inactive longest, but keep those with waiting tasks; looks at a few keys per call."""
        for _ in range(min(_LOOK_PAST, len(self._keys))):
            key, tally = next(iter(self._keys.items()))
            if tally.waiting:
                self._keys.move_to_end(key)
            else:
                del self._keys[key]
            if len(self._keys) < self._keys_max:
                return


def step_of(wait_ns: int) -> int:
    """Return the step of the scale that a wait falls on."""
    return bucket_of(wait_ns, STEP_BITS)


def bound_of(step: int) -> int:
    """Return the longest wait on a step of the scale."""
    return greatest_in(step, STEP_BITS)
