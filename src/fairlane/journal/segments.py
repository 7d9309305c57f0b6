"""Exported segments: their file names, and arithmetic on the ranges of sequences that they cover.

A segment's file is named after the first and the last sequence in it, ``journal-FIRST-LAST.parquet``, with twenty
digits each, so that names sort as the journal does. What a file covers is decided by its name alone: sequences inside
the range that gave no event are not missing.

Files may overlap: a broker that was restored from a backup seals its segments elsewhere than it did before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""The first and the last sequence of a piece of the journal, both included."""

_NAME = re.compile(r"journal-(\d{20})-(\d{20})\.parquet", re.ASCII)
_UNFINISHED = re.compile(r"\.journal-\d{20}-\d{20}\.parquet\.new", re.ASCII)


def file_name(covers: Range) -> str:
    """Return the name of the file that holds a range."""
    first, last = covers
    return f"journal-{first:020}-{last:020}.parquet"


def range_of(name: str) -> Range | None:
    """Return the range that a file covers, by its name; None for a file that is no exported segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def is_unfinished(name: str) -> bool:
    """Return whether an interrupted export left a file of this name, see ``fairlane.files.unfinished_name``."""
    return _UNFINISHED.fullmatch(name) is not None


def segments_in(names: Iterable[str]) -> list[tuple[Range, str]]:
    """Return the exported segments among file names, in the order of the journal, each with what it covers."""
    found = ((range_of(name), name) for name in names)
    return sorted((covers, name) for covers, name in found if covers is not None)


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
