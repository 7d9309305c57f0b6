"""How long items were held up by throttles and caps, reported at hand-out."""

from __future__ import annotations

from fairlane.scheduler import Item, Kernel, KeyPolicy, Priority
from fairlane.scheduler.lanes import Holdup
from tests.unit.scheduler.workload import offer


def throttled() -> Kernel[Item]:
    """Return a kernel with a throttle of one token per second, which has one token now."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=1, burst=1, tokens=1, now_ms=0)
    return kernel


def test_an_item_that_only_waits_for_its_turn_is_not_held_up() -> None:
    """Nothing is reported for items that no throttle and no cap held back, however long they waited."""
    kernel = throttled()
    offer(kernel, "a", 3)
    offer(kernel, "b", throttles=["t"])
    assert len(kernel.take(4, 9_000)) == 4
    assert dict(kernel.holdups()) == {}


def test_a_throttled_item_reports_how_long_its_lane_was_parked() -> None:
    """The lane is parked from the take that finds no token to the instant at which there is one."""
    kernel = throttled()
    offer(kernel, "a", 2, throttles=["t"])
    assert len(kernel.take(2, 100)) == 1
    assert dict(kernel.holdups()) == {}
    (second,) = kernel.take(2, 1_300)
    assert kernel.holdups()[second] == Holdup(1_200, 0)


def test_an_item_that_comes_while_its_lane_is_parked_counts_from_then() -> None:
    """Time that the lane was parked before the item was offered does not count for the item."""
    kernel = throttled()
    offer(kernel, "a", 2, throttles=["t"])
    kernel.take(2, 0)
    late = Item("a", throttles=["t"])
    kernel.offer(late, 400)
    kernel.take(2, 1_000)
    assert kernel.take(2, 2_000) == [late]
    assert kernel.holdups()[late] == Holdup(1_600, 0)


def test_a_delayed_item_counts_from_when_it_was_due() -> None:
    """Waiting to become due does not count as being held up."""
    kernel = throttled()
    offer(kernel, "a", 2, throttles=["t"])
    late = Item("a", throttles=["t"], due_ms=700)
    kernel.offer(late, 0)
    kernel.take(3, 0)
    kernel.reap(700)
    kernel.take(3, 1_000)
    assert kernel.take(3, 2_000) == [late]
    assert kernel.holdups()[late] == Holdup(1_300, 0)


def test_an_emptied_lane_starts_from_zero() -> None:
    """A lane resets its stopwatch with its last item."""
    kernel = throttled()
    offer(kernel, "a", 2, throttles=["t"])
    kernel.take(2, 0)
    kernel.take(2, 1_000)
    offer(kernel, "a", now_ms=5_000, throttles=["t"])
    assert len(kernel.take(1, 5_000)) == 1
    assert dict(kernel.holdups()) == {}


def test_a_capped_item_reports_how_long_its_key_was_at_its_cap() -> None:
    """The time counts from the hand-out that fills the cap to the release below it."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("a", KeyPolicy(cap=1))
    _, second = offer(kernel, "a", 2)
    kernel.take(2, 50)
    kernel.reap(250)
    kernel.release("a")
    assert kernel.take(2, 900) == [second]
    assert kernel.holdups()[second] == Holdup(0, 200)


def test_the_cap_of_a_key_above_counts_for_all_below() -> None:
    """A sub-key is held up by its tenant's cap from the time its own item was offered."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_policy("acme", KeyPolicy(cap=1))
    offer(kernel, ("acme", "web"))
    kernel.take(1, 0)
    other = Item(("acme", "mobile"))
    kernel.offer(other, 300)
    assert kernel.take(1, 1_000) == []
    kernel.release(("acme", "web"))
    assert kernel.take(1, 1_500) == [other]
    assert kernel.holdups()[other] == Holdup(0, 700)


def test_a_cap_lowered_under_a_backlog_counts_from_then() -> None:
    """Items offered before the cap was set are held up only from when it is reached."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    _, second = offer(kernel, "a", 2)
    kernel.take(1, 0)
    kernel.reap(400)
    kernel.set_policy("a", KeyPolicy(cap=1))
    assert kernel.take(1, 600) == []
    kernel.release("a")
    assert kernel.take(1, 1_000) == [second]
    assert kernel.holdups()[second] == Holdup(0, 200)


def test_an_item_offered_again_starts_from_zero() -> None:
    """The hold-up of the first wait is reported once."""
    kernel = throttled()
    offer(kernel, "a", 2, throttles=["t"])
    kernel.take(2, 0)
    (second,) = kernel.take(2, 1_000)
    kernel.offer(second, 1_500)
    assert kernel.take(1, 2_000) == [second]
    assert dict(kernel.holdups()) == {}


def test_throttle_and_cap_are_reported_separately() -> None:
    """An item may be held up by both, one after the other."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.throttles.set("t", rate=1, burst=1, tokens=1, now_ms=0)
    kernel.set_policy("a", KeyPolicy(cap=1))
    _, second = offer(kernel, "a", 2, throttles=["t"])
    kernel.take(2, 0)
    kernel.reap(600)
    kernel.release("a")
    assert kernel.take(2, 600) == []
    assert kernel.take(2, 1_000) == [second]
    assert kernel.holdups()[second] == Holdup(400, 600)


def test_strict_priorities_share_a_cap_and_its_stopwatch() -> None:
    """With strict priorities a key at its cap holds up its items of every priority."""
    kernel: Kernel[Item] = Kernel(counts_use=True, strict_priority=True)
    kernel.set_policy("a", KeyPolicy(cap=1))
    low = Item("a", priority=Priority.LOW)
    kernel.offer(low, 0)
    offer(kernel, "a", priority=Priority.HIGH)
    assert kernel.take(2, 0) != [low]
    kernel.reap(150)
    kernel.release("a")
    assert kernel.take(2, 200) == [low]
    assert kernel.holdups()[low] == Holdup(0, 150)
