"""Lanes: the items of one fairness key with the same priority and the same throttles, first in first out.

Items are linked to each other directly. That makes a lane as small as two references, allows an item to be cancelled
or to expire in the middle of its lane in O(1), and needs no sweep of dead entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairlane.scheduler.item import Item, Priority

if TYPE_CHECKING:
    from fairlane.scheduler.gates import Gate
    from fairlane.scheduler.holdups import StopWatch
    from fairlane.scheduler.portions import Portion
    from fairlane.scheduler.tree import KeyNode


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
