"""The content of a report, independent of its format: sections of rows, and their numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

Unit = Literal["text", "number", "part", "ms", "bytes", "instant"]
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Heading:
    """One column: its name in JSON and CSV, its title, and the unit of its numbers."""

    name: str
    title: str
    unit: Unit = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the report.

    Attributes:
        name: its name in JSON, and of its CSV file.
        title: its heading.
        meaning: what it shows, in a sentence or two.
        headings: its columns.
        rows: its rows, the most interesting first.
    """

    name: str
    title: str
    meaning: str
    headings: tuple[Heading, ...]
    rows: Sequence[tuple[Cell, ...]]

    def dicts(self) -> list[dict[str, Cell]]:
        """Return the rows by name."""
        names = [heading.name for heading in self.headings]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report.

    Attributes:
        warning: why its numbers are incomplete; empty if they are not.
    """

    title: str
    first_day: str
    last_day: str
    sections: tuple[Section, ...]
    warning: str = ""

    @property
    def period(self) -> str:
        """The days that it is about."""
        return self.first_day if self.first_day == self.last_day else f"{self.first_day} to {self.last_day}"

    def section(self, name: str) -> Section:
        """Return a section by name."""
        return next(section for section in self.sections if section.name == name)


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
