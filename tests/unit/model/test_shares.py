"""What weights entitle keys to, in numbers worked out by hand."""

from __future__ import annotations

from math import inf

import pytest

from fairlane.model.message import Key
from fairlane.model.shares import entitlements, jain_index


def even(_: object) -> int:
    """Return the same weight for all keys."""
    return 1


def test_what_a_modest_key_leaves_goes_to_those_that_want_more() -> None:
    """Of a hundred, two keys that wanted 10 each have them, and two that wanted everything share the rest by weight."""
    wanted: dict[Key, float] = {"a": 10, "b": 10, "greedy": 1_000, "starved": 1_000}
    shares = entitlements(100, wanted, lambda key: 3 if key == "starved" else 1)
    assert shares == pytest.approx({"a": 10, "b": 10, "greedy": 20, "starved": 60})


def test_a_tenant_gains_nothing_by_many_keys() -> None:
    """Two tenants have half each, whether one of them splits its half between three keys or not."""
    paths: dict[Key, float] = {("acme", name): 500 for name in ("x", "y", "z")}
    shares = entitlements(100, {**paths, "bakery": 500}, even)
    assert shares == pytest.approx({("acme", "x"): 50 / 3, ("acme", "y"): 50 / 3, ("acme", "z"): 50 / 3, "bakery": 50})


def test_a_key_that_is_also_above_others_shares_with_them() -> None:
    """Messages of the key ``acme`` itself compete with those of the keys below it."""
    shares = entitlements(80, {"acme": 90, ("acme", "x"): 90, "bakery": 90}, even)
    assert shares == pytest.approx({"acme": 20, ("acme", "x"): 20, "bakery": 40})


def test_keys_that_want_any_amount_share_by_weight() -> None:
    """Infinite demand leaves the weights alone to decide."""
    assert entitlements(1.0, {"a": inf, "b": inf}, lambda key: 3 if key == "a" else 1) == {"a": 0.75, "b": 0.25}


def test_nothing_served_is_nothing_to_share() -> None:
    """Keys that wait in a queue that stands still are entitled to nothing of it."""
    assert entitlements(0, {"a": 5, "b": 9}, even) == {"a": 0, "b": 0}
    assert entitlements(0, {}, even) == {}


def test_jains_index() -> None:
    """It is one for the even, one in n for all to one of n, and nothing where nothing was served."""
    assert jain_index([1, 1, 1]) == pytest.approx(1)
    assert jain_index([4, 0, 0, 0]) == pytest.approx(0.25)
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None
