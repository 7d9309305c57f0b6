"""Rows: plain messages that wait, as columns.

Theory of operation
-------------------
Most messages that wait are *plain*: they have been enqueued and nothing else has happened to them, and they have
nothing but a key and a payload. Such a message needs no object. It is a *row*: its number, its size, when it came, its
key and its chunk, each in a column, about fifty bytes in all. A ``Message`` is three hundred.

Rows are in shelves of up to a few thousand, sorted by number. Numbers grow, so new rows are appended to the last shelf.
Recovery also finds rows that were carried forward, in any order, and inserts those where they belong. A row is found by
bisection: first the shelf, then the row.

A row that becomes an object, or goes, leaves a hole. Once half of a shelf are holes it is written again without them,
so that one message that waits for long keeps no shelf of others alive.

Equal keys are one string here, since each request brings strings of its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice, repeat
from typing import Final, NamedTuple

from fairlane.core.rows.chunks import ChunkHome
from fairlane.model.message import Key

SHELF_MAX: Final = 8192
_TIDY_FROM: Final = 64
_KEYS_SHARED_MAX: Final = 100_000
_COLUMNS: Final = ("numbers", "sizes", "times_ms", "keys", "chunks", "present")


class PlainRow(NamedTuple):
    """A row that has been taken out."""

    key: Key
    chunk: ChunkHome
    size: int
    enqueued_ms: int


class RowRun(NamedTuple):
    """Rows in the order of their numbers."""

    keys: Sequence[Key]
    numbers: Sequence[int]
    sizes: Sequence[int]
    chunks: Sequence[ChunkHome]


class RowShelf:
    """Some consecutive rows; ``present`` is 0 where there is a hole."""

    __slots__ = ("chunks", "holes", "keys", "numbers", "present", "sizes", "times_ms")

    def __init__(self) -> None:
        self.numbers, self.sizes, self.times_ms = array("Q"), array("I"), array("Q")
        self.keys: list[Key] = []
        self.chunks: list[ChunkHome] = []
        self.present = bytearray()
        self.holes = 0

    def place_of(self, number: int) -> int:
        """Return where a row is, -1 if it is not here."""
        at = bisect_left(self.numbers, number)
        return at if at < len(self.numbers) and self.numbers[at] == number and self.present[at] else -1

    def row(self, at: int) -> PlainRow:
        """Return a row by its place."""
        return PlainRow(self.keys[at], self.chunks[at], self.sizes[at], self.times_ms[at])

    def take(self, numbers: Sequence[int]) -> list[int]:
        """Make holes of rows that are all here, in ascending order, and return their places."""
        column, present = self.numbers, self.present
        begin = bisect_left(column, numbers[0])
        end = bisect_right(column, numbers[-1], begin)
        places = list(map(bisect_left, repeat(column), numbers, repeat(begin), repeat(end)))
        for at in places:
            present[at] = 0
        self.holes += len(places)
        return places

    def cut(self, half: int) -> RowShelf:
        """Return a new shelf with the rows from a place on, which leave this one."""
        right = RowShelf()
        for column in _COLUMNS:
            setattr(right, column, getattr(self, column)[half:])
            del getattr(self, column)[half:]
        right.holes = right.present.count(0)
        self.holes -= right.holes
        return right

    def tidied(self) -> RowShelf:
        """Return a shelf with the same rows and no holes."""
        tidy = RowShelf()
        for column in _COLUMNS:
            getattr(tidy, column).extend(compress(getattr(self, column), self.present))
        return tidy


class Shelves:
    """The rows of a queue.

    Attributes:
        count: how many there are.
    """

    def __init__(self) -> None:
        self._shelves: list[RowShelf] = []
        self._firsts: list[int] = []
        """The number from which on a shelf is searched; every shelf has a row or a hole."""
        self.count = 0
        self._keys: dict[Key, Key] = {}

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of all rows, in order."""
        for shelf in self._shelves:
            for number, is_there in zip(shelf.numbers, shelf.present, strict=True):
                if is_there:
                    yield number

    def after(self, number: int | None) -> Iterator[int]:
        """Yield the numbers of all rows, or of those after a number, in order."""
        return _present_after(self._from_shelf(number), number)

    def kept_after(self, number: int | None) -> Iterator[int]:
        """Yield the same numbers, whatever changes meanwhile."""
        kept = []
        for shelf in self._from_shelf(number):
            copy = RowShelf()
            copy.numbers, copy.present = shelf.numbers[:], shelf.present[:]
            kept.append(copy)
        return _present_after(kept, number)

    def _from_shelf(self, number: int | None) -> Iterator[RowShelf]:
        first = 0 if number is None else max(bisect_right(self._firsts, number) - 1, 0)
        return islice(self._shelves, first, None)

    def runs(self) -> Iterator[RowRun]:
        """Yield all rows, in order, many at a time."""
        for shelf in self._shelves:
            tidy = shelf.tidied() if shelf.holes else shelf
            if tidy.numbers:
                yield RowRun(tidy.keys, tidy.numbers, tidy.sizes, tidy.chunks)

    def append(self, first: int, sizes: Sequence[int], keys: Sequence[Key], chunk: ChunkHome, at_ms: int) -> None:
        """Add rows with consecutive numbers, of one chunk, which come after all others."""
        share = self._shared().setdefault
        begin, count = 0, len(sizes)
        while begin < count:
            shelf = self._last_with_room(first + begin)
            end = min(count, begin + SHELF_MAX - len(shelf.numbers))
            some = keys[begin:end]
            shelf.numbers.extend(range(first + begin, first + end))
            shelf.sizes.extend(sizes[begin:end])
            shelf.times_ms.extend(array("Q", (at_ms,)) * (end - begin))
            shelf.keys.extend(map(share, some, some))
            shelf.chunks.extend([chunk] * (end - begin))
            shelf.present.extend(b"\1" * (end - begin))
            begin = end
        self.count += count

    def _last_with_room(self, number: int) -> RowShelf:
        if not self._shelves or len(self._shelves[-1].numbers) >= SHELF_MAX:
            self._insert(len(self._shelves), number)
        return self._shelves[-1]

    def insert(self, number: int, row: PlainRow) -> None:
        """Add a row anywhere. Its number may not be here."""
        shelf = self._shelf_for(number)
        at = bisect_left(shelf.numbers, number)
        if at < len(shelf.numbers) and shelf.numbers[at] == number:  # the hole that it left
            for column in _COLUMNS:
                del getattr(shelf, column)[at]
            shelf.holes -= 1
        shelf.numbers.insert(at, number)
        shelf.sizes.insert(at, row.size)
        shelf.times_ms.insert(at, row.enqueued_ms)
        shelf.keys.insert(at, self._shared().setdefault(row.key, row.key))
        shelf.chunks.insert(at, row.chunk)
        shelf.present.insert(at, 1)
        self.count += 1

    def find(self, number: int) -> PlainRow | None:
        """Return a row, None if there is none of that number."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return None
        shelf = self._shelves[place]
        at = shelf.place_of(number)
        return None if at < 0 else shelf.row(at)

    def move_home(self, number: int, home: ChunkHome) -> ChunkHome | None:
        """Set the home of a row, and return the one before. Return None if there is no row of that number."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return None
        shelf = self._shelves[place]
        at = shelf.place_of(number)
        if at < 0:
            return None
        before, shelf.chunks[at] = shelf.chunks[at], home
        return before

    def take(self, number: int) -> PlainRow | None:
        """Remove a row and return it, None if there is none of that number."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return None
        shelf = self._shelves[place]
        at = shelf.place_of(number)
        if at < 0:
            return None
        row = shelf.row(at)
        shelf.present[at] = 0
        shelf.holes += 1
        self.count -= 1
        self._note_taken(place)
        return row

    def take_all(self, numbers: Sequence[int]) -> tuple[list[Key], list[ChunkHome], list[int], list[int]]:
        """Remove rows that are all here, in ascending order, and return their keys, chunks, sizes and times."""
        keys: list[Key] = []
        chunks: list[ChunkHome] = []
        sizes: list[int] = []
        times_ms: list[int] = []
        begin = 0
        while begin < len(numbers):
            place = bisect_right(self._firsts, numbers[begin]) - 1
            shelf = self._shelves[place]
            end = bisect_right(numbers, shelf.numbers[-1], begin)
            places = shelf.take(numbers[begin:end])
            keys += map(shelf.keys.__getitem__, places)
            chunks += map(shelf.chunks.__getitem__, places)
            sizes += map(shelf.sizes.__getitem__, places)
            times_ms += map(shelf.times_ms.__getitem__, places)
            self._note_taken(place)
            begin = end
        self.count -= len(numbers)
        return keys, chunks, sizes, times_ms

    def _note_taken(self, place: int) -> None:
        """Write a shelf again if half of it are holes."""
        if place >= 0:
            holes, count = self._shelves[place].holes, len(self._shelves[place].numbers)
            if 2 * holes > count and (holes >= _TIDY_FROM or holes == count):
                self._tidy(place)

    def first(self) -> int | None:
        """Return the number of the first row, None if there are no rows."""
        for shelf in self._shelves:
            at = shelf.present.find(1)
            if at >= 0:
                return shelf.numbers[at]
        return None

    def _shared(self) -> dict[Key, Key]:
        """Return the keys that new rows share. Shelves hold what they need themselves, so it may be emptied."""
        if len(self._keys) > _KEYS_SHARED_MAX or not self.count:
            self._keys.clear()
        return self._keys

    def _shelf_for(self, number: int) -> RowShelf:
        """Return the shelf to which a number belongs; a new one if that is full."""
        firsts = self._firsts
        if not firsts:
            return self._insert(0, number)
        at = max(bisect_right(firsts, number) - 1, 0)
        shelf = self._shelves[at]
        firsts[at] = min(firsts[at], number)
        if len(shelf.numbers) < SHELF_MAX:
            return shelf
        if number > shelf.numbers[-1]:
            return self._insert(at + 1, number)
        self._shelves.insert(at + 1, shelf.cut(SHELF_MAX // 2))
        self._firsts.insert(at + 1, self._shelves[at + 1].numbers[0])
        return self._shelf_for(number)

    def _insert(self, at: int, first: int) -> RowShelf:
        shelf = RowShelf()
        self._shelves.insert(at, shelf)
        self._firsts.insert(at, first)
        return shelf

    def _tidy(self, at: int) -> None:
        """Take the holes out of a shelf, and join it with the one before if both are small."""
        shelf = self._shelves[at].tidied()
        before = self._shelves[at - 1] if at else None
        if before is not None and len(before.numbers) + len(shelf.numbers) <= SHELF_MAX // 2:
            for column in _COLUMNS:
                getattr(before, column).extend(getattr(shelf, column))
            before.holes += shelf.holes
        elif shelf.numbers:
            self._shelves[at] = shelf
            return
        del self._shelves[at], self._firsts[at]


def _present_after(shelves: Iterable[RowShelf], number: int | None) -> Iterator[int]:
    """Yield the numbers in shelves that are above a number."""
    for shelf in shelves:
        begin = 0 if number is None else bisect_right(shelf.numbers, number)
        for at in range(begin, len(shelf.numbers)):
            if shelf.present[at]:
                yield shelf.numbers[at]
