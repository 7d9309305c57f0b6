"""The bound on the service of two backlogged keys, whatever happens around them."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy

pytestmark = pytest.mark.no_cover

BACKLOG = 30
OTHERS: list[Key] = ["throttled", "capped", "paused", "brief", "late", ("nested", "x"), ("nested", "y")]

events = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("offer"), st.sampled_from(OTHERS), st.integers(1, 20)),
        st.tuples(st.just("pause"), st.sampled_from(OTHERS)),
        st.tuples(st.just("resume"), st.sampled_from(OTHERS)),
        st.tuples(st.just("cancel"), st.integers(0, 1000)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("release")),
        st.tuples(st.just("settle"), st.sampled_from(OTHERS), st.integers(-10, 10)),
    ),
    min_size=10,
    max_size=80,
)


class Bystanders:
    """Two backlogged keys and a crowd of others on one kernel."""

    def __init__(self, quantum: int, weights: tuple[int, int], costs: dict[str, list[int]]) -> None:
        self.kernel: Kernel[Item] = Kernel(quantum=quantum, counts_use=True, idle_keys_max=2)
        self.quantum = quantum
        self.weights = dict(zip(("i", "j"), weights, strict=True))
        self.costs = costs
        self.now_ms = 0
        self.offered: Counter[str] = Counter()
        self.spent = {"i": 0, "j": 0}
        self.others: list[Item] = []
        self.in_use: list[Item] = []
        self.kernel.throttles.set("slow", rate=100, burst=2, now_ms=0)
        self.kernel.set_policy("capped", KeyPolicy(cap=2, weight=3))
        for key, weight in self.weights.items():
            self.kernel.set_policy(key, KeyPolicy(weight=weight))
            self.top_up(key)

    def top_up(self, key: str) -> None:
        costs = self.costs[key]
        while self.kernel.waiting(key) < BACKLOG:
            self.kernel.offer(Item(key, cost=costs[self.offered[key] % len(costs)]), self.now_ms)
            self.offered[key] += 1

    def take(self, count: int) -> None:
        for _ in range(count):
            for item in self.kernel.take(1, self.now_ms):
                self.in_use.append(item)
                if isinstance(item.key, str) and item.key in self.spent:
                    self.spent[item.key] += item.cost
                    self.top_up(item.key)
            self.check_bound()

    def offer(self, key: Key, cost: int) -> None:
        item = Item(
            key,
            cost=cost,
            throttles=["slow"] if key == "throttled" else [],
            deadline_ms=self.now_ms + 20 if key == "brief" else None,
            due_ms=self.now_ms + 15 if key == "late" else None,
        )
        self.others.append(item)
        self.kernel.offer(item, self.now_ms)

    def apply(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("take", count):
                self.take(count)
            case ("offer", key, cost):
                self.offer(key, cost)
            case ("pause", key):
                self.kernel.pause(key)
            case ("resume", key):
                self.kernel.resume(key)
            case ("cancel", number) if self.others:
                self.kernel.cancel(self.others[number % len(self.others)])
            case ("wait", milliseconds):
                self.now_ms += milliseconds
            case ("release",):
                for item in self.in_use:
                    self.kernel.release(item.key)
                self.in_use = []
            case ("settle", key, difference):
                self.kernel.settle(key, difference)

    def check_bound(self) -> None:
        largest = max(max(costs) for costs in self.costs.values())
        i, j = (Fraction(self.spent[key], self.weights[key]) for key in ("i", "j"))
        slack = sum(Fraction(largest, weight) for weight in self.weights.values())
        assert abs(i - j) <= self.quantum + slack, (self.spent, self.weights)


cost_lists = st.lists(st.integers(1, 50), min_size=1, max_size=5)


@settings(max_examples=250, deadline=None)
@given(
    quantum=st.sampled_from([1, 3, 20, 100]),
    weights=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    costs=st.fixed_dictionaries({"i": cost_lists, "j": cost_lists}),
    program=events,
)
def test_two_backlogged_keys_stay_within_the_bound(
    quantum: int, weights: tuple[int, int], costs: dict[str, list[int]], program: list[tuple[Any, ...]]
) -> None:
    """After every item, |S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j, whatever the others do."""
    crowd = Bystanders(quantum, weights, costs)
    for event in program:
        crowd.apply(event)
    crowd.take(200)


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    backlog=st.integers(20, 200),
    head_start=st.integers(0, 150),
)
def test_a_late_joiner_is_served_within_two_turns_of_the_ring(
    weights: list[int], backlog: int, head_start: int
) -> None:
    """However long the backlog, a new key's first item goes before any other key has had more than two turns."""
    kernel: Kernel[Item] = Kernel()
    for at, weight in enumerate(weights):
        kernel.set_policy(f"old {at}", KeyPolicy(weight=weight))
        kernel.offer_many([Item(f"old {at}") for _ in range(backlog)], 0)
    kernel.take(head_start, 0)
    kernel.offer(Item("new"), 0)
    before: Counter[Key] = Counter()
    while (item := kernel.take(1, 0)[0]).key != "new":
        before[item.key] += 1
    assert all(before[f"old {at}"] <= 2 * weight for at, weight in enumerate(weights))
