"""Converts filters that Spark pushes down into selections of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from fairlane.journal.selection import Selection

IDS_MAX: Final = 200
"""The maximum number of message ids in one request; Spark filters by more ids itself."""
_SETS: Final = {"kind": "kinds", "queue": "queues", "message_id": "message_ids"}
_Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of the journal, after one position and up to another, and a selection of its events."""

    after: int
    until: int
    selection: Selection


def pushed(wanted: Wanted, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Return the selection narrowed by filters, and the filters that Spark still has to apply."""
    left: list[Filter] = []
    for one in filters:
        narrowed = _narrowed(wanted, one)
        if narrowed is None:
            left.append(one)
        else:
            wanted = narrowed
    first = wanted.selection.first_sequence()
    return replace(wanted, after=max(wanted.after, first - 1)), left


def _narrowed(wanted: Wanted, one: Filter) -> Wanted | None:
    if isinstance(one, EqualTo | In) and one.attribute[0] in _SETS:
        values = (one.value,) if isinstance(one, EqualTo) else one.value
        return _with_set(wanted, _SETS[one.attribute[0]], values)
    if not isinstance(one, _Comparison) or type(one.value) is not int or one.value < 1:
        return None
    least, most = _bounds(one)
    if one.attribute == ("sequence",):
        return replace(wanted, after=max(wanted.after, least - 1), until=min(wanted.until, most))
    if one.attribute == ("at_ms",):
        chosen = wanted.selection
        since_ms = max(least, chosen.since_ms or 0)
        until_ms = most if chosen.until_ms is None else min(most, chosen.until_ms)
        return replace(wanted, selection=msgspec.structs.replace(chosen, since_ms=since_ms, until_ms=until_ms))
    return None


def _bounds(one: _Comparison) -> tuple[int, int]:
    """Return the least and the greatest value that satisfies a comparison."""
    match one:
        case GreaterThan():
            return one.value + 1, _FOR_EVER
        case GreaterThanOrEqual():
            return one.value, _FOR_EVER
        case LessThan():
            return 0, one.value - 1
        case LessThanOrEqual():
            return 0, one.value
    return one.value, one.value


def _with_set(wanted: Wanted, name: str, values: Sequence[object]) -> Wanted | None:
    texts = frozenset(value for value in values if isinstance(value, str))
    if any("," in text or not text for text in texts) or len(texts) > IDS_MAX:
        return None
    before: frozenset[str] | None = getattr(wanted.selection, name)
    both = texts if before is None else texts & before
    return replace(wanted, selection=msgspec.structs.replace(wanted.selection, **{name: both}))


_FOR_EVER: Final = 2**63 - 1
