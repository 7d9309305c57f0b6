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
- When the last item in front leaves, ``Lane.refill`` makes the next few rows. When the rows are used up, the rest
  follows them, and the lane is an ordinary one again.

So a lane with rows always has an item in front: nothing that looks at ``Lane.head`` needs to know of rows, and the
order is the same as if all were items. A row is a number: eight bytes. Numbers grow.

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

MAKE_COUNT: Final = 16
"""How many items are made at once: a lane with rows has up to this number of items more than it needs."""

_TRIM_FROM: Final = 512

MakeItems = Callable[[Sequence[int]], "Sequence[Item]"]
"""A function that makes the items of rows, by their numbers."""


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
            behind.link(self)

    def refill(self) -> Item | None:
        """Return the new first item of a lane whose last linked item has been taken: that of a row, if there is one."""
        self.head = self.tail = None
        return None if self.behind is None else self.behind.link(self)

    def last(self) -> Item | None:
        """Return the last item. Makes it if it is a row."""
        behind = self.behind
        if behind is None:
            return self.tail
        return behind.rest_end or behind.make_last(self) or self.tail


class LaneRows:
    """The rows of a lane, and the items behind them.

    Attributes:
        add: appends a row by its number, while there is no rest.
        sequence: that of the items of rows that are added.
        rest: the first item behind the rows.
        rest_end: the last one.
    """

    __slots__ = ("_at", "_gone", "_make", "_numbers", "_spans", "add", "rest", "rest_end", "sequence")

    def __init__(self, make: MakeItems) -> None:
        self._make = make
        self._numbers = array("Q")
        self._spans: list[tuple[int, int]] = []
        """From which row on the items have which sequence, where it is not that of the rows before."""
        self.add = self._numbers.append
        self.sequence = -1
        self._at = 0
        self._gone: set[int] = set()
        self.rest: Item | None = None
        self.rest_end: Item | None = None

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._numbers) - self._at - len(self._gone)

    def set_sequence(self, sequence: int) -> None:
        """Set the sequence of the items of the rows that are added next."""
        self._spans.append((len(self._numbers), sequence))
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
        at = bisect_left(self._numbers, number, self._at)
        return at < len(self._numbers) and self._numbers[at] == number and number not in self._gone

    def before(self, number: int) -> int:
        """Return how many rows are before one."""
        at = bisect_left(self._numbers, number, self._at)
        return at - self._at - sum(1 for gone in self._gone if gone < number)

    def cancel(self, number: int) -> bool:
        """Remove a row. Return False if there is no such row."""
        if number not in self:
            return False
        if self._numbers[self._at] == number:
            self._at += 1
        else:
            self._gone.add(number)
        return True

    def link_all(self, lane: Lane) -> None:
        """Append the items of all rows, and the rest, to the front of a lane."""
        self.link(lane, len(self._numbers))

    def link(self, lane: Lane, count: int = MAKE_COUNT) -> Item | None:
        """Append the items of the next rows to the front of a lane, and after the last row the rest.

        Return the first item.
        """
        tail, size = lane.tail, len(self._numbers)
        while count > 0 and self._at < size:
            numbers, sequence = self._next(count)
            for item in self._make(numbers):
                item.sequence = sequence
                item.lane = lane
                item.previous = tail
                if tail is None:
                    lane.head = item
                else:
                    tail.next = item
                tail = item
            count -= len(numbers)
        lane.tail = tail
        if self._at == size:
            self._link_rest(lane)
        elif self._at > _TRIM_FROM and 2 * self._at > size:
            self._trim()
        return lane.head

    def _next(self, count: int) -> tuple[Sequence[int], int]:
        """Return some of the next rows and the sequence that they share, and pass over those that are gone."""
        at, spans = self._at, self._spans
        while len(spans) > 1 and spans[1][0] <= at:
            del spans[0]
        end = min(at + count, len(self._numbers) if len(spans) == 1 else spans[1][0], len(self._numbers))
        numbers = self._numbers[at:end]
        self._at = end
        if self._gone:
            passed = self._gone.intersection(numbers)
            self._gone -= passed
            numbers = array("Q", [number for number in numbers if number not in passed])
        return numbers, spans[0][1]

    def _trim(self) -> None:
        """Forget the rows that have been linked."""
        del self._numbers[: self._at]
        self._spans = [(max(0, first - self._at), sequence) for first, sequence in self._spans]
        self._at = 0

    def _link_rest(self, lane: Lane) -> None:
        """Append the rest to the front, now that there are no rows: the lane is an ordinary one again."""
        lane.behind = None
        rest = self.rest
        if rest is None:
            return
        if lane.tail is None:
            lane.head = rest
        else:
            lane.tail.next, rest.previous = rest, lane.tail
        lane.tail = self.rest_end

    def make_last(self, lane: Lane) -> Item | None:
        """Make the item of the last row, which becomes the rest, and return it; None if there are no rows."""
        while len(self._numbers) > self._at:
            number = self._numbers.pop()
            while self._spans[-1][0] > len(self._numbers):
                self._spans.pop()
            if number in self._gone:
                self._gone.discard(number)
                continue
            (item,) = self._make((number,))
            self.rest = self.rest_end = item
            item.lane, item.sequence = lane, self._spans[-1][1]
            self.sequence = item.sequence
            return item
        self.sequence = -1  # what is known of it went with the rows
        return None

    def drop(self, lane: Lane) -> None:
        """Remove all rows."""
        self._at = len(self._numbers)
        self.link(lane)
