"""Lanes: the items of one fairness key with the same priority and the same throttles, first in first out.

Items are linked to each other directly. That makes a lane as small as two references, allows an item to be cancelled
or to expire in the middle of its lane in O(1), and needs no sweep of dead entries.

How long an item was *held up*, by throttles without a token and by keys at their caps, is measured by lanes and keys,
since items carry no timers. Each lane has a stopwatch that runs while the lane is parked, each key with a cap has one
that runs while the key is at its cap, and each key with a rate one that runs while its rate is used up. What they show
when an item is handed out, minus what they showed when it was offered, is how long that item was held up. An item whose
stopwatches have never run stores nothing.

Rows
----
A caller with millions of plain items need not make them all. It offers *rows*: numbers, of which the kernel makes items
with the caller's function when their turn comes near. So a lane has three parts, one behind the other: linked items in
front, rows, and linked items in the *rest*.

- New rows are appended to the rows while the rest is empty. If it is not, they are made at once and appended to it.
- Any other item is appended to the rest if there are rows, else to the front.
- When the last item in front leaves, the next few rows are made. When the rows are used up, the rest follows them, and
  the lane is an ordinary one again, without a ``LaneRows``.

So between two calls of the kernel a lane with rows has an item in front: nothing that looks at ``Lane.head`` needs to
know of rows, and the order is the same as if all were items. A row is a number: eight bytes. Numbers grow.

Making items costs the caller less for many at a time, and keys that take turns need theirs at about the same time. So
``serve_plain`` only notes which keys it has *drained*, and ``refill_all`` makes the next items of all of them with one
call: once per round of the ring, and at the end. With a few keys each gets several items, with many keys one.

A row that is cancelled stays, and is passed over when it comes up: taking a number out of the middle would cost as much
as there are rows behind it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlane.scheduler.item import Item, Priority

if TYPE_CHECKING:
    from fairlane.scheduler.gates import Gate
    from fairlane.scheduler.portions import Portion
    from fairlane.scheduler.tree import KeyNode

_AHEAD_MAX: Final = 64
"""The most items that are made ahead for a key."""

_MADE_TOGETHER: Final = 1024
"""How many items are about made at once, if the keys that take turns are few enough to have them ahead."""

_TRIM_FROM: Final = 512

MakeItems = Callable[[Sequence[int]], "Sequence[Item]"]
"""A function that makes the items of rows, by their numbers in ascending order. All lanes of a kernel have the same."""


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
        behind: the rows behind the linked items, and what is behind those; None for nothing.
    """

    __slots__ = ("behind", "gate", "head", "is_listed", "node", "parked", "portions", "priority", "tail")

    def __init__(self, node: KeyNode, priority: Priority, portions: tuple[Portion, ...]) -> None:
        self.node = node
        self.priority = priority
        self.portions = portions
        self.head: Item | None = None
        self.tail: Item | None = None
        self.gate: Gate | None = None
        self.is_listed = False
        self.parked: StopWatch | None = None
        self.behind: LaneRows | None = None

    def __iter__(self) -> Iterator[Item]:
        """Yield all items. Makes those of rows."""
        if self.behind is not None:
            self.behind.link_all(self)
        item = self.head
        while item is not None:
            after = item.next
            yield item
            item = after

    def append(self, item: Item) -> None:
        """Append an item."""
        item.lane = self
        tail = self.tail
        if self.behind is not None:
            self.behind.append(item)
            return
        if tail is None:
            self.head = item
        else:
            tail.next = item
            item.previous = tail
        self.tail = item

    def remove(self, item: Item) -> None:
        """Remove an item from any position."""
        before, after, behind = item.previous, item.next, self.behind
        if before is not None:
            before.next = after
        elif behind is not None and behind.rest is item:
            behind.rest = after
        else:
            self.head = after
        if after is not None:
            after.previous = before
        elif behind is not None and behind.rest_end is item:
            behind.rest_end = before
        else:
            self.tail = before
        item.next = item.previous = item.lane = None
        if behind is not None and self.head is None:
            behind.link(self, 1)

    def refill(self, count: int) -> Item | None:
        """Return the new first item of a lane whose last linked item has been taken.

        Makes the items of up to ``count`` rows, if there are any.
        """
        self.head = self.tail = None
        return None if self.behind is None else self.behind.link(self, count)

    def last(self) -> Item | None:
        """Return the last item. Makes it if it is a row."""
        behind = self.behind
        if behind is None:
            return self.tail
        return behind.rest_end or behind.make_last(self)


def made_ahead(node: KeyNode) -> int:
    """Return how many items are made for a key that needs its next: those of a turn, or more if few keys take turns."""
    ring = None if node.parent is None else node.parent.ring
    together = _MADE_TOGETHER if ring is None or not ring.ready else _MADE_TOGETHER // ring.ready
    return min(_AHEAD_MAX, max(node.share, together))


def refill_all(drained: list[KeyNode]) -> None:
    """Make the next items of keys that have rows, and forget that they are drained."""
    numbers: list[int] = []
    taken: list[tuple[KeyNode, LaneRows, Sequence[int], int]] = []
    for node in drained:
        if (rows := node.behind) is not None:
            some, sequence = rows.next(made_ahead(node))
            numbers += some
            taken.append((node, rows, some, sequence))
    drained.clear()
    numbers.sort()
    made = dict(zip(numbers, taken[0][1].make(numbers), strict=True))
    for node, rows, some, sequence in taken:
        if len(some) == 1:  # with many keys
            item = node.head = node.tail = made[some[0]]
            item.sequence, item.lane = sequence, node
        else:
            node.head = node.tail = None
            rows.put(node, [made[number] for number in some], sequence)
        rows.settle(node)


# Most rows are taken in their order and none is cancelled, and there may be a million keys: they share these.
_NONE_GONE: Final = frozenset[int]()
_NO_SPANS: Final[list[tuple[int, int]]] = []


class LaneRows:
    """The rows of a lane, of which there is at least one, and the items behind them.

    Attributes:
        make: makes the items of rows.
        numbers: the rows, and before them some that have left. Rows are appended while there is no rest.
        sequence: that of the items of rows that are appended.
        rest: the first item behind the rows.
        rest_end: the last one.
    """

    __slots__ = ("_at", "_gone", "_next_sequence", "_spans", "make", "numbers", "rest", "rest_end", "sequence")

    def __init__(self, make: MakeItems, sequence: int) -> None:
        self.make = make
        self.numbers = array("Q")
        self.sequence = self._next_sequence = sequence
        self._spans = _NO_SPANS
        """From which row on the items have which sequence, where it is not that of the rows before."""
        self._at = 0
        self._gone: frozenset[int] | set[int] = _NONE_GONE
        self.rest: Item | None = None
        self.rest_end: Item | None = None

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.numbers) - self._at - len(self._gone)

    def set_sequence(self, sequence: int) -> None:
        """Set the sequence of the items of the rows that are appended next."""
        self._spans = [*self._spans, (len(self.numbers), sequence)]
        self.sequence = sequence

    def append(self, item: Item) -> None:
        """Append an item to the rest."""
        end = self.rest_end
        if end is None:
            self.rest = item
        else:
            end.next = item
            item.previous = end
        self.rest_end = item

    def __contains__(self, number: int) -> bool:
        """Return whether there is a row of that number."""
        at = bisect_left(self.numbers, number, self._at)
        return at < len(self.numbers) and self.numbers[at] == number and number not in self._gone

    def before(self, number: int) -> int:
        """Return how many rows are before one."""
        at = bisect_left(self.numbers, number, self._at)
        return at - self._at - sum(1 for gone in self._gone if gone < number)

    def cancel(self, lane: Lane, number: int) -> bool:
        """Remove a row. Return False if there is no such row."""
        if number not in self:
            return False
        if self.numbers[self._at] == number:
            self._at += 1
        else:
            self._gone = {*self._gone, number} if self._gone is _NONE_GONE else self._gone | {number}
        self.settle(lane)
        return True

    def link_all(self, lane: Lane) -> None:
        """Append the items of all rows, and the rest, to the front of a lane."""
        self.link(lane, len(self.numbers))

    def link(self, lane: Lane, count: int) -> Item | None:
        """Append the items of the next rows to the front of a lane, and after the last row the rest.

        Return the first item.
        """
        while count > 0 and len(self):
            numbers, sequence = self.next(count)
            self.put(lane, self.make(numbers), sequence)
            count -= len(numbers)
        self.settle(lane)
        return lane.head

    def next(self, count: int) -> tuple[Sequence[int], int]:
        """Return some of the next rows, which leave, and the sequence that they share. The caller makes their items."""
        at, column, sequence = self._at, self.numbers, self._next_sequence
        if self._gone or self._spans:
            return self._next_of_one_sequence(count)
        self._at = at + count
        if self._at > len(column):
            self._at = len(column)
        return column[at : at + count], sequence

    def _next_of_one_sequence(self, count: int) -> tuple[Sequence[int], int]:
        """Return some of the next rows, without those that are gone."""
        column, numbers = self.numbers, array("Q")
        while not numbers:
            at = self._at
            while self._spans and self._spans[0][0] <= at:
                self._next_sequence = self._spans[0][1]
                self._spans = self._spans[1:]
            self._at = min(at + count, len(column), self._spans[0][0] if self._spans else len(column))
            numbers = column[at : self._at]
            if self._gone:
                passed = self._gone.intersection(numbers)
                self._gone -= passed
                numbers = array("Q", [number for number in numbers if number not in passed])
        return numbers, self._next_sequence

    def put(self, lane: Lane, items: Sequence[Item], sequence: int) -> None:
        """Append the items of rows to the front of a lane."""
        tail = lane.tail
        for item in items:
            item.sequence = sequence
            item.lane = lane
            item.previous = tail
            if tail is None:
                lane.head = item
            else:
                tail.next = item
            tail = item
        lane.tail = tail

    def settle(self, lane: Lane) -> None:
        """Append the rest to the front of a lane if it has no rows any more, else forget rows that have left."""
        if len(self.numbers) == self._at + len(self._gone):
            self._link_rest(lane)
        elif self._at > _TRIM_FROM and 2 * self._at > len(self.numbers):
            self._trim()

    def _trim(self) -> None:
        del self.numbers[: self._at]
        self._spans = [(max(0, first - self._at), sequence) for first, sequence in self._spans]
        self._at = 0

    def _link_rest(self, lane: Lane) -> None:
        lane.behind = None
        rest = self.rest
        if rest is None:
            return
        if lane.tail is None:
            lane.head = rest
        else:
            lane.tail.next, rest.previous = rest, lane.tail
        lane.tail = self.rest_end

    def make_last(self, lane: Lane) -> Item:
        """Make the item of the last row, which becomes the rest, and return it."""
        number = self.numbers.pop()
        while number in self._gone:
            self._gone -= {number}
            number = self.numbers.pop()
        while self._spans and self._spans[-1][0] > len(self.numbers):
            self._spans = self._spans[:-1]
        (item,) = self.make((number,))
        self.rest = self.rest_end = item
        item.lane, item.sequence = lane, self._spans[-1][1] if self._spans else self._next_sequence
        self.settle(lane)
        return item

    def drop(self, lane: Lane) -> None:
        """Remove all rows."""
        self._at, self._gone = len(self.numbers), _NONE_GONE
        self.settle(lane)
