"""Turns, weights, costs and settled costs."""

from __future__ import annotations

import pytest

from fairlane.scheduler import Item, Kernel, KeyPolicy
from tests.unit.scheduler.workload import offer, take_keys


def test_keys_take_turns_regardless_of_their_backlog() -> None:
    """Equal keys alternate, and a key is first in first out."""
    kernel: Kernel[Item] = Kernel()
    many, few = offer(kernel, "many", 4), offer(kernel, "few", 2)
    assert kernel.take(6, 0) == [many[0], few[0], many[1], few[1], many[2], many[3]]


def test_a_weight_is_served_in_one_turn() -> None:
    """Weight 3 beside weight 1 is served three items, then one."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy("a", KeyPolicy(weight=3))
    offer(kernel, "a", 6)
    offer(kernel, "b", 2)
    assert take_keys(kernel, 8) == ["a", "a", "a", "b", "a", "a", "a", "b"]


def test_a_batch_cut_short_continues_the_same_turn() -> None:
    """Taking one by one gives the order of taking all at once."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy("a", KeyPolicy(weight=3))
    offer(kernel, "a", 6)
    offer(kernel, "b", 2)
    singly = [key for _ in range(8) for key in take_keys(kernel, 1)]
    assert singly == ["a", "a", "a", "b", "a", "a", "a", "b"]


def test_a_change_of_weight_acts_on_the_backlog_at_once() -> None:
    """From the next turn on, the new weight counts."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 10)
    offer(kernel, "b", 10)
    assert take_keys(kernel, 2) == ["a", "b"]
    kernel.set_policy("b", KeyPolicy(weight=2))
    assert take_keys(kernel, 6) == ["a", "b", "b", "a", "b", "b"]


def test_a_cost_is_paid_out_of_turns() -> None:
    """An item of cost 3 waits for three turns at quantum 1, while a key of cheap items is served three."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "dear", 2, cost=3)
    offer(kernel, "cheap", 6)
    keys = take_keys(kernel, 8)
    assert keys.count("dear") == 2
    assert keys[:4].count("dear") == 1


@pytest.mark.parametrize("cap", [None, 5])
def test_a_huge_cost_is_handed_out_at_once(cap: int | None) -> None:
    """A cost of 10**9 at quantum 1 skips its rounds by arithmetic; going through them would take minutes."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=cap))
    huge = offer(kernel, "a", cost=10**9) + offer(kernel, ("b", "x"), cost=10**9 + 1)
    assert kernel.take(2, 0) == huge


def test_cheap_items_go_before_a_huge_cost() -> None:
    """While one key saves up for a huge cost, all others are served."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "huge", cost=10**6)
    offer(kernel, "cheap", 1000)
    assert take_keys(kernel, 1001) == ["cheap"] * 1000 + ["huge"]


def test_a_debt_is_worked_off_in_later_turns() -> None:
    """Five more than expected are five turns without service."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 10)
    offer(kernel, "b", 10)
    kernel.take(2, 0)
    kernel.settle("a", 5)
    assert take_keys(kernel, 7).index("a") == 5


def test_a_debt_outlasts_an_empty_queue() -> None:
    """A key does not lose its debt by running empty."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a")
    kernel.take(1, 0)
    kernel.settle("a", 4)
    assert kernel.deficit("a") == -4
    offer(kernel, "a", 2)
    offer(kernel, "b", 8)
    assert take_keys(kernel, 8).index("a") >= 4


def test_a_refund_to_an_idle_key_is_lost() -> None:
    """A key saves nothing up while it has no items."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a")
    kernel.take(1, 0)
    kernel.settle("a", -100)
    assert kernel.deficit("a") == 0


def test_cancelling_the_next_item_shortens_the_wait() -> None:
    """A key that saves up for a huge cost continues with its next item when the huge one is cancelled."""
    kernel: Kernel[Item] = Kernel()
    (huge,) = offer(kernel, "a", cost=10**9)
    offer(kernel, "a")
    offer(kernel, "b", 5)
    assert take_keys(kernel, 2) == ["b", "b"]
    kernel.cancel(huge)
    assert "a" in take_keys(kernel, 2)
