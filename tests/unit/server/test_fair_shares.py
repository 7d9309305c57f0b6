"""What weights entitle keys to, in numbers worked out by hand."""

from __future__ import annotations

import pytest

from fairlane.model.message import Key
from fairlane.server.fair_shares import Asked, fair_shares, jain_index


def even(_: object) -> int:
    """Let all keys weigh the same."""
    return 1


def test_what_the_modest_leave_goes_to_those_who_want_more() -> None:
    """Of a hundred, two who wanted 10 each have them, and two who wanted all share the rest by weight."""
    asked: dict[Key, Asked] = {"a": Asked(10, 10), "b": Asked(10, 10)}
    asked |= {"greedy": Asked(75, 1_000), "starved": Asked(5, 1_000)}
    shares = fair_shares(asked, lambda key: 3 if key == "starved" else 1)
    assert shares == pytest.approx({"a": 10, "b": 10, "greedy": 20, "starved": 60})


def test_a_tenant_gains_nothing_by_many_keys() -> None:
    """Two tenants have half each, whether one of them splits its half between three keys or not."""
    paths: dict[Key, Asked] = {("acme", name): Asked(25, 500) for name in ("x", "y", "z")}
    shares = fair_shares({**paths, "bakery": Asked(25, 500)}, even)
    assert shares == pytest.approx({("acme", "x"): 50 / 3, ("acme", "y"): 50 / 3, ("acme", "z"): 50 / 3, "bakery": 50})


def test_a_key_that_is_also_above_others_shares_with_them() -> None:
    """What has the key ``acme`` itself is beside what has a key below it."""
    shares = fair_shares({"acme": Asked(30, 90), ("acme", "x"): Asked(10, 90), "bakery": Asked(40, 90)}, even)
    assert shares == pytest.approx({"acme": 20, ("acme", "x"): 20, "bakery": 40})


def test_nothing_served_is_nothing_to_share() -> None:
    """Those who wait in a queue that stands still are entitled to nothing of it."""
    assert fair_shares({"a": Asked(0, 5), "b": Asked(0, 9)}, even) == {"a": 0, "b": 0}
    assert fair_shares({}, even) == {}


def test_jains_index() -> None:
    """It is one for the even, one in n for all to one of n, and nothing where nothing was served."""
    assert jain_index([1, 1, 1]) == pytest.approx(1)
    assert jain_index([4, 0, 0, 0]) == pytest.approx(0.25)
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None
