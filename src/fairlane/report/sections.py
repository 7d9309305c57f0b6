"""The content of a report, independent of its format: sections of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """A whole report."""

    title: str
    first_day: str
    last_day: str
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section:
        """Return a section by name."""
        return next(section for section in self.sections if section.name == name)
