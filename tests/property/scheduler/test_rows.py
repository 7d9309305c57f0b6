"""Rows are handed out in the same order as items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.scheduler.item import Item, Key, Priority
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.policy import Backpressure, KeyPolicy

KEYS: tuple[Key, ...] = ("a", "b", "c", ("a", "x"))
KEY = st.sampled_from(KEYS)

MIXED = st.lists(KEY, min_size=1, max_size=60)
RUNS = st.lists(st.tuples(KEY, st.integers(1, 150)), min_size=1, max_size=4).map(
    lambda runs: [key for key, count in runs for _ in range(count)]
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.one_of(MIXED, RUNS)),
        st.tuples(st.just("take"), st.one_of(st.integers(1, 25), st.integers(26, 300))),
        st.tuples(st.just("item"), KEY, st.sampled_from(("plain", "cost", "high", "throttled", "delayed"))),
        st.tuples(st.just("cancel"), st.integers(0, 800)),
        st.tuples(st.just("again"), st.integers(0, 30)),
        st.tuples(st.just("release"), st.integers(1, 10)),
        st.tuples(st.just("policy"), KEY, st.sampled_from((1, 2, 5)), st.sampled_from((None, 1, 3))),
        st.tuples(
            st.just("victim"),
            KEY,
            st.sampled_from((Backpressure.DROP_OLDEST, Backpressure.DROP_NEWEST)),
            st.sampled_from(("of the key", "of the longest key")),
        ),
        st.tuples(st.just("explain"), st.integers(0, 800)),
        st.tuples(st.just("time"), st.integers(1, 500)),
    ),
    max_size=40,
)


class Numbered(Item):
    """An item that knows its number."""

    __slots__ = ("number",)

    def __init__(self, number: int, key: Key, **terms: Any) -> None:
        super().__init__(key, **terms)
        self.number = number


class Side:
    """A kernel to which plain items are offered as rows or as items, and what it has handed out."""

    def __init__(self, *, with_rows: bool, quantum: int, is_strict: bool) -> None:
        self.with_rows = with_rows
        self.kernel: Kernel[Numbered] = Kernel(counts_use=True, quantum=quantum, strict_priority=is_strict)
        self.kernel.throttles.set("slow", rate=5, burst=2, now_ms=0)
        self.items: dict[int, Numbered] = {}
        self.keys: dict[int, Key] = {}
        self.out: list[Numbered] = []
        self.next_number = 1
        self.now_ms = 0

    def _made(self, numbers: Sequence[int]) -> list[Numbered]:
        items = [Numbered(number, self.keys[number]) for number in numbers]
        self.items.update((item.number, item) for item in items)
        return items

    def rows(self, keys: list[Key]) -> list[int]:
        numbers = list(range(self.next_number, self.next_number + len(keys)))
        self.next_number += len(keys)
        self.keys.update(zip(numbers, keys, strict=True))
        if self.with_rows:
            self.kernel.offer_rows(keys, numbers, self.now_ms, self._made)
        else:
            self.kernel.offer_many(self._made(numbers), self.now_ms)
        return []

    def item(self, key: Key, kind: str) -> list[int]:
        kinds: dict[str, dict[str, Any]] = {
            "plain": {},
            "cost": {"cost": 3},
            "high": {"priority": Priority.HIGH},
            "throttled": {"throttles": ["slow"]},
            "delayed": {"due_ms": self.now_ms + 100},
        }
        item = self.items[self.next_number] = Numbered(self.next_number, key, **kinds[kind])
        self.keys[self.next_number] = key
        self.next_number += 1
        self.kernel.offer(item, self.now_ms)
        return []

    def take(self, count: int) -> list[int]:
        taken = self.kernel.take(count, self.now_ms)
        self.out += taken
        return [item.number for item in taken]

    def cancel(self, number: int) -> list[int]:
        item = self.items.get(number)
        if item is None:
            key = self.keys.get(number)
            return [int(key is not None and self.kernel.cancel_row(key, number, self.now_ms))]
        return [int(self.kernel.cancel(item, self.now_ms))]

    def again(self, at: int) -> list[int]:
        if at >= len(self.out):
            return []
        item = self.out.pop(at)
        self.kernel.release(item.key)
        self.kernel.offer(item, self.now_ms)
        return [item.number]

    def release(self, count: int) -> list[int]:
        for item in self.out[:count]:
            self.kernel.release(item.key)
        del self.out[:count]
        return []

    def policy(self, key: Key, weight: int, cap: int | None) -> list[int]:
        self.kernel.set_policy(key, KeyPolicy(weight=weight, cap=cap))
        return []

    def victim(self, key: Key, policy: Backpressure, whose: str) -> list[int]:
        victim = self.kernel.victim(Numbered(0, key), policy, key=key if whose == "of the key" else None)
        if victim is None:
            return []
        self.kernel.cancel(victim, self.now_ms)
        return [victim.number]

    def explain(self, number: int) -> list[object]:
        item = self.items.get(number)
        if item is not None:
            return [self.kernel.explain(item, self.now_ms)]
        key = self.keys.get(number)
        return [] if key is None else [self.kernel.explain_row(Numbered(number, key), number, self.now_ms)]

    def time(self, span_ms: int) -> list[int]:
        self.now_ms += span_ms
        return []


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from((1, 4)), st.booleans())
def test_rows_and_items_go_in_the_same_order(steps: list[tuple[Any, ...]], quantum: int, is_strict: bool) -> None:
    """Whatever else happens, a kernel with rows answers each call as one with items does."""
    rows, items = (Side(with_rows=each, quantum=quantum, is_strict=is_strict) for each in (True, False))
    for name, *arguments in steps:
        assert getattr(rows, name)(*arguments) == getattr(items, name)(*arguments), name
        assert len(rows.kernel) == len(items.kernel)
        assert [rows.kernel.waiting(key) for key in KEYS] == [items.kernel.waiting(key) for key in KEYS]
        rows.release(2)
        items.release(2)
    rows.now_ms = items.now_ms = rows.now_ms + 60_000
    for key in KEYS:
        assert rows.policy(key, 1, None) == items.policy(key, 1, None)
    assert rows.take(10_000) == items.take(10_000)
