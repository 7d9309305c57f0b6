"""A heap of future instants, earliest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

_COMPACT_FROM = 64


class Timers(Generic[T]):
    """A heap of instants whose entries are never removed early, but recognised as stale when they come up.

    A target that is handed out, cancelled or re-armed leaves its entry behind, and ``is_live`` tells stale entries from
    live ones. Stale entries are swept once they may be half of the heap, so they cost amortised O(1) and bounded
    memory.

    ``entries`` is the heap itself, for a fast check for emptiness on the hot path.
    """

    __slots__ = ("_is_live", "_pushed", "_sweep_at", "entries")

    def __init__(self, is_live: Callable[[int, T], bool]) -> None:
        self._is_live = is_live
        self.entries: list[tuple[int, int, T]] = []
        self._pushed = 0
        self._sweep_at = _COMPACT_FROM

    def push(self, at_ms: int, target: T) -> None:
        """Add an instant for a target."""
        if len(self.entries) >= self._sweep_at:
            self._sweep()
        self._pushed += 1
        heappush(self.entries, (at_ms, self._pushed, target))

    def next_at(self) -> int | None:
        """Return the earliest live instant, or None if there is none."""
        entries = self.entries
        while entries:
            at_ms, _, target = entries[0]
            if self._is_live(at_ms, target):
                return at_ms
            heappop(entries)
        return None

    def pop_due(self, now_ms: int) -> list[T]:
        """Remove and return the targets whose instant has come, earliest first, each once.

        Those of one instant come in the order in which they were last pushed.
        """
        entries = self.entries
        if not entries or entries[0][0] > now_ms:
            return []
        due = []
        while entries and entries[0][0] <= now_ms:
            at_ms, _, target = heappop(entries)
            if self._is_live(at_ms, target):
                due.append(target)
        # A target that was armed, disarmed and armed again for one instant has two entries, unless the first has been
        # dropped meanwhile. So the last one counts: the order must not depend on when stale entries are dropped.
        return list(dict.fromkeys(reversed(due)))[::-1] if due[1:] else due

    def pop_one(self, now_ms: int) -> T | None:
        """Remove and return the earliest target whose instant has come, or None."""
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
        """Yield the live targets in no particular order, each once."""
        return iter(dict.fromkeys(target for at_ms, _, target in self.entries if self._is_live(at_ms, target)))

    def __len__(self) -> int:
        return len(self.entries)
