"""Throttled keys reach their rate among competitors, and never exceed it in any window."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy

pytestmark = pytest.mark.no_cover

COMPETITORS = 10


def served_at(rate: int, burst: int, weight: int, *, capacity: int, wanted: int) -> list[int]:
    """Return the instants at which a throttled key is served among ten backlogged competitors.

    The consumer serves ``capacity`` items per second of virtual time, one after the other.
    """
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("slow", rate=rate, burst=burst, tokens=0, now_ms=0)
    kernel.set_policy("throttled", KeyPolicy(weight=weight))
    kernel.offer_many([Item("throttled", throttles=["slow"]) for _ in range(wanted + 10)], 0)
    served: list[int] = []
    names = [f"rival {at}" for at in range(COMPETITORS)]
    total = 0
    while len(served) < wanted and total * 1000 // capacity < 30_000:
        now_ms = total * 1000 // capacity
        for name in names:
            if kernel.waiting(name) < 2:
                kernel.offer_many([Item(name) for _ in range(20)], now_ms)
        served += [now_ms for item in kernel.take(1, now_ms) if item.key == "throttled"]
        total += 1
    return served


def assert_never_above(served: list[int], rate: int, burst: int) -> None:
    """Assert that no window holds more than rate * t + burst; windows that begin and end with an item suffice."""
    for first in range(len(served)):
        for last in range(first, len(served)):
            elapsed_ms = served[last] - served[first]
            assert last - first + 1 <= Fraction(rate * elapsed_ms, 1000) + burst


@pytest.mark.parametrize("weight", [1, 10, 100])
@pytest.mark.parametrize(
    ("rate", "burst", "wanted"),
    [(1, 1, 5), (7, 1, 40), (100, 1, 150), (500, 1, 200), (1, 5, 5), (7, 5, 40), (100, 5, 150), (900, 5, 200)],
)
def test_a_throttled_key_reaches_its_rate_among_ten_competitors(
    rate: int, burst: int, wanted: int, weight: int
) -> None:
    """With a fair share above its rate, a key is served at no less than 95 % of the rate and never above it."""
    capacity = 20 * rate if rate >= 100 else 2000
    served = served_at(rate, burst, weight, capacity=capacity, wanted=wanted)
    assert_never_above(served, rate, burst)
    expected_ms = Fraction(1000 * wanted, rate)
    assert len(served) == wanted
    assert served[-1] <= expected_ms / Fraction(95, 100) + 20


@pytest.mark.parametrize("burst", [5, 50])
def test_a_rate_of_thousands_a_second_is_reached(burst: int) -> None:
    """5000 per second, more than one item per millisecond, is reached with a burst that spans the clock's step."""
    served = served_at(5000, burst, 10, capacity=50_000, wanted=2000)
    assert len(served) == 2000
    assert served[-1] <= 400 / 0.95 + 5


@settings(max_examples=30, deadline=None)
@given(
    rate=st.integers(1, 500),
    burst=st.integers(1, 20),
    gaps=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=60),
)
def test_no_window_ever_exceeds_rate_and_burst(rate: int, burst: int, gaps: list[tuple[int, int]]) -> None:
    """However irregular the takes, no window has more than rate * t + burst."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("slow", rate=rate, burst=burst, now_ms=0)
    for key in ("a", "b", ("c", "x")):
        kernel.offer_many([Item(key, throttles=["slow"]) for _ in range(500)], 0)
    now_ms, served = 0, []
    for gap, count in gaps:
        now_ms += gap
        served += [now_ms] * len(kernel.take(count, now_ms))
    assert_never_above(served, rate, burst)


def tokens_by_tenant(kernel: Kernel[Item], *, milliseconds: int) -> Counter[str]:
    """Count how many items each outermost key is served behind a shared throttle."""
    served: Counter[str] = Counter()
    for now_ms in range(1, milliseconds + 1):
        for item in kernel.take(10, now_ms):
            served[item.key if isinstance(item.key, str) else item.key[0]] += 1
    return served


def offer_throttled(kernel: Kernel[Item], key: Key, count: int, extra: str | None = None) -> None:
    names = ["shared"] if extra is None else ["shared", extra]
    kernel.offer_many([Item(key, throttles=names) for _ in range(count)], 0)


@pytest.mark.parametrize("burst", [1, 10])
def test_the_tokens_of_a_shared_throttle_are_split_by_weight(burst: int) -> None:
    """Keys with weights 1, 2 and 5 behind one throttle get its tokens 1:2:5."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("shared", rate=500, burst=burst, tokens=0, now_ms=0)
    for name, weight in (("a", 1), ("b", 2), ("c", 5)):
        kernel.set_policy(name, KeyPolicy(weight=weight))
        offer_throttled(kernel, name, 2000)
    served = tokens_by_tenant(kernel, milliseconds=3200)
    assert sum(served.values()) >= 1600 - burst
    for name, share in (("a", 200), ("b", 400), ("c", 1000)):
        assert abs(served[name] - share) <= 10


def test_the_tokens_are_split_by_weight_among_unthrottled_rivals_too() -> None:
    """A token that waits some milliseconds for its key's turn still goes to the key whose turn it is."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("shared", rate=100, burst=1, tokens=0, now_ms=0)
    for name, weight in (("a", 1), ("b", 2), ("c", 5)):
        kernel.set_policy(name, KeyPolicy(weight=weight))
        offer_throttled(kernel, name, 1000)
    for at in range(3):
        kernel.offer_many([Item(f"rival {at}") for _ in range(10_000)], 0)
    served: Counter[Key] = Counter()
    for now_ms in range(1, 16_001):
        served.update(item.key for item in kernel.take(1, now_ms))
    total = served["a"] + served["b"] + served["c"]
    assert total >= 0.9 * 1600
    for name, weight in (("a", 1), ("b", 2), ("c", 5)):
        assert abs(served[name] - total * weight / 8) <= 0.05 * total


def test_a_tenant_with_a_thousand_sub_keys_gets_no_more_tokens() -> None:
    """Behind a shared throttle, 1000 sub-keys together get what one key gets."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("shared", rate=500, burst=1, tokens=0, now_ms=0)
    offer_throttled(kernel, "one", 2000)
    for at in range(1000):
        offer_throttled(kernel, ("many", f"sub {at}"), 3)
    served = tokens_by_tenant(kernel, milliseconds=4000)
    assert sum(served.values()) >= 1990
    assert abs(served["one"] - served["many"]) <= 10


def test_a_tenant_with_a_hundred_lanes_gets_no_more_tokens() -> None:
    """Behind a shared throttle, a key with 100 sets of throttles gets what a key with one gets."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("shared", rate=500, burst=1, tokens=0, now_ms=0)
    offer_throttled(kernel, "one", 2000)
    for at in range(100):
        offer_throttled(kernel, "many", 30, extra=f"recipient {at}")
    served = tokens_by_tenant(kernel, milliseconds=4000)
    assert sum(served.values()) >= 1990
    assert abs(served["one"] - served["many"]) <= 10


@pytest.mark.parametrize(
    ("rate", "weight", "rivals"),
    [
        pytest.param(250, 1, {"b": 2}, id="a rival with longer turns"),
        pytest.param(250, 100, {"b": 100, "c": 100}, id="everybody with very long turns"),
        pytest.param(500, 100, dict.fromkeys("bcdefghijk", 1), id="ten rivals with short turns"),
        pytest.param(50, 1, dict.fromkeys("bcdefghijk", 1), id="ten rivals like itself"),
    ],
)
def test_the_smallest_burst_suffices_when_the_consumer_has_little_to_spare(
    rate: int, weight: int, rivals: dict[str, int]
) -> None:
    """With a busy consumer of 1,000 items per second, a burst of 1 suffices for 95 % of a rate below the share."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("slow", rate=rate, burst=1, tokens=0, now_ms=0)
    for key, share in {"a": weight, **rivals}.items():
        kernel.set_policy(key, KeyPolicy(weight=share))
        kernel.offer_many([Item(key, throttles=["slow"] if key == "a" else ()) for _ in range(5_000)], 0)
    served = [item.key for now_ms in range(5_000) for item in kernel.take(1, now_ms)]
    assert served.count("a") >= 0.95 * rate * 5
