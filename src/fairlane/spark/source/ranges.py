"""Ranges of a journal, and how they are split into tasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from fairlane.model.partitions import NUMBER_BITS

ROWS_MAX: Final = 250_000
"""The maximum number of sequences for one task: a retry then repeats a second of work, not a minute."""
_LITTLE: Final = 1_000
"""A range shorter than this is not worth a second task."""


class JournalBounds(NamedTuple):
    """A journal and its bounds: it can be read after ``beginning``, and its latest event is ``end``.

    Events up to ``since`` are those of the journal whose backup this one was restored from; see ``JournalIdentity``.
    """

    beginning: int
    end: int
    journal_id: str = ""
    since: int = 0

    @property
    def first(self) -> int:
        """The position that the journal began after when it was new: see ``first_of``."""
        return first_of(self.beginning)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """What one task reads: the events after a position and up to another, from a file, or at a node of a cluster.

    Attributes:
        journal_id: the journal that the driver planned to read; None for any.
    """

    after: int
    until: int
    file: str | None = None
    at: str | None = None
    journal_id: str | None = None


def first_of(position: int) -> int:
    """Return the position that a journal began after, by any of its positions.

    It is 0 for most journals. That of a partition starts at a high number.
    """
    return position >> NUMBER_BITS << NUMBER_BITS


def split(after: int, until: int, *, least: int) -> list[ReadRange]:
    """Split a range into at least ``least`` parts of nearly the same length; fewer if the range is short."""
    length = until - after
    if length <= 0:
        return []
    count = max(1, -(-length // ROWS_MAX), min(least, length // _LITTLE))
    ends = [after + length * number // count for number in range(count + 1)]
    return [ReadRange(after=first, until=last) for first, last in pairwise(ends)]
