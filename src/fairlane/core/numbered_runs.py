"""Runs: which numbers each enqueue of a producer had. Short ones are kept together in an array."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from fairlane.journal.records import NumberedRun

BLOCK: Final = 256
"""Runs are found by blocks of this many numbers."""
_BITMAP: Final = 128
"""A bitmap begins at a multiple of this."""
_JOINED_MS: Final = 10_000
"""Runs are kept together if their windows end this close to each other, so that what is kept together leaves soon."""
_FIELDS: Final = 4
"""What an array has for each run: first number, count, sequence and end of the window."""


class JoinedRuns:
    """Runs without gaps that begin in one block, in one array by their numbers, so that each takes 32 bytes.

    Attributes:
        values: the fields of each run.
        since_ms: when the first window is over.
    """

    __slots__ = ("since_ms", "values")

    def __init__(self, values: Sequence[int]) -> None:
        self.values = array("q", values)
        self.since_ms = values[3] if len(values) == _FIELDS else min(values[3::_FIELDS])

    def __len__(self) -> int:
        return len(self.values) // _FIELDS

    @property
    def blocks(self) -> range:
        """The block in which all runs begin."""
        block = self.values[0] // BLOCK
        return range(block, block + 1)

    @property
    def until_ms(self) -> int:
        """When the last window is over."""
        return max(self.values[3::_FIELDS])

    @property
    def last(self) -> int:
        """The highest number of all runs, which have no number in common."""
        return self.values[-4] + self.values[-3] - 1

    def join(self, run: NumberedRun) -> bool:
        """Take a run in if its window ends near the others and no run has one of its numbers; return whether it did."""
        if not (-_JOINED_MS < run.until_ms - self.since_ms < _JOINED_MS):
            return False
        values = self.values
        at = len(values) if run.first > values[-4] else self._place(run.first)
        if at and values[at - 4] + values[at - 3] > run.first:
            return False
        if at < len(values) and values[at] < run.first + run.count:
            return False
        values[at:at] = array("q", (run.first, run.count, run.sequence, run.until_ms))
        self.since_ms = min(self.since_ms, run.until_ms)
        return True

    def sequence_of(self, number: int, now_ms: int) -> int | None:
        """Return the sequence of a number; None if no run that counts has it."""
        at = self._place(number)
        if not at:
            return None
        first, count, sequence, until_ms = self.values[at - _FIELDS : at]
        return sequence + number - first if number - first < count and until_ms > now_ms else None

    def runs(self) -> list[NumberedRun]:
        """Return the runs, by their numbers."""
        fields = [self.values[field::_FIELDS] for field in range(_FIELDS)]
        return [
            NumberedRun(first, count, sequence, until_ms)
            for first, count, sequence, until_ms in zip(*fields, strict=True)
        ]

    def image(self) -> NumberedRun:
        """Return all runs as one for the journal."""
        values = self.values
        return NumberedRun(values[0], sum(values[1::_FIELDS]), values[2], self.until_ms, None, values.tolist())

    def _place(self, number: int) -> int:
        """Return where in the array the runs begin whose first number is above ``number``."""
        values = self.values
        return _FIELDS * bisect_right(range(len(self)), number, key=lambda at: values[_FIELDS * at])


class LoneRun:
    """A run that is long or has gaps.

    Attributes:
        run: its numbers.
        blocks: the blocks from the first of them to the last.
        last: the highest of them.
        until_ms: when its window is over.
    """

    __slots__ = ("blocks", "last", "run", "until_ms")

    def __init__(self, run: NumberedRun) -> None:
        self.run = run
        self.last = _last_of(run)
        self.blocks = range(run.first // BLOCK, self.last // BLOCK + 1)
        self.until_ms = run.until_ms

    def __len__(self) -> int:
        return 1

    def sequence_of(self, number: int, now_ms: int) -> int | None:
        """Return the sequence of a number; None if the run does not have it or no longer counts."""
        place = _place_in(self.run, number)
        return None if place is None or self.until_ms <= now_ms else self.run.sequence + place

    def runs(self) -> list[NumberedRun]:
        """Return the run."""
        return [self.run]

    def image(self) -> NumberedRun:
        """Return the run for the journal."""
        return self.run


Entry = JoinedRuns | LoneRun


def entry_of(image: NumberedRun) -> Entry:
    """Return what an image was made of."""
    return LoneRun(image) if image.joined is None else JoinedRuns(image.joined)


def run_of(numbers: Sequence[int], count: int, sequence: int, until_ms: int) -> NumberedRun:
    """Return the run of new messages.

    Args:
        numbers: the number of each message, or only the first if the others follow it.
        count: how many messages there are.
        sequence: the sequence of the first.
        until_ms: when their window is over.
    """
    first = numbers[0]
    if len(numbers) == 1 or numbers[-1] - first == count - 1:
        return NumberedRun(first, count, sequence, until_ms)
    base = first - first % _BITMAP
    bitmap = bytearray((numbers[-1] - base) // 8 + 1)
    for number in numbers:
        bitmap[(number - base) >> 3] |= 1 << (number & 7)
    return NumberedRun(first, count, sequence, until_ms, bytes(bitmap))


def _last_of(run: NumberedRun) -> int:
    """Return the highest number of a run."""
    if run.bitmap is None:
        return run.first + run.count - 1
    return run.first - run.first % _BITMAP + 8 * (len(run.bitmap) - 1) + run.bitmap[-1].bit_length() - 1


def _place_in(run: NumberedRun, number: int) -> int | None:
    """Return how many messages of a run come before a number; None if the number is not in the run."""
    if run.bitmap is None:
        offset = number - run.first
        return offset if 0 <= offset < run.count else None
    offset = number - (run.first - run.first % _BITMAP)
    byte = offset >> 3
    if not (0 <= byte < len(run.bitmap) and run.bitmap[byte] >> (offset & 7) & 1):
        return None
    return (int.from_bytes(run.bitmap, "little") & ((1 << offset) - 1)).bit_count()
