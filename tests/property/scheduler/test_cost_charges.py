"""Throttles and rates of keys that charge by cost: like a naive queue, never above the rate, never idle for long."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy
from tests.property.scheduler.model import ExactBucket

pytestmark = pytest.mark.no_cover

rates = st.sampled_from([1, 7, 50, 300])
bursts = st.integers(1, 20)
costs = st.lists(st.integers(1, 30), min_size=1, max_size=30)
steps = st.lists(st.integers(0, 300), min_size=1, max_size=60)
ways = st.sampled_from(["throttle", "rate of a key"])


def charged(rate: int, burst: int, quantum: int, how: str = "throttle") -> Kernel[Item]:
    """Return a kernel with a throttle ``t`` that charges by cost, or with such a rate for every tenant."""
    kernel: Kernel[Item] = Kernel(quantum=quantum)
    if how == "throttle":
        kernel.throttles.set("t", rate=rate, burst=burst, charges_cost=True, now_ms=0)
    else:
        policy = KeyPolicy(rate=rate, burst=burst, charges_cost=True)
        kernel.set_policy_provider(lambda key: policy if isinstance(key, str) else None)
    return kernel


@settings(max_examples=100, deadline=None)
@given(rate=rates, burst=bursts, costs=costs, steps=steps, quantum=st.sampled_from([1, 100]), how=ways)
def test_a_single_key_is_served_like_a_naive_queue(
    rate: int, burst: int, costs: list[int], steps: list[int], quantum: int, how: str
) -> None:
    """For any costs and instants, exactly the items go that a queue with a bucket in fractions lets go."""
    kernel = charged(rate, burst, quantum, how)
    items = [Item("a", cost=cost, throttles=["t"]) for cost in costs]
    kernel.offer_many(items, 0)
    bucket = ExactBucket(Fraction(rate), Fraction(burst), Fraction(burst), 0)
    waiting, now_ms = list(items), 0
    for step in steps:
        now_ms += step
        bucket.move_to(now_ms)
        expected = []
        while waiting and bucket.level >= min(waiting[0].cost, burst):
            bucket.level -= waiting[0].cost
            expected.append(waiting.pop(0))
        assert kernel.take(100, now_ms) == expected
        if waiting:
            missing = min(waiting[0].cost, burst) - bucket.level
            assert kernel.next_event_at() is not None
            assert (kernel.next_event_at() or 0) <= now_ms + -(-missing * 1000 // rate)


@settings(max_examples=100, deadline=None)
@given(
    rate=rates,
    burst=bursts,
    offers=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30)), min_size=1, max_size=60),
    steps=steps,
    how=ways,
)
def test_no_window_exceeds_the_rate_and_every_item_goes(
    rate: int, burst: int, offers: list[tuple[str, int]], steps: list[int], how: str
) -> None:
    """Whatever keys and costs, no window has more than rate * t + burst and one debt, and nothing waits for ever."""
    kernel = charged(rate, burst, 1, how)
    pending = [Item(("tenant", key), cost=cost, throttles=["t"]) for key, cost in offers]
    total = len(pending)
    served: list[tuple[int, int]] = []
    now_ms = 0
    for step in steps:
        now_ms += step
        if pending:
            kernel.offer(pending.pop(), now_ms)
        served += [(now_ms, item.cost) for item in kernel.take(100, now_ms)]
    kernel.offer_many(pending, now_ms)
    while len(served) < total:
        served += [(now_ms, item.cost) for item in kernel.take(100, now_ms)]
        at_ms = kernel.next_event_at()
        assert len(served) == total or (at_ms is not None and at_ms > now_ms)
        now_ms = at_ms or now_ms
    debt = max(0, max(cost for _, cost in offers) - burst)
    for first in range(total):
        spent = 0
        for at_ms, cost in served[first:]:
            spent += cost
            assert spent <= Fraction(rate * (at_ms - served[first][0]), 1000) + burst + debt


def test_keys_get_equal_numbers_of_tokens_whatever_their_items_cost() -> None:
    """Behind one throttle that charges by cost, keys with cheap and with costly items take the same."""
    kernel = charged(100, 10, 1)
    for key, cost in (("cheap", 1), ("dear", 10), ("huge", 40)):
        kernel.offer_many([Item(key, cost=cost, throttles=["t"]) for _ in range(4_000 // cost)], 0)
    spent: dict[Key, int] = defaultdict(int)
    for now_ms in range(60_000):
        for item in kernel.take(10, now_ms):
            spent[item.key] += item.cost
    assert 5_900 <= sum(spent.values()) <= 6_060
    assert max(spent.values()) - min(spent.values()) <= 100
