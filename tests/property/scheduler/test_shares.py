"""Shares equal those of a max-min oracle, and the oracle is correct."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, KeyPolicy
from tests.property.scheduler.oracle import Demand, leaf_shares, max_min

pytestmark = pytest.mark.no_cover


def test_the_oracle_splits_by_weight() -> None:
    """Without limits a capacity of 12 goes 2:4:6 to weights 1:2:3."""
    shares = max_min(Fraction(12), {"a": Demand(1), "b": Demand(2), "c": Demand(3)})
    assert shares == {"a": 2, "b": 4, "c": 6}


def test_the_oracle_gives_the_rest_of_a_small_demand_to_the_others() -> None:
    """Of 10, one that can use 1 gets 1, and the others 3 and 6 by their weights."""
    shares = max_min(Fraction(10), {"a": Demand(1, Fraction(1)), "b": Demand(1), "c": Demand(2)})
    assert shares == {"a": 1, "b": 3, "c": 6}


def test_the_oracle_fills_in_several_steps() -> None:
    """Of 10 for demands 2, 3 and unlimited: first the 2 is met, then the 3, and 5 are left."""
    shares = max_min(Fraction(10), {"a": Demand(1, Fraction(2)), "b": Demand(1, Fraction(3)), "c": Demand(1)})
    assert shares == {"a": 2, "b": 3, "c": 5}


def test_the_oracle_leaves_capacity_unused_when_all_demands_are_met() -> None:
    """No key gets more than it can use."""
    assert max_min(Fraction(10), {"a": Demand(1, Fraction(2)), "b": Demand(9, Fraction(3))}) == {"a": 2, "b": 3}


def test_the_oracle_splits_level_by_level() -> None:
    """A key's share is split among its sub-keys, and a group that can use little leaves the rest to its siblings."""
    demands = {
        "a": Demand(1, children={"x": Demand(1), "y": Demand(3)}),
        "b": Demand(1, children={"x": Demand(1, Fraction(1)), "y": Demand(1, Fraction(1))}),
    }
    assert leaf_shares(Fraction(10), demands) == {("a", "x"): 2, ("a", "y"): 6, ("b", "x"): 1, ("b", "y"): 1}


limits = st.none() | st.sampled_from([20, 50, 100, 250])
flat_demands = st.lists(st.tuples(st.integers(1, 10), limits), min_size=2, max_size=6)


def served_per_second(demands: dict[str, Demand], *, capacity: int, seconds: int) -> Counter[tuple[str, ...]]:
    """Serve backlogged keys at a capacity in items per second; throttles limit the leaves."""
    kernel: Kernel[Item] = Kernel()
    leaves: list[tuple[tuple[str, ...], Demand]] = []
    for name, demand in demands.items():
        kernel.set_policy(name, KeyPolicy(weight=demand.weight))
        leaves += [((name, below), child) for below, child in demand.children.items()] or [((name,), demand)]
    for path, demand in leaves:
        kernel.set_policy(path, KeyPolicy(weight=demand.weight))
        throttle = "/".join(path)
        if demand.most is not None:
            kernel.throttles.set(throttle, rate=float(demand.most), burst=10, tokens=0, now_ms=0)
        kernel.offer_many([Item(path, throttles=[throttle]) for _ in range(capacity * seconds)], 0)
    served: Counter[tuple[str, ...]] = Counter()
    each_ms = capacity // 1000
    for now_ms in range(1, 1000 * seconds + 1):
        for item in kernel.take(each_ms, now_ms):
            served[(item.key,) if isinstance(item.key, str) else item.key] += 1
    return served


def assert_shares(demands: dict[str, Demand]) -> None:
    """Assert that every leaf gets its max-min share, within 5 % and a few items."""
    served = served_per_second(demands, capacity=1000, seconds=2)
    for path, share in leaf_shares(Fraction(1000), demands).items():
        assert abs(served[path] - 2 * share) <= share / 10 + 12, (path, served, share)


@settings(max_examples=20, deadline=None)
@given(wanted=flat_demands)
def test_flat_keys_get_their_max_min_shares(wanted: list[tuple[int, int | None]]) -> None:
    """What throttled keys cannot use goes to the others by weight."""
    assert_shares(
        {
            f"key {at}": Demand(weight, None if most is None else Fraction(most))
            for at, (weight, most) in enumerate(wanted)
        }
    )


@settings(max_examples=15, deadline=None)
@given(
    groups=st.lists(flat_demands, min_size=2, max_size=3), weights=st.lists(st.integers(1, 5), min_size=3, max_size=3)
)
def test_nested_keys_get_their_max_min_shares(groups: list[list[tuple[int, int | None]]], weights: list[int]) -> None:
    """A share is split level by level, and what a group cannot use goes to its siblings."""
    assert_shares(
        {
            f"group {at}": Demand(
                weights[at],
                children={
                    f"key {inner}": Demand(weight, None if most is None else Fraction(most))
                    for inner, (weight, most) in enumerate(group)
                },
            )
            for at, group in enumerate(groups)
        }
    )
