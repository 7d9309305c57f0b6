"""Changes of config within a period, with what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from fairlane.report.sections import Cell
from fairlane.report.tables import Tables
from fairlane.verbs.config import PRIVATE_PREFIX

_COLUMNS = ("sequence", "journal_id", "at_ms", "name", "value", "owner", "by", "reason", "expires_ms")
_OUTCOMES = {
    "expiry": "expired",
    "kept:": "kept",
    "rolled back:": "rolled back",
}
"""How the reason of the next change begins, if it tells what became of the one before it."""


def settings(tables: Tables) -> list[tuple[Cell, ...]]:
    """Return the changes of config, in order, each with its outcome."""
    found = [
        row
        for batch in tables.whole("events", _COLUMNS, where=pc.field("kind") == "config_set")
        for row in batch.to_pylist()
        if not row["name"].startswith(PRIVATE_PREFIX)
    ]
    found.sort(key=lambda row: (row["at_ms"], row["journal_id"] or "", row["sequence"]))
    later: dict[tuple[str, str], Mapping[str, Any]] = {}
    rows: list[tuple[Cell, ...]] = []
    for row in reversed(found):
        which = (row["journal_id"] or "", row["name"])
        rows.append(_cells(row, later.get(which)))
        later[which] = row
    rows.reverse()
    return [cells for cells in rows if tables.concerns(str(cells[1]))]


def _cells(row: Mapping[str, Any], after: Mapping[str, Any] | None) -> tuple[Cell, ...]:
    value = "removed" if row["value"] is None else row["value"]
    who = row["owner"] or row["by"]
    return (row["at_ms"], row["name"], value, who, row["reason"], row["expires_ms"], _outcome(after))


def _outcome(after: Mapping[str, Any] | None) -> str:
    if after is None:
        return "in force"
    reason = after["reason"] or ""
    return next((outcome for begin, outcome in _OUTCOMES.items() if reason.startswith(begin)), "replaced")
