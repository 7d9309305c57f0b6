"""Tables, progress bars and live screens on a terminal, drawn with rich.

Import this module only when there is a terminal: importing rich takes a noticeable time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from fairlane.cli.formatting import printable
from fairlane.cli.output import Table


def rich_table(table: Table) -> RichTable:
    """Return a table for rich. Cells are plain text, never markup."""
    drawn = RichTable(title=table.title, title_justify="left", box=SIMPLE_HEAD, show_header=bool(table.columns))
    for name in table.columns or ("",) * len(table.rows[0]):
        drawn.add_column(name, justify="right" if name in table.numbers else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn


def draw(table: Table) -> None:
    """Print a table."""
    Console().print(rich_table(table))


class Bar(Protocol):
    """A progress bar."""

    def set(self, done: int, total: int | None) -> None:
        """Show how much is done; the total is None while it is unknown."""


class _RichBar:
    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None)

    def set(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar(title: str) -> Iterator[Bar]:
    """Show a progress bar on standard error inside the block, and remove it afterwards."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _RichBar(progress, title)


class Screen:
    """A full-screen display of tables that are replaced in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, tables: list[Table]) -> None:
        """Replace the tables on the screen."""
        self._live.update(Group(*(rich_table(table) for table in tables)), refresh=True)


@contextmanager
def screen() -> Iterator[Screen]:
    """Take over the terminal for tables that change, and restore it afterwards."""
    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        yield Screen(live)
