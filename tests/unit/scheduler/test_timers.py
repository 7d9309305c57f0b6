"""Timers return what is due, each target once."""

from __future__ import annotations

import pytest

from fairlane.scheduler.timers import Timers


def test_targets_come_out_when_due_earliest_first() -> None:
    """The order is by instant, then by order of insertion."""
    timers: Timers[str] = Timers(lambda _at, _target: True)
    for at_ms, target in ((5, "c"), (1, "a"), (5, "d"), (3, "b")):
        timers.push(at_ms, target)
    assert timers.next_at() == 1
    assert timers.pop_due(4) == ["a", "b"]
    assert timers.pop_due(5) == ["c", "d"]
    assert timers.next_at() is None


def test_stale_entries_are_passed_over() -> None:
    """Targets that are no longer live are neither returned nor the next event."""
    live = {"b"}
    timers: Timers[str] = Timers(lambda _at, target: target in live)
    timers.push(1, "a")
    timers.push(2, "b")
    assert timers.next_at() == 2
    assert timers.pop_due(9) == ["b"]


def test_a_target_armed_twice_for_one_instant_comes_out_once() -> None:
    """A target armed, disarmed and armed again for the same instant is due once."""
    timers: Timers[str] = Timers(lambda _at, _target: True)
    timers.push(5, "a")
    timers.push(5, "a")
    assert timers.pop_due(5) == ["a"]


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_the_order_within_an_instant_is_that_of_the_last_arming(*, is_looked_at: bool) -> None:
    """It is the same whether a stale entry was dropped in between or lives again, since no replay looks as often."""
    live = {"a", "b"}
    timers: Timers[str] = Timers(lambda _at, target: target in live)
    timers.push(5, "a")
    timers.push(5, "b")
    live.remove("a")
    if is_looked_at:
        assert timers.next_at() == 5
    live.add("a")
    timers.push(5, "a")
    assert timers.pop_due(5) == ["b", "a"]


def test_stale_entries_hold_bounded_memory() -> None:
    """Ten thousand entries of which one is live take the memory of a few."""
    timers: Timers[int] = Timers(lambda _at, target: target == 0)
    for target in range(10_000):
        timers.push(10**6, target)
    assert len(timers) <= 130
