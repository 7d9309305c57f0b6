"""Throttles, and rates of keys, that take as many tokens as an item costs."""

from __future__ import annotations

import pytest

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy, Priority, Throttles, WaitReason
from tests.unit.scheduler.workload import offer


def charged(rate: float, burst: float, *, tokens: float | None = None) -> Kernel[Item]:
    """Return a kernel with a throttle ``t`` that charges by cost, and a quantum that pays for everything."""
    kernel: Kernel[Item] = Kernel(quantum=1_000)
    kernel.throttles.set("t", rate=rate, burst=burst, tokens=tokens, charges_cost=True, now_ms=0)
    return kernel


def keys_at(kernel: Kernel[Item], now_ms: int) -> list[Key]:
    return [item.key for item in kernel.take(100, now_ms)]


def test_two_items_of_cost_five_pass_a_burst_of_ten() -> None:
    """The third one waits until five tokens have been earned, and the kernel knows when."""
    kernel = charged(10, 10)
    items = offer(kernel, "a", 4, cost=5, throttles=["t"])
    assert kernel.take(10, 0) == items[:2]
    assert kernel.next_event_at() == 500
    explanation = kernel.explain(items[2], 0)
    assert (explanation.reason, explanation.until_ms) == (WaitReason.THROTTLED, 500)
    assert str(explanation) == "Throttle 't' has too few tokens for 500 ms."
    assert kernel.take(10, 499) == []
    assert kernel.take(10, 500) == [items[2]]


def test_an_item_above_the_burst_goes_when_the_bucket_is_full_and_leaves_a_debt() -> None:
    """It waits for a full bucket, takes all it costs, and everything behind it waits until that is earned."""
    kernel = charged(10, 10, tokens=9)
    big = offer(kernel, "a", 1, cost=30, throttles=["t"])
    small = offer(kernel, "a", 1, cost=1, throttles=["t"])
    assert kernel.take(10, 0) == []
    assert kernel.take(10, 100) == big
    assert kernel.next_event_at() == 100 + 2_100
    assert kernel.take(10, 2_199) == []
    assert kernel.take(10, 2_200) == small


def test_cheap_items_do_not_overtake_a_costly_one_for_ever() -> None:
    """Tokens are saved for the lane that is next, also from keys that come later."""
    kernel = charged(10, 10, tokens=0)
    offer(kernel, "costly", 3, cost=8, throttles=["t"])
    assert keys_at(kernel, 0) == []
    served: list[Key] = []
    for now_ms in range(0, 8_000, 100):
        offer(kernel, f"cheap-{now_ms}", 1, now_ms, cost=1, throttles=["t"])
        served += keys_at(kernel, now_ms)
    assert served[0] == "costly"
    assert served.count("costly") == 3
    assert 70 <= 3 * 8 + len(served) - 3 <= 80


def test_a_message_that_can_t_go_keeps_no_tokens_from_others() -> None:
    """The lane of a paused key is passed over when its tokens are there."""
    kernel = charged(10, 10, tokens=0)
    offer(kernel, "paused", 1, cost=8, throttles=["t"])
    offer(kernel, "other", 2, cost=2, throttles=["t"])
    assert keys_at(kernel, 0) == []
    kernel.pause("paused")
    assert keys_at(kernel, 800) == ["other", "other"]
    kernel.resume("paused")
    assert keys_at(kernel, 1_200) == ["paused"]


@pytest.mark.parametrize("costs", [(2, 2), (8, 8), (1, 9), (30, 1)])
def test_kernels_share_a_throttle_that_charges_by_cost(costs: tuple[int, int]) -> None:
    """Two kernels with items of any cost take equal numbers of tokens, and together no more than there are."""
    throttles = Throttles()
    throttles.set("t", rate=100, burst=20, charges_cost=True, now_ms=0)
    kernels: list[Kernel[Item]] = [Kernel(quantum=1_000, throttles=throttles, name=name) for name in "ab"]
    for kernel, cost in zip(kernels, costs, strict=True):
        offer(kernel, "k", 3_000, cost=cost, throttles=["t"])
    spent = [0, 0]
    for now_ms in range(1, 20_001):
        for at in sorted(range(2), key=lambda at: kernels[at].standing() or 0):
            spent[at] += sum(item.cost for item in kernels[at].take(1, now_ms))
    most = 100 * 20 + 20
    assert most - 40 <= sum(spent) <= most + max(costs)
    assert abs(spent[0] - spent[1]) <= 2 * max(costs) + 20


def test_a_charge_that_changes_acts_at_once() -> None:
    """What waits is charged by message from the moment on at which the throttle is."""
    kernel = charged(10, 10)
    offer(kernel, "a", 20, cost=5, throttles=["t"])
    assert len(kernel.take(50, 0)) == 2
    kernel.throttles.set("t", rate=10, burst=10, now_ms=500)
    assert len(kernel.take(50, 500)) == 5


def test_a_throttle_that_is_removed_holds_nothing_back() -> None:
    """Without a limit there is no charge: everything goes at once, and no event is left."""
    kernel = charged(10, 10)
    offer(kernel, "a", 20, cost=5, throttles=["t"])
    offer(kernel, "b", 20, cost=1, throttles=["t"])
    assert kernel.take(50, 0) != []
    kernel.throttles.remove("t", now_ms=0)
    offer(kernel, "c", 5, cost=1, throttles=["t"])
    kernel.take(100, 0)
    assert len(kernel) == 0
    assert kernel.next_event_at() is None


def test_a_kernel_that_joins_gets_its_part_of_a_bucket_that_others_fill() -> None:
    """Kernels without consumers hold their parts, and no more, so a message of a third one never waits for ever."""
    throttles = Throttles()
    throttles.set("t", rate=10, burst=10, charges_cost=True, now_ms=0)
    kernels: list[Kernel[Item]] = [Kernel(quantum=1_000, throttles=throttles, name=name) for name in "abc"]
    for kernel in kernels[:2]:
        offer(kernel, "k", 5, cost=2, throttles=["t"])
    kernels[0].take(0, 1_000)
    offer(kernels[2], "k", 2, 1_000, cost=8, throttles=["t"])
    assert [item.cost for item in kernels[2].take(1, 1_000)] == [8]


# ------------------------------------------------------------------------------------------------- rates of keys


def charged_keys(rate: float, burst: float, *, quantum: int = 1_000, **more: bool) -> Kernel[Item]:
    """Return a kernel in which every outermost key has a rate that charges by cost."""
    kernel: Kernel[Item] = Kernel(quantum=quantum, **more)  # type: ignore[arg-type] # flags
    policy = KeyPolicy(rate=rate, burst=burst, charges_cost=True)
    kernel.set_policy_provider(lambda key: policy if isinstance(key, str) else None)
    return kernel


def test_a_rate_of_a_key_takes_what_its_items_cost() -> None:
    """Of a burst of ten, two items of cost five go; the third waits for five tokens, and other keys have their own."""
    kernel = charged_keys(10, 10)
    items = offer(kernel, "a", 4, cost=5)
    others = offer(kernel, "b", 1, cost=10)
    assert kernel.take(10, 0) == [*items[:2], *others]
    assert kernel.next_event_at() == 500
    explanation = kernel.explain(items[2], 0)
    assert (explanation.reason, explanation.key, explanation.until_ms) == (WaitReason.THROTTLED, "a", 500)
    assert str(explanation) == "Key 'a' has too few tokens of its rate for 500 ms."
    assert kernel.take(10, 499) == []
    assert kernel.take(10, 500) == [items[2]]
    assert kernel.holdups()[items[2]].throttled_ms == 500


def test_an_item_above_the_burst_of_its_key_leaves_a_debt() -> None:
    """It goes when the bucket is full, and the next item of the key when the debt is earned."""
    kernel = charged_keys(10, 10)
    big, small = offer(kernel, "a", 1, cost=30), offer(kernel, "a", 1, cost=1)
    assert kernel.take(10, 0) == big
    assert kernel.next_event_at() == 2_100
    assert kernel.take(10, 2_100) == small


def test_tokens_of_a_key_are_saved_for_the_item_whose_turn_it_is() -> None:
    """A sub-key with cheap items does not take what the costly item of another one waits for."""
    kernel = charged_keys(10, 10)
    assert offer(kernel, ("a", "x"), 1, cost=10) == kernel.take(1, 0)
    costly = offer(kernel, ("a", "x"), 1, cost=8)
    assert kernel.take(10, 0) == []
    cheap = offer(kernel, ("a", "y"), 3)
    assert kernel.take(10, 700) == []
    assert kernel.take(10, 800) == costly
    assert kernel.take(10, 1_100) == cheap


def test_an_item_that_the_deficit_does_not_pay_for_saves_no_tokens() -> None:
    """With a quantum of 1, cheap items of other sub-keys go while a costly one collects its turns."""
    kernel = charged_keys(10, 10, quantum=1)
    costly, cheap = offer(kernel, ("a", "x"), 1, cost=6), offer(kernel, ("a", "y"), 10)
    assert kernel.take(100, 0) == cheap[:5]
    assert kernel.next_event_at() == 100
    assert kernel.take(100, 100) == costly


@pytest.mark.parametrize("how", ["key", "throttle"])
@pytest.mark.parametrize("leaves", ["cancelled", "expired"])
def test_what_an_item_lacked_is_forgotten_when_it_leaves(how: str, leaves: str) -> None:
    """The cheap item behind a costly one that is cancelled or expires goes when there are tokens for itself."""
    kernel = charged_keys(1, 100) if how == "key" else charged(1, 100)
    throttles = ["t"] if how == "throttle" else []
    offer(kernel, "a", 1, cost=100, throttles=throttles)
    kernel.take(10, 0)
    (costly,) = offer(kernel, "a", 1, cost=90, throttles=throttles, deadline_ms=5_000 if leaves == "expired" else None)
    cheap = offer(kernel, "a", 1, throttles=throttles)
    assert kernel.take(10, 1_000) == []
    if leaves == "cancelled":
        kernel.cancel(costly, 5_001)
        assert kernel.has_ready()
    else:
        assert kernel.next_event_at() == 5_001
    assert kernel.take(10, 5_001) == cheap


@pytest.mark.parametrize("strict_priority", [False, True])
def test_an_item_of_higher_priority_does_not_wait_for_the_tokens_of_another(strict_priority: bool) -> None:
    """It goes as soon as there are tokens for itself, and lower priorities take none of what a higher one waits for."""
    kernel = charged_keys(1, 10, strict_priority=strict_priority)
    offer(kernel, "a", 1, cost=10)
    kernel.take(10, 0)
    costly, low = offer(kernel, "a", 1, cost=8), offer(kernel, "a", 1, priority=Priority.LOW)
    assert kernel.take(10, 2_000) == []
    high = offer(kernel, "a", 1, 2_000, priority=Priority.HIGH)
    assert kernel.take(10, 2_000) == high
    assert kernel.take(10, 8_999) == []
    assert kernel.take(10, 9_000) == costly
    assert kernel.take(10, 10_000) == low


def test_a_sub_key_that_is_paused_leaves_the_tokens_to_the_others() -> None:
    """A key saves no tokens for an item that may not go."""
    kernel = charged_keys(1, 10)
    assert len(offer(kernel, ("a", "x"), 1, cost=10)) == len(kernel.take(10, 0))
    costly, cheap = offer(kernel, ("a", "x"), 1, cost=10), offer(kernel, ("a", "y"), 1)
    assert kernel.take(10, 1_000) == []
    kernel.pause(("a", "x"))
    assert kernel.take(10, 1_001) == cheap
    kernel.resume(("a", "x"))
    assert kernel.take(10, 10_999) == []
    assert kernel.take(10, 11_000) == costly


def test_the_charge_of_a_key_changes_at_once() -> None:
    """Tokens stay, and what waits is charged by the new rule from the moment of the change."""
    kernel = charged_keys(10, 10)
    offer(kernel, "a", 20, cost=5)
    assert len(kernel.take(50, 0)) == 2
    kernel.set_policy("a", KeyPolicy(rate=10, burst=10), 300)
    assert len(kernel.take(50, 300)) == 3
    kernel.set_policy("a", KeyPolicy(rate=10, burst=10, charges_cost=True), 700)
    assert len(kernel.take(50, 799)) == 0
    assert len(kernel.take(50, 800)) == 1


def test_a_charge_needs_a_rate() -> None:
    """A policy that charges by cost and has no rate can't be made."""
    with pytest.raises(ValueError, match="charges_cost needs a rate"):
        KeyPolicy(charges_cost=True)
