"""Keys with a rate, and buckets that are made for names when items need them."""

from __future__ import annotations

import pytest

from fairlane.scheduler import Item, Kernel, KeyPolicy, Limit, Priority, Throttles, WaitReason
from fairlane.scheduler.compiled import Life
from fairlane.scheduler.key_limits import IDLE_BUCKETS_MAX
from tests.unit.scheduler.workload import offer


def limited(rate: float, burst: float | None = None, **more: bool) -> Kernel[Item]:
    """Return a kernel in which every outermost key has a rate."""
    kernel: Kernel[Item] = Kernel(**more)  # type: ignore[arg-type] # flags
    kernel.set_policy_provider(lambda key: KeyPolicy(rate=rate, burst=burst) if isinstance(key, str) else None)
    return kernel


@pytest.mark.parametrize("strict_priority", [False, True])
def test_a_key_and_all_keys_below_it_share_its_rate(strict_priority: bool) -> None:
    """Items of sub-keys and of all priorities take the tokens of one bucket, and other keys have their own."""
    kernel = limited(10, 3, strict_priority=strict_priority)
    for key in ("a", ("a", "x"), ("a", "y"), "b"):
        offer(kernel, key, 5)
        offer(kernel, key, 5, priority=Priority.HIGH)
    first = [item.key for item in kernel.take(100, 0)]
    assert (len(first), first.count("b")) == (6, 3)
    assert kernel.next_event_at() == 100
    assert kernel.take(100, 99) == []
    assert len(kernel.take(100, 100)) == 2


def test_a_rate_that_changes_keeps_the_tokens_and_acts_at_once() -> None:
    """Tokens earned so far stay, up to the new burst, and the new rate counts from the instant of the change."""
    kernel = limited(1, 4)
    offer(kernel, "a", 50)
    assert len(kernel.take(10, 0)) == 4
    kernel.set_policy("a", KeyPolicy(rate=10, burst=4), 2_000)
    assert len(kernel.take(10, 2_000)) == 2
    assert len(kernel.take(10, 2_100)) == 1
    kernel.set_policy("a", KeyPolicy(), 2_100)
    assert len(kernel.take(10, 2_100)) == 10


def test_a_key_that_is_forgotten_gets_no_tokens_by_that() -> None:
    """A bucket outlasts its key until it is full, so a tenant can't refill it by being idle for a moment."""
    kernel: Kernel[Item] = Kernel(idle_keys_max=0)
    kernel.set_policy_provider(lambda _: KeyPolicy(rate=1, burst=2))
    offer(kernel, "a", 2)
    assert len(kernel.take(10, 0)) == 2
    assert kernel.known_keys() == 0
    offer(kernel, "a", 5)
    assert kernel.take(10, 0) == []
    assert len(kernel.take(10, 1_000)) == 1


def test_a_rate_of_zero_lets_the_burst_through_and_no_more() -> None:
    """There is no instant at which the key may go again, and the explanation says so."""
    kernel = limited(0, 2)
    items = offer(kernel, "a", 3)
    assert len(kernel.take(10, 0)) == 2
    assert kernel.next_event_at() is None
    explanation = kernel.explain(items[2], 0)
    assert (explanation.reason, explanation.key, explanation.until_ms) == (WaitReason.THROTTLED, "a", None)
    assert str(explanation) == "Key 'a' has used up its rate, which is 0."


def test_an_item_is_held_up_while_its_key_has_no_token() -> None:
    """The time for which a key was shut counts as throttled."""
    kernel = limited(10, 1)
    _, second = offer(kernel, "a", 2)
    kernel.take(10, 0)
    assert kernel.take(10, 100) == [second]
    assert kernel.holdups()[second].throttled_ms == 100


def test_a_token_of_a_throttle_goes_to_a_key_that_may_go() -> None:
    """A key without a token of its own leaves the token of a throttle to another key, at once."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("t", rate=10, burst=1, tokens=0, now_ms=0)
    kernel.set_policy("slow", KeyPolicy(rate=0.001, burst=1))
    offer(kernel, "slow", 3, throttles=["t"])
    offer(kernel, "fast", 3, throttles=["t"])
    assert [kernel.take(5, now_ms)[0].key for now_ms in (100, 200, 300, 400)] == ["slow", "fast", "fast", "fast"]
    assert kernel.take(5, 500) == []


@pytest.mark.parametrize(("rate", "burst"), [(-1, None), (float("nan"), None), (1, 0.5), (None, 3), ("x", None)])
def test_a_rate_out_of_range_is_refused(rate: float | None, burst: float | None) -> None:
    """A policy with a bad rate, or with a burst and no rate, can't be made."""
    with pytest.raises(ValueError, match=r"[Rr]ate|burst"):
        KeyPolicy(rate=rate, burst=burst)


# ------------------------------------------------------------------------------------------------ made for names


def table(rate: float, burst: float) -> Throttles:
    """Return a table whose provider limits all names that begin with t."""
    throttles = Throttles()
    throttles.set_provider(lambda name: Limit(rate, burst, family="t*") if name.startswith("t") else None, now_ms=0)
    return throttles


def test_a_million_names_leave_only_the_buckets_that_are_not_full() -> None:
    """Buckets that nothing uses are forgotten when they are full, and are full when they are made again."""
    throttles = table(100, 2)
    kernel: Kernel[Item] = Kernel(throttles=throttles, idle_keys_max=10)
    for number in range(20_000):
        offer(kernel, f"k{number}", 1, throttles=[f"t{number}"], now_ms=number)
        assert len(kernel.take(1, number)) == 1
    assert sum(1 for _ in throttles) <= 30
    (counts,) = throttles.counts(20_000)
    assert (counts.name, counts.passed) == ("t*", 20_000)


def test_names_that_are_invented_faster_than_buckets_fill_are_bounded() -> None:
    """Beyond the limit, buckets are forgotten early, and a name that comes back has no more than it has earned."""
    throttles = table(0.001, 3)
    life = Life()
    for number in range(IDLE_BUCKETS_MAX + 1_000):
        portion = throttles.join(f"t{number}", "", life, number)
        portion.take(1)
        throttles.leave(portion, number)
    assert sum(1 for _ in throttles) == IDLE_BUCKETS_MAX
    portion = throttles.join("t0", "", life, 70_000)
    assert portion.ready() == 2
    portion.take(2)
    assert not portion.has_token(70_000)


def test_the_provider_is_overridden_by_a_name_and_comes_back() -> None:
    """A throttle that is set by name keeps its tokens, and returns to the provider's limit when it is removed."""
    throttles = table(10, 5)
    kernel: Kernel[Item] = Kernel(throttles=throttles)
    offer(kernel, "a", 30, throttles=["t1"])
    offer(kernel, "b", 30, throttles=["free"])
    assert len(kernel.take(50, 0)) == 35
    throttles.set("t1", rate=1000, burst=2, now_ms=0)
    assert len(kernel.take(50, 10)) == 2
    assert throttles.remove("t1", now_ms=10)
    assert not throttles.remove("t1", now_ms=10)
    assert len(kernel.take(50, 110)) == 1
    throttles.set_provider(None, now_ms=110)
    assert len(kernel.take(50, 110)) == 22
    assert list(throttles) == []
