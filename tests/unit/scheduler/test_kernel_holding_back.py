"""Throttles, caps, pauses, delays and deadlines."""

from __future__ import annotations

import pytest

from fairlane.scheduler import DepartureReason, Item, Kernel, KeyPolicy, Priority
from tests.unit.scheduler.workload import offer, take_keys


def test_a_throttled_lane_blocks_neither_its_key_nor_others() -> None:
    """Without a token, the other lane of the same key and the other keys are still served."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=10, burst=1, tokens=0, now_ms=0)
    (held,) = offer(kernel, "a", throttles=["t"])
    offer(kernel, "a")
    offer(kernel, "b")
    assert sorted(map(str, take_keys(kernel, 3))) == ["a", "b"]
    assert kernel.next_event_at() == 100
    assert kernel.take(1, 100) == [held]


def test_all_throttles_of_an_item_must_have_a_token_and_none_is_wasted() -> None:
    """No token of one bucket is taken while the other has none."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("full", rate=0, burst=1, now_ms=0)
    kernel.throttles.set("empty", rate=10, burst=1, tokens=0, now_ms=0)
    both = offer(kernel, "a", throttles=["full", "empty"])
    assert kernel.take(1, 0) == []
    assert kernel.take(1, 100) == both


def test_an_unknown_throttle_limits_nothing_and_a_removed_one_frees_at_once() -> None:
    """Throttles that are not set are open."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", throttles=["nobody"])
    kernel.throttles.set("t", rate=0, burst=1, tokens=0, now_ms=0)
    offer(kernel, "b", throttles=["t"])
    assert take_keys(kernel, 2) == ["a"]
    kernel.throttles.remove("t", now_ms=0)
    assert take_keys(kernel, 2) == ["b"]


def test_removing_a_throttle_frees_the_high_priority_it_held_first() -> None:
    """Items that a throttle held back are free at once, so their priority counts in the very next take."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=0, burst=1, tokens=0, now_ms=0)
    high = offer(kernel, "a", throttles=["t"], priority=Priority.HIGH)
    assert kernel.take(1, 0) == []
    offer(kernel, "a", 2)
    kernel.throttles.remove("t", now_ms=0)
    assert kernel.take(1, 0) == high


def test_a_rate_changed_there_and_back_opens_its_gate_once() -> None:
    """A gate armed twice for the same instant is opened once."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=100, burst=5, tokens=0, now_ms=0)
    held = offer(kernel, "a", throttles=["t"])
    assert kernel.take(1, 0) == []
    kernel.throttles.set("t", rate=200, burst=5, now_ms=0)
    kernel.throttles.set("t", rate=100, burst=5, now_ms=0)
    assert kernel.take(1, 50) == held


def test_lanes_of_many_recipients_are_forgotten_even_if_cancelled_while_parked() -> None:
    """A throttle per recipient leaves no lane behind once nothing waits for it."""
    kernel: Kernel[Item] = Kernel()
    for at in range(100):
        kernel.throttles.set(f"recipient {at}", rate=1, burst=1, tokens=0, now_ms=0)
        (item,) = offer(kernel, "a", throttles=[f"recipient {at}"])
        kernel.take(1, 0)
        kernel.cancel(item)
    kernel.take(1, 60_000)
    offer(kernel, "a", now_ms=60_000)
    kernel.take(1, 60_000)
    (leaf,) = kernel._keys.find("a")
    assert leaf.extra is not None
    assert len(leaf.extra) <= 16


def test_a_cap_counts_what_is_in_use() -> None:
    """Two items of a key may be in use at once; a release frees the next one."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=2))
    offer(kernel, "a", 4)
    assert take_keys(kernel, 4) == ["a", "a"]
    kernel.release("a")
    assert take_keys(kernel, 4) == ["a"]
    assert kernel.in_use("a") == 2


def test_a_cap_of_an_inner_key_covers_all_below_it() -> None:
    """The sub-keys of a capped key share its cap."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=2))
    offer(kernel, ("a", "x"), 2)
    offer(kernel, ("a", "y"), 2)
    offer(kernel, "a", 2)
    assert len(kernel.take(6, 0)) == 2


@pytest.mark.parametrize("first", [Priority.HIGH, Priority.NORMAL])
def test_a_cap_holds_across_priorities_that_know_the_key_differently(first: Priority) -> None:
    """With strict priority, a key that is a leaf at one priority and a group at another has one cap."""
    kernel: Kernel[Item] = Kernel(strict_priority=True, counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=1))
    other = Priority.NORMAL if first is Priority.HIGH else Priority.HIGH
    offer(kernel, "a", 2, priority=first)
    offer(kernel, ("a", "x"), 2, priority=other)
    assert len(kernel.take(4, 0)) == 1


def test_use_is_counted_and_released_across_priorities() -> None:
    """With strict priority, items handed out at one priority are in use, and released, for the key as a whole."""
    kernel: Kernel[Item] = Kernel(strict_priority=True, counts_use=True)
    offer(kernel, "a", priority=Priority.HIGH)
    offer(kernel, "a", priority=Priority.LOW)
    assert len(kernel.take(2, 0)) == 2
    assert kernel.in_use("a") == 2
    kernel.release("a", 2)
    assert kernel.in_use("a") == 0


def test_items_of_many_keys_are_released_together() -> None:
    """The caps of all keys have capacity again, and time passes first, so that new tokens count."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=2))
    kernel.throttles.set("t", rate=10, burst=1, tokens=0, now_ms=0)
    offer(kernel, "a", 4)
    offer(kernel, "b", 2)
    assert sorted(map(str, take_keys(kernel, 6))) == ["a", "a", "b", "b"]
    (held,) = offer(kernel, "c", throttles=["t"])
    assert kernel.take(1, 0) == []
    kernel.release_many({"a": 1, "b": 2}, 100)
    assert (kernel.in_use("a"), kernel.in_use("b")) == (1, 0)
    assert kernel.time_releases() == 1
    assert sorted(map(str, take_keys(kernel, 3))) == ["a", "c"]
    assert not held.is_waiting
    with pytest.raises(ValueError, match="in use"):
        kernel.release_many({"a": 2, "b": 1}, 100)
    assert kernel.in_use("a") == 0


def test_more_than_is_in_use_cannot_be_released() -> None:
    """One release too many is an error, instead of a cap that grows."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    offer(kernel, "a")
    kernel.take(1, 0)
    with pytest.raises(ValueError, match="in use"):
        kernel.release("a", 2)
    with pytest.raises(ValueError, match=r"in use|must be an integer"):
        kernel.release("a", -1)


def test_a_paused_key_and_those_below_it_wait_and_continue_where_they_stopped() -> None:
    """Pause stops a whole branch; resume frees it."""
    kernel: Kernel[Item] = Kernel()
    kernel.pause("a")
    offer(kernel, "a")
    offer(kernel, ("a", "x"))
    offer(kernel, "b")
    assert take_keys(kernel, 3) == ["b"]
    kernel.resume("a")
    assert len(kernel.take(3, 0)) == 2


def test_a_delayed_item_goes_when_due() -> None:
    """It counts as waiting before, and is the next event."""
    kernel: Kernel[Item] = Kernel()
    later = offer(kernel, "a", due_ms=50)
    assert (len(kernel), kernel.take(1, 49), kernel.next_event_at()) == (1, [], 50)
    assert kernel.take(1, 50) == later


def test_a_deadline_is_the_last_instant_an_item_may_go() -> None:
    """At its deadline it is handed out; past it, it expires and is reported once."""
    kernel: Kernel[Item] = Kernel()
    in_time = offer(kernel, "a", deadline_ms=10)
    assert kernel.take(1, 10) == in_time
    (late,) = offer(kernel, "a", deadline_ms=20, now_ms=10)
    assert kernel.next_event_at() == 21
    assert kernel.take(1, 21) == []
    assert [(gone.item, gone.reason) for gone in kernel.reap(21)] == [(late, DepartureReason.EXPIRED)]
    assert kernel.reap(22) == []


def test_an_item_offered_again_expires_once() -> None:
    """Cancelled and offered again with the same deadline, it leaves once and is counted once."""
    kernel: Kernel[Item] = Kernel()
    (item,) = offer(kernel, "a", deadline_ms=5)
    kernel.cancel(item)
    kernel.offer(item, 0)
    offer(kernel, "a")
    assert len(kernel.reap(10)) == 1
    assert len(kernel) == 1


def test_an_item_offered_again_becomes_due_once() -> None:
    """Cancelled and offered again with the same due instant, it is handed out once."""
    kernel: Kernel[Item] = Kernel()
    (item,) = offer(kernel, "a", due_ms=5)
    kernel.cancel(item)
    kernel.offer(item, 0)
    assert kernel.take(5, 10) == [item]
    assert len(kernel) == 0


def test_a_token_for_a_key_at_its_cap_goes_to_another() -> None:
    """Lanes under a key at its cap are passed over, and tried again after a release."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.throttles.set("shared", rate=1, burst=1, tokens=0, now_ms=0)
    kernel.set_policy("capped", KeyPolicy(cap=1))
    kernel.offer(Item("capped"), 0)
    assert len(kernel.take(1, 0)) == 1
    for at in range(3):
        kernel.offer(Item(("capped", f"sub {at}"), throttles=["shared"]), 0)
    kernel.offer(Item("free", throttles=["shared"]), 0)
    assert kernel.take(9, 0) == []
    assert [item.key for item in kernel.take(9, 1000)] == ["free"]
    assert kernel.take(9, 2000) == []
    kernel.release("capped")
    assert [item.key for item in kernel.take(9, 2000)] == [("capped", "sub 0")]


def test_a_blocked_key_with_a_token_available_causes_no_events() -> None:
    """While all lanes that wait for a token are under a paused key, no event is due, whatever the tokens."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("shared", rate=1000, burst=10, tokens=0, now_ms=0)
    kernel.offer_many([Item(("a", str(at)), throttles=["shared"]) for at in range(5)], 0)
    assert kernel.take(9, 0) == []
    kernel.pause("a")
    assert kernel.take(9, 50) == []
    assert kernel.next_event_at() is None
    kernel.resume("a")
    assert len(kernel.take(9, 50)) == 5
