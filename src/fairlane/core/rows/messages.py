"""The messages of a queue, by number: objects, and rows of which objects are made.

Waiting plain messages are rows, see ``core/rows/shelves.py``; everything else is an object, and only objects change. So
what changes a message promotes it first: the row goes, and the object takes its place for as long as the message
lives. Reading makes an object too, but one that is thrown away, so that looking at a backlog costs no memory.

Who has promoted a message must see to its place in the schedule, which knows a row by its number only. In a broker that
is the schedule itself, which promotes a message just before its turn (see ``scheduler/lanes.py``). Everything else that
happens to a waiting message removes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairlane.core.rows.chunks import ChunkHome
from fairlane.core.rows.shelves import PlainRow, RowRun, Shelves
from fairlane.model.message import Key

if TYPE_CHECKING:
    from fairlane.core.ledger import Message, Queue

ROWS_FROM: Final = 20_000
"""A backlog is made of rows beyond this, and of objects below: they cost less time, and so few cost little memory."""

KEYS_PER_ROWS_FROM: Final = ROWS_FROM // 8
"""A queue needs ``rows_from`` messages for this number of keys, eight for each.

What rows cost is most where keys have few: each has its own list of rows, and each row comes from another place.
"""


class Messages(MutableMapping[int, "Message"]):
    """The messages of a queue.

    Without rows they come in the order in which they entered the queue, with rows in that of their numbers.

    Attributes:
        objects: those that are objects, for what is known to be one: everything that is or was leased, and everything
            that is not plain.
        key_count: how many keys the schedule knows; 0 while it is built, so that recovery makes rows.
    """

    __slots__ = ("_had_rows", "_make", "_rows", "key_count", "objects")

    def __init__(self, make: Callable[[int, Key, ChunkHome, int, int], Message]) -> None:
        self.objects: dict[int, Message] = {}
        self._rows = Shelves()
        self._make = make
        self._had_rows = False
        self.key_count = 0

    # ------------------------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self.objects) + self._rows.count

    def __contains__(self, number: object) -> bool:
        return number in self.objects or (isinstance(number, int) and self._rows.find(number) is not None)

    def __getitem__(self, number: int) -> Message:
        message = self.objects.get(number)
        if message is not None:
            return message
        row = self._rows.find(number)
        if row is None:
            raise KeyError(number)
        return self._make(number, *row)

    def __iter__(self) -> Iterator[int]:
        return merge(sorted(self.objects), self._rows) if self._had_rows else iter(self.objects)

    def after(self, number: int | None) -> Iterator[int]:
        """Yield the numbers of all messages, or of those after one. Nothing may change meanwhile.

        Without rows, there is no place for a message that is gone: then these are all.
        """
        if self._had_rows:
            return merge(self._objects_above(number), self._rows.after(number))
        return iter(self.objects) if number is None else self._objects_after(number)

    def kept_after(self, number: int | None) -> Iterator[int]:
        """Yield the same numbers, whatever changes meanwhile."""
        if self._had_rows:
            return merge(self._objects_above(number), self._rows.kept_after(number))
        return self._objects_after(number)

    def _objects_above(self, number: int | None) -> list[int]:
        return sorted(self.objects if number is None else filter(number.__lt__, self.objects))

    def _objects_after(self, number: int | None) -> Iterator[int]:
        numbers = list(self.objects)
        if number is None or number not in self.objects:
            return iter(numbers)
        at = bisect_left(numbers, number)  # most of the time they ascend
        if at == len(numbers) or numbers[at] != number:
            at = numbers.index(number)
        return islice(numbers, at + 1, None)

    def runs(self) -> Iterator[RowRun]:
        """Yield the rows in the order of their numbers, many at a time."""
        return self._rows.runs()

    def oldest(self) -> Message | None:
        """Return the message that entered the queue before the others, or with rows the one enqueued first."""
        if not self._had_rows:
            return next(iter(self.objects.values()), None)
        first, found = self._rows.first(), min(self.objects, default=None)
        if first is None or (found is not None and found < first):
            return None if found is None else self.objects[found]
        return self[first]

    # ------------------------------------------------------------------------------------------------------ changing

    def __setitem__(self, number: int, message: Message) -> None:
        self.objects[number] = message

    def __delitem__(self, number: int) -> None:
        if self.take(number) is None:
            raise KeyError(number)

    def take(self, number: int) -> Message | None:
        """Remove a message and return it, None if there is none of that number."""
        message = self.objects.pop(number, None)
        if message is None:
            row = self._rows.take(number)
            return None if row is None else self._make(number, *row)
        return message

    def take_all(self, numbers: Iterable[int]) -> list[Message]:
        """Remove messages and return those that were there."""
        pop, take = self.objects.pop, self.take
        return [message for number in numbers if (message := pop(number, None) or take(number)) is not None]

    def promote(self, number: int) -> Message | None:
        """Return a message as the object that it is from now on, None if there is none of that number."""
        message = self.objects.get(number)
        if message is None:
            row = self._rows.take(number)
            if row is None:
                return None
            message = self.objects[number] = self._make(number, *row)
        return message

    def made(self, numbers: Sequence[int]) -> list[Message]:
        """Return messages that are rows as the objects that they are from now on."""
        messages = list(map(self._make, numbers, *self._rows.take_all(numbers)))
        self.objects.update(zip(numbers, messages, strict=True))
        return messages

    def move_home(self, number: int, home: ChunkHome) -> ChunkHome | None:
        """Set the home of a message, and return the one before. Return None if there is none of that number."""
        message = self.objects.get(number)
        if message is None:
            return self._rows.move_home(number, home)
        before, message.chunk = message.chunk, home
        return before

    def promote_all(self) -> None:
        """Make every message the object that it is from now on."""
        for number in list(self._rows):
            self.promote(number)

    def add_rows(self, first: int, sizes: Sequence[int], keys: Sequence[Key], chunk: ChunkHome, at_ms: int) -> None:
        """Add plain messages with consecutive numbers as rows, after all others."""
        self._had_rows = True
        self._rows.append(first, sizes, keys, chunk, at_ms)

    def add_row(self, number: int, row: PlainRow) -> None:
        """Add a plain message as a row."""
        self._had_rows = True
        self._rows.insert(number, row)


class LeaseBatch:
    """Messages of a queue that were leased or extended together, until one instant.

    It keeps only their numbers: most are acknowledged long before, and should not take memory until the timer ends.
    """

    __slots__ = ("_known", "_numbers")

    def __init__(self, queue: Queue, numbers: list[int]) -> None:
        self._known = queue.messages.objects  # what is leased is one
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def is_live(self, at_ms: int) -> bool:
        """Return whether one of them is still leased until then."""
        get = self._known.get
        for number in self._numbers:
            message = get(number)
            if message is not None and message.token and message.expires_ms == at_ms:
                return True
        return False

    def ended(self, now_ms: int) -> list[Message]:
        """Return those whose leases have ended."""
        found = map(self._known.get, self._numbers)
        return [message for message in found if message is not None and message.token and message.expires_ms <= now_ms]
