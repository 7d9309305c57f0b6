"""A deque and a heap of whole numbers, each in one array that has its size in front.

Heaps pop their entries in the order of ``scheduler/timers.py``: by instant, then by the order in which they came.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fairlane.spark.whatif.queues import LATER
from fairlane.spark.whatif.rows import Ints
from fairlane.spark.whatif.twin.compiler import compiled

_BEGIN, _SIZE, _SLOTS = 0, 1, 2
_AT, _ORDER, _TARGET = range(3)
_FIRST: Final = 1
"""The row of a heap's first entry. In the row before it are the size and the number of entries that ever came."""


def deque_of(most: int) -> Ints:
    """Return an empty deque for up to ``most`` values."""
    return np.zeros(most + _SLOTS, dtype=np.int64)


@compiled
def size_of(deque: Ints) -> int:
    """Return how many values a deque has."""
    size: int = deque[_SIZE]
    return size


@compiled
def append(deque: Ints, value: int) -> None:
    """Add a value behind the others."""
    deque[_SLOTS + (deque[_BEGIN] + deque[_SIZE]) % (deque.size - _SLOTS)] = value
    deque[_SIZE] += 1


@compiled
def append_left(deque: Ints, value: int) -> None:
    """Add a value before the others."""
    slots = deque.size - _SLOTS
    deque[_BEGIN] = (deque[_BEGIN] + slots - 1) % slots
    deque[_SLOTS + deque[_BEGIN]] = value
    deque[_SIZE] += 1


@compiled
def pop_left(deque: Ints) -> int:
    """Remove and return the first value."""
    value: int = deque[_SLOTS + deque[_BEGIN]]
    deque[_BEGIN] = (deque[_BEGIN] + 1) % (deque.size - _SLOTS)
    deque[_SIZE] -= 1
    return value


@compiled
def first_of(deque: Ints) -> int:
    """Return the first value."""
    value: int = deque[_SLOTS + deque[_BEGIN]]
    return value


def heap_of(most: int) -> Ints:
    """Return an empty heap for up to ``most`` entries. Memory is taken as they come."""
    heap = np.empty((most + _FIRST, 3), dtype=np.int64)
    heap[0] = 0
    return heap


@compiled
def entries_of(heap: Ints) -> int:
    """Return how many entries a heap has."""
    entries: int = heap[0, 0]
    return entries


@compiled
def push(heap: Ints, at: int, target: int) -> None:
    """Add an entry."""
    heap[0, 1] += 1
    insert(heap, at, heap[0, 1], target)


@compiled
def insert(heap: Ints, at: int, order: int, target: int) -> None:
    """Add an entry whose place among those of the same instant is given."""
    heap[0, 0] += 1
    place = heap[0, 0]
    while place > _FIRST:
        above = place >> 1
        if heap[above, _AT] < at or (heap[above, _AT] == at and heap[above, _ORDER] < order):
            break
        _move(heap, above, place)
        place = above
    heap[place, _AT], heap[place, _ORDER], heap[place, _TARGET] = at, order, target


@compiled
def next_at(heap: Ints) -> int:
    """Return the instant of the first entry; ``LATER`` for an empty heap."""
    at: int = heap[_FIRST, _AT] if heap[0, 0] else LATER
    return at


@compiled
def first_target(heap: Ints) -> int:
    """Return the target of the first entry."""
    target: int = heap[_FIRST, _TARGET]
    return target


@compiled
def pop(heap: Ints) -> int:
    """Remove the first entry, and return its target."""
    target: int = heap[_FIRST, _TARGET]
    last = heap[0, 0]
    heap[0, 0] = last - 1
    at, order = heap[last, _AT], heap[last, _ORDER]
    place, below = _FIRST, 2 * _FIRST
    while below < last:
        if below + 1 < last and _is_before(heap, below + 1, heap[below, _AT], heap[below, _ORDER]):
            below += 1
        if not _is_before(heap, below, at, order):
            break
        _move(heap, below, place)
        place, below = below, 2 * below
    _move(heap, last, place)
    return target


@compiled
def _is_before(heap: Ints, place: int, at: int, order: int) -> bool:
    is_before: bool = heap[place, _AT] < at or (heap[place, _AT] == at and heap[place, _ORDER] < order)
    return is_before


@compiled
def _move(heap: Ints, place: int, to: int) -> None:
    heap[to, _AT], heap[to, _ORDER], heap[to, _TARGET] = heap[place, _AT], heap[place, _ORDER], heap[place, _TARGET]
