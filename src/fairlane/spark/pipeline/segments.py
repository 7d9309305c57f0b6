"""Which exported segments are new, and which part of each: by the sequences they cover, never by what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import InvalidArgument

Stretch = tuple[int, int]
"""The first and the last sequence of something."""

_NAME = re.compile(r"journal-(\d{20})-(\d{20})\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the journal in one place, and what of it is to be taken.

    Attributes:
        path: the file; None for one that a server has.
        covers: the sequences in it.
        wanted: the stretches of them that nothing else covers.
    """

    path: Path | None
    covers: Stretch
    wanted: tuple[Stretch, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is wanted."""
        return self.wanted == (self.covers,)


def new_segments(folder: Path, covered: Sequence[Stretch]) -> list[Segment]:
    """Return the segments in a folder that have something that is not covered; no sequence is wanted twice.

    Raises:
        InvalidArgument: there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"There is no folder {folder} with exported segments of a journal.")
    found: list[Segment] = []
    reached = tuple(covered)
    for path in sorted(folder.iterdir()):
        if (match := _NAME.fullmatch(path.name)) is None:
            continue
        covers = (int(match[1]), int(match[2]))
        if wanted := tuple(without(covers, reached)):
            found.append(Segment(path, covers, wanted))
            reached = joined([*reached, covers])
    return found


def without(stretch: Stretch, covered: Iterable[Stretch]) -> list[Stretch]:
    """Return the parts of a stretch that none of others in order cover."""
    first, last = stretch
    parts = []
    for begin, end in covered:
        if end < first:
            continue
        if begin > last:
            break
        if begin > first:
            parts.append((first, begin - 1))
        first = end + 1
    if first <= last:
        parts.append((first, last))
    return parts


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Return stretches in order, those that touch or overlap as one."""
    found: list[Stretch] = []
    for begin, end in sorted(stretches):
        if found and begin <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)
