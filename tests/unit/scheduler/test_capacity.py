"""A limit on items in use in all, and floors that hold whatever others use."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy, WaitReason
from tests.unit.scheduler.workload import offer


def limited(most: int, **floors: int) -> Kernel[Item]:
    """Return a kernel with a limit on items in use, and keys with floors."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    kernel.set_in_use_max(most)
    for key, floor in floors.items():
        kernel.set_policy(key, KeyPolicy(floor=floor))
    return kernel


def keys_at(kernel: Kernel[Item], count: int = 100) -> Counter[Key]:
    return Counter(item.key for item in kernel.take(count, 0))


def test_no_more_are_in_use_than_may_be() -> None:
    """Items go one for one as others are released, in turns."""
    kernel = limited(4)
    offer(kernel, "a", 10)
    assert keys_at(kernel) == {"a": 4}
    (waiting,) = offer(kernel, "b", 1)
    explanation = kernel.explain(waiting, 0)
    assert (explanation.reason, explanation.key) == (WaitReason.CAPPED, None)
    assert not kernel.has_ready() or keys_at(kernel) == {}
    kernel.release("a", 2)
    assert kernel.has_ready()
    assert keys_at(kernel) == {"a": 1, "b": 1}


def test_a_key_below_its_floor_goes_even_if_others_use_all() -> None:
    """A floor is added to the limit if it must be, and what is above it is not."""
    kernel = limited(4, b=2)
    offer(kernel, "a", 10)
    assert keys_at(kernel) == {"a": 4}
    offer(kernel, "b", 10)
    assert keys_at(kernel) == {"b": 2}
    kernel.release("a", 1)
    assert keys_at(kernel) == {}
    kernel.release("b", 1)
    assert keys_at(kernel) == {"b": 1}
    kernel.release("a", 2)
    assert sum(keys_at(kernel).values()) == 1


def test_a_limit_that_changes_acts_at_once() -> None:
    """Raised, lowered and removed, with floors that change."""
    kernel = limited(2)
    offer(kernel, "a", 10)
    offer(kernel, "b", 10)
    assert sum(keys_at(kernel).values()) == 2
    kernel.set_in_use_max(4)
    assert sum(keys_at(kernel).values()) == 2
    kernel.set_in_use_max(1)
    assert keys_at(kernel) == {}
    kernel.set_policy("a", KeyPolicy(floor=3, cap=5))
    assert keys_at(kernel) == {"a": 1}
    kernel.set_in_use_max(None)
    assert keys_at(kernel) == {"a": 2, "b": 8}


def test_a_limit_holds_for_items_that_waited_before_it_was_set() -> None:
    """A kernel without a limit gets one while plain items wait, and loses it again."""
    kernel: Kernel[Item] = Kernel(counts_use=True)
    offer(kernel, "a", 10)
    kernel.set_in_use_max(4)
    assert keys_at(kernel) == {"a": 4}
    kernel.set_in_use_max(None)
    assert keys_at(kernel) == {"a": 6}


def test_shares_follow_weights_at_the_limit() -> None:
    """With one release at a time, keys still get items by weight."""
    kernel = limited(10)
    kernel.set_policy("heavy", KeyPolicy(weight=3))
    offer(kernel, "heavy", 2_000)
    offer(kernel, "light", 2_000)
    held = [item.key for item in kernel.take(10, 0)]
    served: Counter[Key] = Counter()
    for _ in range(1_200):
        kernel.release(held.pop(0))
        (item,) = kernel.take(1, 0)
        held.append(item.key)
        served[item.key] += 1
    assert abs(served["heavy"] - 900) <= 10


def test_room_that_a_key_can_t_use_goes_to_another() -> None:
    """A crowded key that is paused or throttled keeps no room from others."""
    kernel = limited(1)
    kernel.throttles.set("shut", rate=0, burst=1, tokens=0, now_ms=0)
    offer(kernel, "a", 1)
    assert keys_at(kernel) == {"a": 1}
    offer(kernel, "paused", 1)
    offer(kernel, "shut", 1, throttles=["shut"])
    offer(kernel, "free", 1)
    assert keys_at(kernel) == {}
    kernel.pause("paused")
    kernel.release("a")
    assert keys_at(kernel) == {"free": 1}


steps = st.lists(
    st.tuples(st.sampled_from(["offer", "take", "release", "limit"]), st.sampled_from("abcd"), st.integers(0, 4)),
    max_size=80,
)


@pytest.mark.parametrize("strict_priority", [False, True])
@settings(max_examples=150, deadline=None)
@given(steps=steps, floors=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)))
def test_exactly_those_go_that_a_naive_model_lets_go(
    strict_priority: bool, steps: list[tuple[str, str, int]], floors: dict[str, int]
) -> None:
    """After any steps, each item that goes may go, and a short take means that no key may."""
    kernel: Kernel[Item] = Kernel(counts_use=True, strict_priority=strict_priority)
    most = 3
    kernel.set_in_use_max(most)
    for key in "abcd":
        kernel.set_policy(key, KeyPolicy(floor=floors.get(key, 0), cap=4))
    waiting: Counter[Key] = Counter()
    in_use: Counter[Key] = Counter()

    def may(key: Key) -> bool:
        below = in_use[key] < floors.get(str(key), 0) or sum(in_use.values()) < most
        return waiting[key] > 0 and in_use[key] < 4 and below

    for what, key, number in steps:
        if what == "offer":
            kernel.offer_many([Item(key) for _ in range(number)], 0)
            waiting[key] += number
        elif what == "release" and in_use[key]:
            kernel.release(key)
            in_use[key] -= 1
        elif what == "limit":
            most = number
            kernel.set_in_use_max(most)
        elif what == "take":
            taken = kernel.take(number, 0)
            for item in taken:
                assert may(item.key)
                waiting[item.key] -= 1
                in_use[item.key] += 1
            if len(taken) < number:
                assert not any(may(each) for each in "abcd")
