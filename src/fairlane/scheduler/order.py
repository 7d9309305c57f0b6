"""Strict order: the items of one group are handed out one after the other, each when the one before it is done.

Theory of operation
-------------------
A *group* is whatever the caller says belongs together, such as a fairness key, or one account of it. Each item has a
*place* in its group, which it keeps: an item that comes back after a failure is again before those that came later.

The lanes of the tree know nothing of groups. They hold only the *front* of each group: its first item. All others wait
*behind*, outside the tree, in the group itself, which is a lane that takes no turns. So weights, caps, throttles,
delays and pauses act on the front as on any other item, a group that must wait holds up no other group of its key, and
a kernel without strict order does none of this.

While items of a group are *out*, that is handed out and not finished, the group has no front. When the last of them is
finished, the next front is made. An item that is to wait again must therefore be offered before it is finished.

Several items of a group may go together, to one consumer. Then each item that is taken is followed by the next one,
which enters its lane and has its turn like any other, until the hand-out ends. What has not been taken by then goes
back.

Items behind are counted like items that are not due: they wait, but they give their key no turn. Their deadlines count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

from fairlane.scheduler.item import Item, Priority
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.policy import StrictOrder
from fairlane.scheduler.tree import KeyNode


class Tree(Protocol):
    """The kernel, as its groups see it."""

    now_ms: int

    def bring_forward(self, item: Item) -> None:
        """Add an item from behind to a lane of its key, or to those that are not due."""

    def send_back(self, item: Item) -> None:
        """Remove an item from there, without counting it out."""


class OrderedGroup(Lane):
    """The items of one group. As a lane it holds those behind.

    Attributes:
        front: the item that may go: it is in a lane of its key, or not due.
        out: the items that are handed out and not finished, in order.
    """

    __slots__ = ("front", "name", "out")

    def __init__(self, name: Hashable, outside: KeyNode) -> None:
        super().__init__(outside, Priority.NORMAL, ())
        self.name = name
        self.front: Item | None = None
        self.out: dict[Item, None] = {}

    def insert(self, item: Item, place_of: Callable[[Item], int]) -> None:
        """Insert an item behind, by its place. Nearly all are the last or the first."""
        place, before = place_of(item), self.tail
        if self.head is not None and place < place_of(self.head):
            before = None
        while before is not None and place_of(before) > place:
            before = before.previous
        after = self.head if before is None else before.next
        if after is None:
            self.append(item)
            return
        item.lane, item.previous, item.next = self, before, after
        after.previous = item
        if before is None:
            self.head = item
        else:
            before.next = item


class OrderedGroups:
    """All groups of a kernel."""

    def __init__(self, rules: StrictOrder[Item], not_due: KeyNode, tree: Tree) -> None:
        """Begin without items.

        Args:
            rules: what is kept in order.
            not_due: the kernel's place for items that are not due.
            tree: the kernel, which adds items to their keys and removes them.
        """
        self.rules = rules
        self._not_due = not_due
        self._tree = tree
        self._known: dict[Hashable, OrderedGroup] = {}
        self._taken: dict[OrderedGroup, int] = {}  # how many the present hand-out has of each

    def _group_of(self, item: Item) -> OrderedGroup:
        name = self.rules.group_of(item)
        group = self._known.get(name)
        if group is None:
            group = self._known[name] = OrderedGroup(name, self._not_due)
        return group

    def offer(self, item: Item) -> None:
        """Add an item that waits."""
        group = self._group_of(item)
        group.insert(item, self.rules.place_of)
        self._advance(group)

    def note_gone(self, item: Item) -> None:
        """Record that an item no longer waits, although it was not handed out."""
        group = self._group_of(item)
        if group.front is item:
            group.front = None
        self._advance(group)

    def note_taken(self, items: Iterable[Item], *, is_single: bool) -> bool:
        """Record that items were handed out. Return whether others may follow them in the same hand-out."""
        batch_max = 1 if is_single else self.rules.batch_max
        may_follow = False
        for item in items:
            group = self._group_of(item)
            group.front = None
            group.out[item] = None
            self._taken[group] = self._taken.get(group, 0) + 1
            after = group.head
            is_due = after is not None and (after.due_ms is None or after.due_ms <= self._tree.now_ms)
            if is_due and self._taken[group] < batch_max:
                self._bring(group)
                may_follow = True
        return may_follow

    def end_take(self) -> None:
        """End a hand-out: what was to follow, and was not taken, waits for what was."""
        for group in self._taken:
            self._withdraw(group)
        self._taken.clear()

    def occupy(self, item: Item) -> None:
        """Record that an item is out that this kernel never handed out."""
        group = self._group_of(item)
        self._withdraw(group)
        group.out[item] = None

    def finish(self, items: Iterable[Item]) -> None:
        """Record that items are done, or wait again."""
        for item in items:
            group = self._group_of(item)
            group.out.pop(item, None)
            self._advance(group)

    def first_of(self, item: Item) -> Item | None:
        """Return the first item of the group of an item: the one that all others wait for."""
        group = self._group_of(item)
        return next(iter(group.out), None) or group.front or group.head

    def __iter__(self) -> Iterator[Item]:
        """Yield the items that wait behind others."""
        for group in self._known.values():
            yield from group

    def _advance(self, group: OrderedGroup) -> None:
        """Make the first item the front, unless items are out."""
        if group.out:
            return
        place_of, head = self.rules.place_of, group.head
        if group.front is not None and head is not None and place_of(head) < place_of(group.front):
            self._withdraw(group)
        if group.front is None and group.head is not None:
            self._bring(group)
        elif group.front is None:
            del self._known[group.name]

    def _bring(self, group: OrderedGroup) -> None:
        if (item := group.head) is not None:
            group.remove(item)
            group.front = item
            self._tree.bring_forward(item)

    def _withdraw(self, group: OrderedGroup) -> None:
        if (item := group.front) is not None:
            group.front = None
            self._tree.send_back(item)
            group.insert(item, self.rules.place_of)
