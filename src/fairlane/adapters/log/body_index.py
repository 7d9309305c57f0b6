"""Where each body is: its number, in which segment, and as which of the bodies there.

Millions of bodies may be stored, each for a message or two, so an entry costs 16 bytes here and 13 in its segment. The
entries are in *shelves*: arrays of up to a few thousand, sorted by number. Numbers grow, so new entries are appended to
the last shelf; any other place is found by bisection and works too. An entry that was removed stays as a hole until
half of its shelf are holes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

SHELF_MAX: Final = 4096
_HOLE: Final = 0


class Shelf:
    """Some consecutive entries; ``segments`` has 0 where an entry was removed."""

    __slots__ = ("holes", "numbers", "ordinals", "segments")

    def __init__(self) -> None:
        self.numbers, self.segments, self.ordinals = array("Q"), array("I"), array("I")
        self.holes = 0

    def tidied(self) -> Shelf:
        """Return a shelf with the same entries and no holes."""
        tidy = Shelf()
        for number, segment, ordinal in zip(self.numbers, self.segments, self.ordinals, strict=True):
            if segment != _HOLE:
                tidy.numbers.append(number)
                tidy.segments.append(segment)
                tidy.ordinals.append(ordinal)
        return tidy


class BodyIndex:
    """The place of each body by its number. Segments have numbers from 1 on."""

    def __init__(self) -> None:
        self._shelves: list[Shelf] = []
        self._firsts: list[int] = []
        """The number from which on a shelf is searched; every shelf has an entry or a hole."""
        self._count = 0

    def __len__(self) -> int:
        """Return how many bodies there are."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of all bodies, in order."""
        for shelf in self._shelves:
            for number, segment in zip(shelf.numbers, shelf.segments, strict=True):
                if segment != _HOLE:
                    yield number

    def put(self, number: int, segment: int, ordinal: int) -> tuple[int, int] | None:
        """Set the place of a body, and return the place that it had before."""
        shelf = self._shelf_for(number)
        numbers = shelf.numbers
        if not numbers or number > numbers[-1]:
            numbers.append(number)
            shelf.segments.append(segment)
            shelf.ordinals.append(ordinal)
            self._count += 1
            return None
        at = bisect_left(numbers, number)
        if numbers[at] != number:
            numbers.insert(at, number)
            shelf.segments.insert(at, segment)
            shelf.ordinals.insert(at, ordinal)
            self._count += 1
            return None
        before = (shelf.segments[at], shelf.ordinals[at])
        shelf.segments[at], shelf.ordinals[at] = segment, ordinal
        if before[0] == _HOLE:
            shelf.holes -= 1
            self._count += 1
            return None
        return before

    def find(self, number: int) -> tuple[int, int] | None:
        """Return the segment of a body and its ordinal there; None if there is no such body."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        shelf = self._shelves[at]
        numbers = shelf.numbers
        place = bisect_left(numbers, number)
        if place == len(numbers) or numbers[place] != number or shelf.segments[place] == _HOLE:
            return None
        return shelf.segments[place], shelf.ordinals[place]

    def remove(self, number: int) -> tuple[int, int] | None:
        """Remove a body, and return the place that it had; None if there is no such body."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        shelf = self._shelves[at]
        numbers, segments = shelf.numbers, shelf.segments
        place = bisect_left(numbers, number)
        if place == len(numbers) or numbers[place] != number or not segments[place]:
            return None
        found = segments[place], shelf.ordinals[place]
        segments[place] = _HOLE
        shelf.holes += 1
        self._count -= 1
        if 2 * shelf.holes > len(numbers):
            self._tidy(at)
        return found

    def _shelf_for(self, number: int) -> Shelf:
        """Return the shelf to which a number belongs; a new one if that is full."""
        firsts = self._firsts
        if not firsts:
            return self._insert(0, number)
        at = max(bisect_right(firsts, number) - 1, 0)
        shelf = self._shelves[at]
        if number < firsts[at]:
            firsts[at] = number
        if len(shelf.numbers) < SHELF_MAX:
            return shelf
        if number > shelf.numbers[-1]:
            return self._insert(at + 1, number)
        self._split(at)
        return self._shelf_for(number)

    def _insert(self, at: int, first: int) -> Shelf:
        shelf = Shelf()
        self._shelves.insert(at, shelf)
        self._firsts.insert(at, first)
        return shelf

    def _split(self, at: int) -> None:
        whole, right = self._shelves[at], Shelf()
        half = len(whole.numbers) // 2
        for column in ("numbers", "segments", "ordinals"):
            entries: array[int] = getattr(whole, column)
            setattr(right, column, entries[half:])
            del entries[half:]
        right.holes = right.segments.count(_HOLE)
        whole.holes -= right.holes
        self._shelves.insert(at + 1, right)
        self._firsts.insert(at + 1, right.numbers[0])

    def _tidy(self, at: int) -> None:
        """Take the holes out of a shelf, and join it with the one before if both are small."""
        shelf = self._shelves[at].tidied()
        if not shelf.numbers:
            del self._shelves[at], self._firsts[at]
            return
        before = self._shelves[at - 1] if at else None
        if before is not None and len(before.numbers) + len(shelf.numbers) <= SHELF_MAX // 2:
            for column in ("numbers", "segments", "ordinals"):
                getattr(before, column).extend(getattr(shelf, column))
            del self._shelves[at], self._firsts[at]
            return
        self._shelves[at] = shelf
