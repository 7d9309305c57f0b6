"""Answers on standard output: JSON for programs, tables for terminals, and aligned plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import click

from fairlane.cli.formatting import printable

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under column names; without column names, rows of a name and a value."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None
    numbers: frozenset[str] = frozenset()
    """The columns that are aligned to the right."""


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def show(tables: Iterable[Table]) -> None:
    """Print tables, with an empty line between them."""
    draw = _draw_for_terminal if is_terminal() else _draw_plain
    for at, table in enumerate(tables):
        if at:
            click.echo()
        draw(table)


def _draw_for_terminal(table: Table) -> None:
    from fairlane.cli.terminal import draw

    draw(table)


def _draw_plain(table: Table) -> None:
    click.echo(plain(table))


def plain(table: Table) -> str:
    """Return a table as lines of text."""
    rows = [[printable(cell) for cell in row] for row in table.rows]
    lines = [[name.upper() for name in table.columns], *rows] if table.columns else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [name in table.numbers for name in table.columns] or [False] * len(widths)
    text = [] if table.title is None else [table.title]
    for line in lines:
        cells = zip(line, widths, is_number, strict=True)
        text.append(_GAP.join(cell.rjust(n) if right else cell.ljust(n) for cell, n, right in cells).rstrip())
    return "\n".join(text)


def raw_output() -> BinaryIO:
    """Return standard output for bytes."""
    return sys.stdout.buffer
