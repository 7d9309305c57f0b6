"""Limits, backpressure, cancellation and forgotten keys."""

from __future__ import annotations

from fairlane.scheduler import Backpressure, Item, ItemTerms, Kernel, KeyPolicy, Priority, RefusalReason
from tests.unit.scheduler.workload import offer


def counts(kernel: Kernel[Item], names: str) -> dict[str, int]:
    return {name: kernel.waiting(name) for name in names}


def test_a_refusal_names_the_limit() -> None:
    """The key's own limit comes first, then the global one."""
    kernel: Kernel[Item] = Kernel(waiting_max=2, key_waiting_max=1)
    offer(kernel, "a")
    own = kernel.offer(Item("a"), 0)
    offer(kernel, "b")
    everybody = kernel.offer(Item("c"), 0)
    assert own is not None
    assert everybody is not None
    assert (own.reason, own.key, own.limit) == (RefusalReason.KEY_FULL, "a", 1)
    assert (everybody.reason, everybody.key, everybody.limit) == (RefusalReason.GLOBAL_FULL, None, 2)


def test_a_limit_for_each_key_does_not_limit_the_keys_above() -> None:
    """Two sub-keys with one item each are within a limit of one item per key."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=1)
    for key in (("a", "x"), ("a", "y"), "a"):
        assert kernel.offer(Item(key), 0) is None


def test_a_policy_of_a_key_that_becomes_a_prefix_still_rules_its_own_items() -> None:
    """Backpressure set for a key is not lost when a sub-key appears."""
    kernel: Kernel[Item] = Kernel(waiting_max=2)
    kernel.set_policy("a", KeyPolicy(backpressure=Backpressure.DROP_OLDEST))
    offer(kernel, "a")
    offer(kernel, ("a", "x"))
    assert kernel.offer(Item("a"), 0) is None


def test_a_policys_limit_replaces_the_general_one_for_a_prefix_too() -> None:
    """A key allowed five items may have them although the general limit is one, with or without sub-keys."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=1)
    kernel.set_policy("a", KeyPolicy(waiting_max=5))
    offer(kernel, ("a", "x"))
    offer(kernel, "a", 4)
    assert kernel.waiting("a") == 5


def test_a_limit_counts_all_priorities_when_they_are_strict() -> None:
    """A key that is a leaf at one priority and a group at another has one limit."""
    kernel: Kernel[Item] = Kernel(strict_priority=True)
    kernel.set_policy("a", KeyPolicy(waiting_max=1))
    offer(kernel, "a", priority=Priority.HIGH)
    assert kernel.offer(Item(("a", "x")), 0) is not None


def test_a_flood_never_pushes_out_quiet_keys() -> None:
    """The victim belongs to the key with the most items, also if that key has grown since the last drop."""
    kernel: Kernel[Item] = Kernel(waiting_max=4, backpressure=Backpressure.DROP_OLDEST)
    for key in ("a", "a", "b", "b", "quiet"):
        kernel.offer(Item(key), 0)
    kernel.take(2, 0)
    for key in ("flood", "flood", "new"):
        kernel.offer(Item(key), 0)
    assert kernel.waiting("flood") == 1
    assert kernel.waiting("quiet") == 1


def test_the_longest_key_is_found_among_many_idle_ones() -> None:
    """Known keys without items do not disturb the search for the longest key."""
    kernel: Kernel[Item] = Kernel(waiting_max=2, backpressure=Backpressure.DROP_OLDEST)
    for name in "abcdef":
        offer(kernel, name)
        kernel.take(1, 0)
    for name in "fefefedcba":
        assert kernel.offer(Item(name), 0) is None
    assert len(kernel) == 2


def test_with_strict_priority_the_victim_is_of_the_longest_key_and_the_lowest_priority() -> None:
    """The items of a key count together across priorities, and those of low priority go first."""
    kernel: Kernel[Item] = Kernel(waiting_max=10, backpressure=Backpressure.DROP_OLDEST, strict_priority=True)
    offer(kernel, "a", 3, priority=Priority.HIGH)
    low = offer(kernel, "a", 3, priority=Priority.LOW)
    offer(kernel, "b", 4, priority=Priority.LOW)
    kernel.offer(Item("c", priority=Priority.HIGH), 0)
    assert not low[0].is_waiting
    assert counts(kernel, "abc") == {"a": 5, "b": 4, "c": 1}


def test_dropping_a_victim_does_not_forget_the_key_of_the_new_item() -> None:
    """A key is not forgotten while an item of its own is being accepted."""
    kernel: Kernel[Item] = Kernel(waiting_max=1, backpressure=Backpressure.DROP_OLDEST, idle_keys_max=1)
    offer(kernel, "a")
    kernel.offer(item := Item("b"), 0)
    assert counts(kernel, "ab") == {"a": 0, "b": 1}
    assert kernel.cancel(item)
    assert (len(kernel), kernel.waiting("b")) == (0, 0)


def test_cancel_frees_the_space_at_once() -> None:
    """A cancelled item leaves the middle of its lane, and its space may be used."""
    kernel: Kernel[Item] = Kernel(waiting_max=3)
    first, middle, last = offer(kernel, "a", 3)
    assert kernel.cancel(middle)
    assert not kernel.cancel(middle)
    assert kernel.offer(new := Item("a"), 0) is None
    assert kernel.take(4, 0) == [first, last, new]


def test_idle_keys_are_forgotten() -> None:
    """Of many keys that come and go, few are remembered; here ten of a thousand."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=10)
    for at in range(1000):
        offer(kernel, f"key {at}")
        kernel.take(1, 0)
    assert kernel.known_keys() == 10


def test_no_idle_key_at_all_may_be_remembered() -> None:
    """A limit of zero works, for flat keys and paths."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=0)
    offer(kernel, "a")
    offer(kernel, ("b", "x"))
    assert len(kernel.take(2, 0)) == 2
    assert kernel.known_keys() == 0


def test_idle_paths_are_forgotten() -> None:
    """Keys below a path are forgotten, and the path with the last of them."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=1)
    for at in range(10):
        offer(kernel, ("a", f"sub {at}"))
        offer(kernel, f"flat {at}")
        assert len(kernel.take(2, 0)) == 2
    assert kernel.known_keys() <= 1
    assert len(list(kernel._keys.nodes())) <= 2


def test_keys_in_use_are_forgotten_after_their_release() -> None:
    """A key that is in use when the list of idle keys overflows is still forgotten later."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=1, counts_use=True)
    for at in range(20):
        offer(kernel, f"key {at}")
    kernel.take(20, 0)
    for at in range(20):
        kernel.release(f"key {at}")
    assert kernel.known_keys() <= 1


def test_a_new_provider_does_not_bring_forgotten_keys_back() -> None:
    """The provider is called for all known keys while some of them are being forgotten."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=1, counts_use=True)
    for name in ("a", "b", "c"):
        offer(kernel, name)
    kernel.take(3, 0)
    kernel.release("c")
    for _ in range(3):
        kernel.set_policy_provider(lambda _key: KeyPolicy(weight=2))
    for name in ("c", "d", "e", "c"):
        offer(kernel, name)
        assert len(kernel.take(1, 0)) == 1
        kernel.release(name)


def test_sub_keys_do_not_protect_a_flood() -> None:
    """At the global limit the tenant with the most items loses one, however many sub-keys it has."""
    kernel: Kernel[Item] = Kernel(waiting_max=103, backpressure=Backpressure.DROP_OLDEST)
    for at in range(100):
        offer(kernel, ("flood", f"sub {at}"))
    offer(kernel, "quiet", 3)
    for at in range(50):
        assert kernel.offer(Item(("flood", f"new {at}")), 0) is None
    assert (kernel.waiting("flood"), kernel.waiting("quiet")) == (100, 3)


def test_a_flood_that_cannot_be_dropped_is_not_paid_for_by_others() -> None:
    """If the longest key has only delayed or high-priority items, new items are refused and quiet keys lose none."""
    floods: list[ItemTerms] = [{"due_ms": 10**6}, {"priority": Priority.HIGH}]
    for flood in floods:
        kernel: Kernel[Item] = Kernel(waiting_max=10, backpressure=Backpressure.DROP_OLDEST)
        for _ in range(8):
            kernel.offer(Item("flood", **flood), 0)
        offer(kernel, "quiet", 2)
        assert kernel.offer(Item("flood", priority=Priority.LOW), 0) is not None
        assert (kernel.waiting("flood"), kernel.waiting("quiet")) == (8, 2)
