"""A kernel that says it has no prompt item hands out none, whatever has happened to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler import Item, Kernel, Key, KeyPolicy, Priority

pytestmark = pytest.mark.no_cover

KEYS: list[Key] = ["a", "b", ("c", "1"), ("c", "2"), "c"]
THROTTLES = ["x", "y"]
NUMBERS = st.integers(0, 400)
KEY = st.sampled_from(KEYS)
OFFERS = st.fixed_dictionaries(
    {
        "key": KEY,
        "priority": st.sampled_from(Priority),
        "throttles": st.sampled_from([(), (), (), ("x",), ("y",), ("x", "y")]),
        "due_in_ms": st.one_of(st.none(), st.none(), NUMBERS),
        "deadline_in_ms": st.one_of(st.none(), st.none(), st.none(), NUMBERS),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), OFFERS),
        st.tuples(st.just("offer"), OFFERS),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("wait"), NUMBERS),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("cap"), st.tuples(KEY, st.one_of(st.none(), st.integers(1, 3)))),
        st.tuples(st.just("pause"), KEY),
        st.tuples(st.just("resume"), KEY),
        st.tuples(st.just("rate"), st.tuples(st.sampled_from(THROTTLES), st.sampled_from([1, 10, 100]))),
    ),
    max_size=60,
)


class Course:
    """A kernel, and which of its keys have a cap."""

    def __init__(self, *, strict_priority: bool) -> None:
        self.kernel: Kernel[Item] = Kernel(counts_use=True, strict_priority=strict_priority)
        self.now_ms = 0
        self.caps: dict[Key, int | None] = {}
        self.items: list[Item] = []
        self.taken: list[Item] = []
        for name in THROTTLES:
            self.kernel.throttles.set(name, rate=10, burst=1, now_ms=0)

    def step(self, what: str, how: Any) -> None:
        """Do one thing."""
        kernel, now_ms = self.kernel, self.now_ms
        if what == "offer":
            due, deadline = how["due_in_ms"], how["deadline_in_ms"]
            item = Item(
                how["key"],
                priority=how["priority"],
                throttles=how["throttles"],
                due_ms=None if due is None else now_ms + due,
                deadline_ms=None if deadline is None else now_ms + deadline,
            )
            self.items.append(item)
            kernel.offer(item, now_ms)
        elif what == "take":
            self.take(how)
        elif what == "wait":
            self.now_ms += how
        elif what == "release" and self.taken:
            kernel.release(self.taken.pop(0).key)
        elif what == "cancel" and how < len(self.items):
            kernel.cancel(self.items[how], now_ms)
        elif what == "cap":
            key, self.caps[key] = how[0], how[1]
            kernel.set_policy(key, KeyPolicy(cap=how[1]))
        elif what in ("pause", "resume"):
            getattr(kernel, what)(how)
        elif what == "rate":
            kernel.throttles.set(how[0], rate=how[1], burst=1, now_ms=now_ms)

    def take(self, count: int) -> None:
        """Take items, and check what the kernel has said of them before."""
        self.kernel.reap(self.now_ms)
        has_prompt = self.kernel.has_prompt(self.now_ms)
        found = self.kernel.take(count, self.now_ms)
        self.taken += found
        assert has_prompt or not any(map(self.is_prompt, found))
        if len(found) < count:  # nothing more can go
            assert not self.kernel.take(1, self.now_ms)

    def is_prompt(self, item: Item) -> bool:
        """Return whether an item has a deadline or a throttle, or a key with a cap, itself or above."""
        path = (item.key,) if isinstance(item.key, str) else item.key
        keys = [path[0] if depth == 1 else path[:depth] for depth in range(1, len(path) + 1)]
        return bool(item.throttles) or item.deadline_ms is not None or any(self.caps.get(key) for key in keys)


@settings(max_examples=120, deadline=None)
@given(STEPS, st.booleans())
def test_no_prompt_item_comes_unannounced(steps: list[tuple[str, Any]], strict_priority: bool) -> None:
    """After False, a take at the same instant finds plain items only."""
    course = Course(strict_priority=strict_priority)
    for what, how in steps:
        course.step(what, how)


def test_a_token_that_nothing_waits_for_announces_nothing() -> None:
    """A throttle has a token, and the items that waited for it are cancelled: nothing prompt is left."""
    kernel: Kernel[Item] = Kernel()
    kernel.throttles.set("api", rate=1, burst=1, now_ms=0)
    first, second, other = (Item(key, throttles=("api",)) for key in ("a", "a", "b"))
    for item in (first, second, other):
        kernel.offer(item, 1_000)
    assert kernel.take(3, 1_000) == [first]
    kernel.reap(2_000)
    assert kernel.has_prompt(2_000)
    kernel.cancel(second, 2_000)
    kernel.cancel(other, 2_000)
    assert not kernel.has_prompt(2_000)


@given(st.lists(OFFERS, max_size=30))
def test_a_kernel_without_items_has_no_prompt_one(offers: list[dict[str, Any]]) -> None:
    """Whatever was in it and was taken, has expired or was cancelled, an empty kernel has nothing prompt."""
    course = Course(strict_priority=False)
    course.kernel.set_policy("a", KeyPolicy(cap=100))
    for offer in offers:
        course.step("offer", offer)
    for _ in range(40):
        course.now_ms += 1_000
        course.kernel.reap(course.now_ms)
        course.kernel.take(10, course.now_ms)
    assert len(course.kernel) == 0
    assert not course.kernel.has_prompt(course.now_ms)
