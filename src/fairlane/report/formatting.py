"""Numbers, formatted for reading."""

from __future__ import annotations

from datetime import UTC, datetime

from fairlane.report.sections import Cell, Unit

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


def shown(value: Cell, unit: Unit) -> str:
    """Return a value as text; an empty one for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    match unit:
        case "part":
            return f"{100 * value:.1f} %"
        case "ms":
            return span(value)
        case "bytes":
            return size(value)
        case "instant":
            return instant(int(value))
        case _:
            return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def span(value_ms: float) -> str:
    """Return a duration in a suitable unit."""
    if value_ms < 1_000:  # noqa: PLR2004 - a second
        return f"{value_ms:,.0f} ms"
    if value_ms < 2 * _MINUTE_MS:
        return f"{value_ms / 1_000:,.1f} s"
    if value_ms < 2 * _HOUR_MS:
        return f"{value_ms / _MINUTE_MS:,.1f} min"
    return f"{value_ms / _HOUR_MS:,.1f} h"


def size(value: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:  # noqa: PLR2004 - the next unit
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1_000
    return f"{value:,.1f} TB"


def instant(at_ms: int) -> str:
    """Return an instant in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
