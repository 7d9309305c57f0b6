"""Exported segments: their file names, and arithmetic on the ranges of sequences that they cover.

A segment's file is named after its journal and the first and the last sequence in it, ``journal-ID-FIRST-LAST.parquet``
with twenty digits for each sequence, so that names sort as the journal does. What a file covers is decided by its name
alone: sequences inside the range that gave no event are not missing.

A folder may hold segments of several journals, and files of one journal may overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from fairlane.journal.identity import PATTERN

Range: TypeAlias = tuple[int, int]
"""The first and the last sequence of a piece of the journal, both included."""

_NAME = re.compile(rf"journal-({PATTERN})-(\d{{20}})-(\d{{20}})\.parquet", re.ASCII)
_UNFINISHED = re.compile(rf"\.journal-{PATTERN}-\d{{20}}-\d{{20}}\.parquet\.new", re.ASCII)


class SegmentFile(NamedTuple):
    """An exported segment, by the name of its file. Segments sort by journal, then as their journal does."""

    journal_id: str
    covers: Range
    name: str


def file_name(journal_id: str, covers: Range) -> str:
    """Return the name of the file that holds a range of a journal."""
    first, last = covers
    return f"journal-{journal_id}-{first:020}-{last:020}.parquet"


def segment_named(name: str) -> SegmentFile | None:
    """Return the segment in a file, by its name; None for a file that is no exported segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else SegmentFile(match[1], (int(match[2]), int(match[3])), name)


def is_unfinished(name: str) -> bool:
    """Return whether an interrupted export left a file of this name, see ``fairlane.files.unfinished_name``."""
    return _UNFINISHED.fullmatch(name) is not None


def segments_in(names: Iterable[str]) -> list[SegmentFile]:
    """Return the exported segments among file names, in the order of each journal."""
    return sorted(found for name in names if (found := segment_named(name)) is not None)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges in order, with those that touch or overlap merged."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def gaps(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges between others that none of them covers."""
    return [(before[1] + 1, after[0] - 1) for before, after in pairwise(joined(ranges))]


def without(wanted: Range, covered: Sequence[Range]) -> list[Range]:
    """Return the parts of a range that none of the covered ranges, as ``joined`` returns them, holds."""
    first, last = wanted
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
