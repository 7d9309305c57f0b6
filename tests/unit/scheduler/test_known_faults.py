"""What an in-process fair scheduler must do, and faults that such schedulers are known to have."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from fairlane.scheduler import Backpressure, Item, Kernel, Key, KeyPolicy, Priority, RefusalReason
from tests.unit.scheduler.workload import offer, take_keys

# ------------------------------------------------------------------------------------- required behaviour (list A5)


def test_1_an_expired_item_is_accepted_and_never_handed_out() -> None:
    """Offered past its deadline it counts as expired at once."""
    kernel: Kernel[Item] = Kernel()
    assert kernel.offer(Item("a", deadline_ms=4), 5) is None
    assert (kernel.take(1, 5), len(kernel), len(kernel.reap(5))) == ([], 0, 1)


def test_4_and_5_cold_keys_are_seen_early_behind_a_hot_one() -> None:
    """Each of 32 cold keys behind 400 hot items is served within 64 items."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "hot", 400)
    for at in range(32):
        offer(kernel, f"cold {at}")
    assert len(set(take_keys(kernel, 64))) == 33


def test_6_and_17_expired_items_take_no_space() -> None:
    """120 expired beside 24 live: 24 are handed out, 120 reported, and the full key takes new ones."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=144)
    offer(kernel, "a", 120, deadline_ms=1)
    offer(kernel, "a", 24)
    assert kernel.offer(Item("a"), 2) is None
    assert (len(kernel.take(200, 2)), len(kernel.reap(2)), len(kernel)) == (25, 120, 0)


def test_2_3_and_7_limits_are_exact() -> None:
    """With 8 keys of 4 items each, a key is full, the kernel is full, and 8 taken items free space for 8."""
    kernel: Kernel[Item] = Kernel(waiting_max=32, key_waiting_max=4)
    for at in range(8):
        offer(kernel, f"key {at}", 4)
    own, new = kernel.offer(Item("key 0"), 0), kernel.offer(Item("new"), 0)
    assert own is not None
    assert new is not None
    assert (own.reason, new.reason) == (RefusalReason.KEY_FULL, RefusalReason.GLOBAL_FULL)
    kernel.take(8, 0)
    refused = [kernel.offer(Item(f"new {at}"), 0) for at in range(9)]
    assert refused[:8] == [None] * 8
    assert refused[8] is not None


@pytest.mark.parametrize(("how", "left"), [(Backpressure.DROP_OLDEST, [1, 2]), (Backpressure.DROP_NEWEST, [0, 2])])
def test_8_and_11_drop_policies_choose_their_victim(how: Backpressure, left: list[int]) -> None:
    """With a limit of two, the third item drops the oldest or the newest, only for the key with that policy."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=2)
    kernel.set_policy("a", KeyPolicy(backpressure=how))
    items = offer(kernel, "a", 3)
    offer(kernel, "b", 2)
    assert kernel.offer(Item("b"), 0) is not None
    assert kernel.reap(0)[0].item not in [items[at] for at in left]
    assert [item for item in kernel.take(4, 0) if item.key == "a"] == [items[at] for at in left]


def test_9_high_pushes_out_low_and_never_the_other_way() -> None:
    """A full key drops an item of its lowest priority for one of a higher priority."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=1, backpressure=Backpressure.DROP_OLDEST)
    (low,) = offer(kernel, "a", priority=Priority.LOW)
    (high,) = offer(kernel, "a", priority=Priority.HIGH)
    refusal = kernel.offer(Item("a", priority=Priority.LOW), 0)
    assert refusal is not None
    assert refusal.reason is RefusalReason.KEY_FULL
    assert [departure.item for departure in kernel.reap(0)] == [low]
    assert kernel.take(2, 0) == [high]


def test_12_and_14_an_expensive_item_is_served_in_time_and_sooner_with_a_larger_quantum() -> None:
    """Cost 10 is served within 11 items at quantum 1, and within 2 at quantum 10."""
    for quantum, within in ((1, 11), (10, 2)):
        kernel: Kernel[Item] = Kernel()
        offer(kernel, "cheap", 50)
        offer(kernel, "dear", cost=10)
        kernel.set_policy("dear", KeyPolicy(quantum=quantum))
        assert "dear" in take_keys(kernel, within)


def test_16_and_18_cancelled_items_take_no_space() -> None:
    """A full key with all but one item cancelled accepts all but one again."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=5)
    for item in offer(kernel, "a", 5)[1:]:
        kernel.cancel(item)
    assert len(kernel) == 1
    offer(kernel, "a", 4)


def test_20_a_key_that_ran_empty_is_served_again() -> None:
    """Items offered after an empty period are handed out, for every key."""
    kernel: Kernel[Item] = Kernel()
    for _ in range(3):
        for at in range(4):
            offer(kernel, f"key {at}")
        assert len(kernel.take(9, 0)) == 4


def test_21_an_expensive_item_gets_through_among_expired_and_cheap_ones() -> None:
    """200 expired and 100 cheap items do not keep an item of cost 50 from its turn."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "expired", 200, deadline_ms=1)
    offer(kernel, "cheap", 100)
    offer(kernel, "dear", cost=50)
    assert "dear" in take_keys(kernel, 52, now_ms=2)


# ------------------------------------------------------------------------------------- measured faults (list A6)


@pytest.mark.parametrize("weight", [5, 10, 100])
@pytest.mark.parametrize("cost", [1, 10])
def test_fault_1_weights_are_exact(weight: int, cost: int) -> None:
    """Weights 5:1, 10:1 and 100:1 give exactly that."""
    kernel: Kernel[Item] = Kernel()
    kernel.set_policy("heavy", KeyPolicy(weight=weight))
    offer(kernel, "heavy", 20 * weight, cost=cost)
    offer(kernel, "light", 20, cost=cost)
    served = Counter(take_keys(kernel, 10 * (weight + 1)))
    assert abs(served["heavy"] - 10 * weight) <= weight
    assert abs(served["light"] - 10) <= 1


@pytest.mark.parametrize("quantum", [1, 10, 100])
def test_fault_1_costs_are_fair_at_any_quantum(quantum: int) -> None:
    """With items of cost 10 and 1, both keys are served the same total cost."""
    kernel: Kernel[Item] = Kernel(quantum=quantum)
    offer(kernel, "dear", 1000, cost=10)
    offer(kernel, "cheap", 10_000)
    served = Counter(take_keys(kernel, 5500))
    assert abs(10 * served["dear"] - served["cheap"]) <= quantum + 11


@pytest.mark.parametrize("how", ["expiry", "cancel"])
def test_fault_2_churn_does_not_break_fairness(how: str) -> None:
    """A key whose items keep expiring or being cancelled has one entry in the ring, not one per item."""
    kernel: Kernel[Item] = Kernel()
    now_ms = 0
    offer(kernel, "calm", 1000)
    for _ in range(100):
        now_ms += 10
        churned = offer(kernel, "churned", 3, now_ms=now_ms, deadline_ms=now_ms + 1)
        if how == "cancel":
            for item in churned:
                kernel.cancel(item)
        kernel.reap(now_ms + 5)
    offer(kernel, "churned", 1000, now_ms=now_ms)
    assert Counter(take_keys(kernel, 400, now_ms)) == {"calm": 200, "churned": 200}


def test_fault_3_strict_priority_is_strict() -> None:
    """A low key with credit left waits for a high one that has just come."""
    kernel: Kernel[Item] = Kernel(quantum=10, strict_priority=True)
    offer(kernel, "low", 50, priority=Priority.LOW)
    kernel.take(1, 0)
    offer(kernel, "high", 50, priority=Priority.HIGH)
    assert take_keys(kernel, 50) == ["high"] * 50


def test_fault_5_eligible_work_is_never_reported_as_none() -> None:
    """The first take on a fresh queue hands an item out, whatever it costs."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", cost=10_000)
    assert len(kernel.take(1, 0)) == 1


def test_fault_6_no_key_below_its_limit_is_full() -> None:
    """Limit 100, the last 50 cancelled: 50 more are accepted."""
    kernel: Kernel[Item] = Kernel(key_waiting_max=100)
    for item in offer(kernel, "a", 100)[50:]:
        kernel.cancel(item)
    offer(kernel, "a", 50)


def test_fault_7_keys_are_forgotten_and_save_nothing_up() -> None:
    """Ten thousand keys used once leave few behind, and an idle key has no credit."""
    kernel: Kernel[Item] = Kernel(quantum=10, idle_keys_max=100)
    for at in range(10_000):
        offer(kernel, f"key {at}")
    kernel.take(10_000, 0)
    assert kernel.known_keys() <= 100
    assert kernel.deficit("key 9999") == 0


@pytest.mark.parametrize("how", [Backpressure.DROP_OLDEST, Backpressure.DROP_NEWEST])
def test_fault_9_a_new_key_gets_in_when_others_fill_the_limit(how: Backpressure) -> None:
    """The longest key loses an item, and the loss is reported."""
    kernel: Kernel[Item] = Kernel(waiting_max=100, backpressure=how)
    offer(kernel, "flood", 99)
    offer(kernel, "small")
    assert kernel.offer(Item("new"), 0) is None
    assert [departure.item.key for departure in kernel.reap(0)] == ["flood"]
    assert (kernel.waiting("small"), kernel.waiting("new")) == (1, 1)


# ----------------------------------------------------------------------------------------------- required results


def test_weights_one_to_five_are_met_in_total_and_in_every_window() -> None:
    """Over 5000 items each share is within 0.2 %, and within 5 % in any window of 150."""
    kernel: Kernel[Item] = Kernel()
    for weight in range(1, 6):
        kernel.set_policy(f"weight {weight}", KeyPolicy(weight=weight))
        offer(kernel, f"weight {weight}", 2000)
    order = take_keys(kernel, 5000)
    served = Counter(order)
    for weight in range(1, 6):
        name, share = f"weight {weight}", Fraction(weight, 15)
        assert abs(served[name] - 5000 * share) <= Fraction(2, 1000) * 5000 * share
        window = order[:150].count(name)
        for at in range(150, 5000):
            window += (order[at] == name) - (order[at - 150] == name)
            assert abs(window - 150 * share) <= Fraction(5, 100) * 150 * share


@pytest.mark.no_cover
def test_ten_thousand_equal_keys_are_served_alike() -> None:
    """Jain's index over 10 000 keys is at least 0.999."""
    kernel: Kernel[Item] = Kernel()
    for at in range(10_000):
        offer(kernel, f"key {at}", 10)
    served = Counter(take_keys(kernel, 50_000)).values()
    assert sum(served) ** 2 / (10_000 * sum(count * count for count in served)) >= 0.999
    assert max(served) - min(served) <= 1


@pytest.mark.no_cover
@pytest.mark.parametrize("spread", [1, 1000])
def test_a_flood_of_a_million_costs_a_quiet_key_one_turn(spread: int) -> None:
    """Behind a million items of one key, or of a thousand sub-keys of it, a quiet key waits for one turn."""
    kernel: Kernel[Item] = Kernel()
    keys: list[Key] = ["flood"] if spread == 1 else [("flood", f"sub {at}") for at in range(spread)]
    for key in keys:
        kernel.offer_many([Item(key) for _ in range(1_000_000 // spread)], 0)
    kernel.take(10, 0)
    for _ in range(100):
        (quiet,) = offer(kernel, "quiet")
        assert quiet in kernel.take(2, 0)
