"""Paths and priorities."""

from __future__ import annotations

from collections import Counter

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy, Priority
from tests.unit.scheduler.workload import offer, take_keys


def test_a_share_is_split_level_by_level() -> None:
    """A tenant with a thousand sub-keys gets what a tenant with one gets."""
    kernel: Kernel[Item] = Kernel()
    for at in range(1000):
        offer(kernel, ("many", f"sub {at}"), 2)
    offer(kernel, ("one", "sub"), 2000)
    tenants = Counter(key[0] for key in take_keys(kernel, 2000))
    assert tenants == {"many": 1000, "one": 1000}


def test_a_key_that_is_also_a_prefix_takes_turns_with_its_sub_keys() -> None:
    """Its own items are one child beside the others, whichever came first."""
    own_first: list[Key] = ["a", ("a", "x"), ("a", "y")]
    for keys in (own_first, own_first[::-1]):
        kernel: Kernel[Item] = Kernel()
        for key in keys:
            offer(kernel, key, 10)
        offer(kernel, "b", 30)
        served = Counter(take_keys(kernel, 30))
        assert served["b"] == 15
        assert sorted(served[key] for key in ("a", ("a", "x"), ("a", "y"))) == [5, 5, 5]


def test_weights_count_among_siblings_only() -> None:
    """A heavy sub-key takes from its siblings, not from other tenants."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy(("a", "heavy"), KeyPolicy(weight=9))
    offer(kernel, ("a", "heavy"), 100)
    offer(kernel, ("a", "light"), 100)
    offer(kernel, "b", 100)
    served = Counter(take_keys(kernel, 100))
    assert served == {("a", "heavy"): 45, ("a", "light"): 5, "b": 50}


def test_higher_priority_goes_first_inside_a_key_only() -> None:
    """Priorities order the items of one key, and take nothing from other keys."""
    kernel: Kernel[Item] = Kernel()
    for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH):
        offer(kernel, "a", priority=priority)
    low = offer(kernel, "b", 3, priority=Priority.LOW)
    taken = kernel.take(6, 0)
    assert [item.priority for item in taken if item.key == "a"] == [Priority.HIGH, Priority.NORMAL, Priority.LOW]
    assert taken[1::2] == low


def test_strict_priority_goes_first_across_keys() -> None:
    """With the option, no low item goes while a high one may."""
    kernel: Kernel[Item] = Kernel(strict_priority=True)
    offer(kernel, "a", 3, priority=Priority.LOW)
    offer(kernel, "b", 3, priority=Priority.HIGH)
    offer(kernel, "c", 3)
    assert take_keys(kernel, 9) == ["b"] * 3 + ["c"] * 3 + ["a"] * 3
