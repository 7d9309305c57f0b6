"""Taking over from another kernel, and naming the victim for a new item."""

from __future__ import annotations

import pytest

from fairlane.scheduler import Backpressure, Item, Kernel, KeyPolicy, Priority


def test_items_in_use_elsewhere_count_against_the_cap() -> None:
    """A key whose items another kernel handed out starts with its cap partly filled."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("acme", KeyPolicy(cap=2))
    kernel.occupy("acme", 2)
    kernel.offer(Item("acme"), 0)
    assert kernel.in_use("acme") == 2
    assert kernel.take(1, 0) == []
    kernel.release("acme")
    assert len(kernel.take(1, 0)) == 1


def test_items_in_use_elsewhere_count_for_the_keys_above() -> None:
    """A nested key's items in use are counted on every level of its path."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.occupy(("acme", "mobile"), 3)
    assert kernel.in_use("acme") == 3
    kernel.release(("acme", "mobile"), 3)
    assert kernel.in_use("acme") == 0


def test_a_kernel_that_does_not_count_use_cannot_be_occupied() -> None:
    """Without counting there is nothing to take over."""
    with pytest.raises(ValueError, match="does not count"):
        Kernel().occupy("acme")


def test_a_released_idle_key_is_forgotten_in_time() -> None:
    """Releasing the last item of an idle key makes the key forgettable, so keys seen once do not accumulate."""
    kernel: Kernel[Item] = Kernel(counts_use=True, idle_keys_max=10)
    for number in range(100):
        kernel.offer(Item(f"tenant-{number}"), 0)
        kernel.take(1, 0)
        kernel.release(f"tenant-{number}")
    assert kernel.known_keys() <= 11


@pytest.mark.parametrize(
    ("policy", "expected"), [(Backpressure.DROP_OLDEST, "first"), (Backpressure.DROP_NEWEST, "last")]
)
def test_the_victim_belongs_to_the_longest_key(policy: Backpressure, expected: str) -> None:
    """Without a key, the victim is the oldest or newest item of the key with the most items."""
    kernel: Kernel[Item] = Kernel()
    items = {"first": Item("noisy"), "middle": Item("noisy"), "last": Item("noisy"), "quiet": Item("quiet")}
    kernel.offer_many(list(items.values()), 0)
    assert kernel.victim(Item("new"), policy) is items[expected]
    assert len(kernel) == 4


def test_the_victim_belongs_to_a_key_that_has_grown_since() -> None:
    """The second answer is of the key with the most items by then, also if it grew by a batch of plain items."""
    kernel: Kernel[Item] = Kernel()
    noisy, quiet = [Item("noisy") for _ in range(3)], [Item("quiet") for _ in range(5)]
    kernel.offer_many([*noisy, quiet[0]], 0)
    assert kernel.victim(Item("new"), Backpressure.DROP_OLDEST) is noisy[0]
    kernel.offer_many(quiet[1:], 0)
    assert kernel.victim(Item("new"), Backpressure.DROP_OLDEST) is quiet[0]


def test_the_victim_belongs_to_a_key_that_has_grown_by_rows() -> None:
    """Likewise if it grew by rows, which are no items yet."""
    kernel: Kernel[Item] = Kernel()
    noisy, quiet = [Item("noisy") for _ in range(3)], Item("quiet")
    kernel.offer_many([*noisy, quiet], 0)
    assert kernel.victim(Item("new"), Backpressure.DROP_OLDEST) is noisy[0]
    kernel.offer_rows(["quiet"] * 5, range(1, 6), 0, lambda numbers: [Item("quiet") for _ in numbers])
    assert kernel.victim(Item("new"), Backpressure.DROP_OLDEST) is quiet


def test_of_keys_with_as_many_items_the_first_by_name_has_the_victim() -> None:
    """The victim does not depend on the order in which keys came or grew."""
    for keys in (["b", "a"], ["a", "b"]):
        items = {key: Item(key) for key in keys}
        kernel: Kernel[Item] = Kernel()
        kernel.offer_many(list(items.values()), 0)
        assert kernel.victim(Item("new"), Backpressure.DROP_OLDEST) is items["a"]


def test_the_victim_can_be_limited_to_one_key() -> None:
    """With a key, the victim is one of that key's items."""
    kernel: Kernel[Item] = Kernel()
    quiet = Item("quiet")
    kernel.offer_many([Item("noisy"), Item("noisy"), quiet], 0)
    assert kernel.victim(Item("quiet"), Backpressure.DROP_OLDEST, key="quiet") is quiet


def test_no_item_of_higher_priority_is_a_victim() -> None:
    """A low item drops no high one, and there is no victim in an empty kernel."""
    kernel: Kernel[Item] = Kernel()
    low = Item("acme", priority=Priority.LOW)
    assert kernel.victim(low, Backpressure.DROP_OLDEST) is None
    kernel.offer(Item("acme", priority=Priority.HIGH), 0)
    assert kernel.victim(low, Backpressure.DROP_OLDEST) is None
