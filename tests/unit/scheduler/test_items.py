"""Items validate their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.scheduler import Item, Kernel, Priority, RefusalReason


@pytest.mark.parametrize("cost", [0, -1, 1.5, True, "1", None])
def test_a_cost_is_a_whole_number_of_at_least_one(cost: Any) -> None:
    """Zero and fractions are refused."""
    with pytest.raises(ValueError, match="cost"):
        Item("a", cost=cost)


@pytest.mark.parametrize("key", ["", (), ("a", ""), ("a", 1)])
def test_a_key_is_a_name_or_a_path_of_names(key: Any) -> None:
    """Empty names and other types are refused."""
    with pytest.raises(ValueError, match="fairness key"):
        Item(key)


def test_a_path_of_one_name_is_that_name() -> None:
    """``("a",)`` and ``"a"`` are one key."""
    kernel: Kernel[Item] = Kernel()
    kernel.offer(Item(("a",)), 0)
    kernel.offer(Item("a"), 0)
    assert Item(("a",)).key == "a"
    assert (kernel.waiting("a"), kernel.known_keys()) == (2, 1)


def test_one_string_is_not_a_list_of_throttles() -> None:
    """Forgotten brackets are an error, instead of one throttle per letter."""
    with pytest.raises(ValueError, match="list of names"):
        Item("a", throttles="slow")


def test_an_item_waits_once() -> None:
    """An item that waits already is refused; one that was handed out may be offered again."""
    kernel: Kernel[Item] = Kernel()
    item = Item("a", priority=Priority.HIGH)
    assert kernel.offer(item, 0) is None
    refusals = [kernel.offer(item, 0), *kernel.offer_many([item], 0)]
    assert [refusal.reason for refusal in refusals if refusal] == [RefusalReason.ALREADY_WAITING] * 2
    assert kernel.take(2, 0) == [item]
    assert not item.is_waiting
    assert kernel.offer(item, 0) is None


def test_an_item_changed_between_two_waits_is_offered_as_changed() -> None:
    """A retry with a delay set on the same item is delayed, also in a batch."""
    kernel: Kernel[Item] = Kernel()
    item = Item("a")
    kernel.offer_many([Item("a"), item], 0)
    kernel.take(2, 0)
    item.reschedule(due_ms=100)
    kernel.offer_many([Item("a"), item], 0)
    assert item not in kernel.take(2, 0)
