"""Ranges of a journal, and how they are split for tasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

ROWS_MAX: Final = 250_000
"""A task has at most so many sequences to read: a retry then repeats a second's work, not a minute's."""
_LITTLE: Final = 1_000
"""Less than this is not worth a second task."""


class Span(NamedTuple):
    """How far a journal reaches: it can be read after ``beginning``, and its latest event is ``end``."""

    beginning: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task reads: the events after a position and up to another, from a file if one is named."""

    after: int
    until: int
    file: str | None = None


def split(after: int, until: int, *, least: int) -> list[Part]:
    """Split a range into parts of nearly the same length: at least so many, unless there is only a little to read."""
    length = until - after
    if length <= 0:
        return []
    count = max(1, -(-length // ROWS_MAX), min(least, length // _LITTLE))
    ends = [after + length * number // count for number in range(count + 1)]
    return [Part(after=first, until=last) for first, last in pairwise(ends)]
