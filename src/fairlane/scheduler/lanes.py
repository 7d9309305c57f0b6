"""Lanes: the items of one fairness key with the same priority and the same throttles, first in first out.

Items are linked to each other directly. That makes a lane as small as two references, allows an item to be cancelled
or to expire in the middle of its lane in O(1), and needs no sweep of dead entries.

How long an item was *held up*, by throttles without a token and by keys at their caps, is measured by lanes and keys,
since items carry no timers. Each lane has a stopwatch that runs while the lane is parked, each key with a cap has one
that runs while the key is at its cap, and each key with a rate one that runs while its rate is used up. What they show
when an item is handed out, minus what they showed when it was offered, is how long that item was held up. An item whose
stopwatches have never run stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fairlane.scheduler.item import Item, Priority

if TYPE_CHECKING:
    from fairlane.scheduler.gates import Gate
    from fairlane.scheduler.portions import Portion
    from fairlane.scheduler.tree import KeyNode


class Holdup(NamedTuple):
    """How long an item waited because a throttle had no token, and because one of its keys was at its cap.

    Both can be true at once, so the two may add up to more than the item's wait.
    """

    throttled_ms: int
    capped_ms: int


NOT_HELD = Holdup(0, 0)


class StopWatch:
    """Adds up the time during which a condition held."""

    __slots__ = ("_since_ms", "_total_ms")

    def __init__(self) -> None:
        self._total_ms = 0
        self._since_ms: int | None = None

    def note(self, now_ms: int, *, is_so: bool) -> None:
        """Record whether the condition holds from now on."""
        if is_so:
            if self._since_ms is None:
                self._since_ms = now_ms
        elif self._since_ms is not None:
            self._total_ms += now_ms - self._since_ms
            self._since_ms = None

    def read(self, now_ms: int) -> int:
        """Return for how long the condition has held in total."""
        return self._total_ms if self._since_ms is None else self._total_ms + now_ms - self._since_ms


class Lane:
    """A first-in-first-out list of items.

    Attributes:
        node: the fairness key the lane belongs to.
        portions: what the kernel has of each throttle of its items.
        gate: the throttle the lane is parked behind, or None while it may go.
        is_listed: whether the lane has an entry in its key's heap of lanes to choose from.
        parked: the stopwatch that runs while it is parked; None if it never was.
    """

    __slots__ = ("gate", "head", "is_listed", "node", "parked", "portions", "priority", "tail")

    def __init__(self, node: KeyNode, priority: Priority, portions: tuple[Portion, ...]) -> None:
        self.node = node
        self.priority = priority
        self.portions = portions
        self.head: Item | None = None
        self.tail: Item | None = None
        self.gate: Gate | None = None
        self.is_listed = False
        self.parked: StopWatch | None = None

    def __iter__(self) -> Iterator[Item]:
        item = self.head
        while item is not None:
            after = item.next
            yield item
            item = after

    def append(self, item: Item) -> None:
        """Append an item."""
        item.lane = self
        tail = self.tail
        if tail is None:
            self.head = item
        else:
            tail.next = item
            item.previous = tail
        self.tail = item

    def remove(self, item: Item) -> None:
        """Remove an item from any position."""
        before, after = item.previous, item.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.tail = before
        else:
            after.previous = before
        item.next = item.previous = item.lane = None
