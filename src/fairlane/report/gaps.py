"""The warning of a report whose period is incomplete, because events of a journal are missing in the tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from fairlane.report.tables import Tables

_COLUMNS = ("from_sequence", "until_sequence", "from_ms", "until_ms", "day")


def warning_of(tables: Tables) -> str:
    """Return which days of the period are incomplete and how much is missing; an empty text if nothing is."""
    concerned = [(gap, found) for gap in tables.every("gaps", _COLUMNS) if (found := _days_of(gap, tables))]
    if not concerned:
        return ""
    days = sorted({day.isoformat() for _, of_gap in concerned for day in of_gap})
    missing = sum(gap["until_sequence"] - gap["from_sequence"] + 1 for gap, _ in concerned)
    named = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"Incomplete: {missing:,} sequences of the journal are missing in {len(concerned)} "
        f"gap{'' if len(concerned) == 1 else 's'}, which concern{'s' if len(concerned) == 1 else ''} {named}. "
        "Counts and sums of these days are too low, and what was open before a gap may have been served in it."
    )


def _days_of(gap: dict[str, Any], tables: Tables) -> list[date]:
    """Return the days of the period that a gap concerns."""
    first: date = gap["day"]
    last = first if gap["until_ms"] is None else datetime.fromtimestamp(gap["until_ms"] // 1000, UTC).date()
    days = [first + timedelta(days=count) for count in range((last - first).days + 1)]
    return [day for day in days if tables.is_wanted(day)]
