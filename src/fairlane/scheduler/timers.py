"""Instants at which something happens, earliest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

_COMPACT_FROM = 64


class Timers(Generic[T]):
    """A heap of instants whose entries are never removed early, only found to be stale when they come up.

    ``entries`` is the heap, for a quick look at whether there is anything at all.

    Whoever is handed out, cancelled or re-armed leaves its entry behind, and ``is_live`` tells the two apart. Stale
    entries are swept once they may be half of the heap, so they cost O(1) amortised and hold a bounded memory.
    """

    __slots__ = ("_is_live", "_pushed", "_sweep_at", "entries")

    def __init__(self, is_live: Callable[[int, T], bool]) -> None:
        self._is_live = is_live
        self.entries: list[tuple[int, int, T]] = []
        self._pushed = 0
        self._sweep_at = _COMPACT_FROM

    def push(self, at_ms: int, target: T) -> None:
        """Remember that something happens to the target at an instant."""
        if len(self.entries) >= self._sweep_at:
            self._sweep()
        self._pushed += 1
        heappush(self.entries, (at_ms, self._pushed, target))

    def next_at(self) -> int | None:
        """Return the earliest live instant, or None when nothing is to come."""
        entries = self.entries
        while entries:
            at_ms, _, target = entries[0]
            if self._is_live(at_ms, target):
                return at_ms
            heappop(entries)
        return None

    def pop_due(self, now_ms: int) -> list[T]:
        """Remove and return the targets whose instant has come, earliest first, each once."""
        entries = self.entries
        if not entries or entries[0][0] > now_ms:
            return []
        due = []
        while entries and entries[0][0] <= now_ms:
            at_ms, _, target = heappop(entries)
            if self._is_live(at_ms, target):
                due.append(target)
        return list(dict.fromkeys(due))  # one armed, disarmed and armed again for the same instant is there twice

    def pop_one(self, now_ms: int) -> T | None:
        """Remove and return the earliest target whose instant has come, None if there is none."""
        entries = self.entries
        while entries and entries[0][0] <= now_ms:
            at_ms, _, target = heappop(entries)
            if self._is_live(at_ms, target):
                return target
        return None

    def _sweep(self) -> None:
        is_live = self._is_live
        self.entries = [entry for entry in self.entries if is_live(entry[0], entry[2])]
        heapify(self.entries)
        self._sweep_at = max(_COMPACT_FROM, 2 * len(self.entries))

    def __iter__(self) -> Iterator[T]:
        """Yield the live targets, in no order, each once."""
        return iter(dict.fromkeys(target for at_ms, _, target in self.entries if self._is_live(at_ms, target)))

    def __len__(self) -> int:
        return len(self.entries)
