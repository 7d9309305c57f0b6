"""How answers are shown: JSON for programs, tables for people, plain ones where nobody looks at a terminal."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

import click
import msgspec

from fairlane.cli.formatting import printable

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under the names of their columns; without names, rows of facts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None
    numbers: frozenset[str] = frozenset()
    """The columns that are set to the right."""


def as_json(thing: object) -> str:
    """Return one line of JSON. Bytes that are text are shown as text; others as base64, under ``NAME_base64``."""
    plain = msgspec.to_builtins(thing, builtin_types=(bytes,), str_keys=True)
    return json.dumps(_without_bytes(plain), ensure_ascii=False)


def _without_bytes(thing: object) -> object:
    if isinstance(thing, dict):
        return dict(_named(str(name), value) for name, value in thing.items())
    if isinstance(thing, (list, tuple)):
        return [_without_bytes(part) for part in thing]
    return thing


def _named(name: str, value: object) -> tuple[str, object]:
    if not isinstance(value, bytes):
        return name, _without_bytes(value)
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return f"{name}_base64", base64.b64encode(value).decode()


def excerpt(payload: bytes | None, most: int = 60) -> str:
    """Return the beginning of a payload, to be looked at."""
    if payload is None:
        return ""
    text = printable(payload[: most * 4].decode(errors="backslashreplace"))
    return text if len(text) <= most and len(payload) <= most * 4 else text[:most] + "…"


def instant(at_ms: int | None) -> str:
    """Return an instant for people, in UTC."""
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def is_terminal() -> bool:
    """Tell whether somebody looks at standard output."""
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
    to_right = [name in table.numbers for name in table.columns] or [False] * len(widths)
    text = [] if table.title is None else [table.title]
    for line in lines:
        cells = zip(line, widths, to_right, strict=True)
        text.append(_GAP.join(cell.rjust(n) if right else cell.ljust(n) for cell, n, right in cells).rstrip())
    return "\n".join(text)


def answer(thing: object, tables: Iterable[Table] | str, *, is_json: bool) -> None:
    """Print an answer: itself as JSON, or what people see of it."""
    if is_json:
        click.echo(as_json(thing))
    elif isinstance(tables, str):
        click.echo(tables)
    else:
        show(tables)


def raw_output() -> BinaryIO:
    """Return standard output as it takes bytes."""
    return sys.stdout.buffer
