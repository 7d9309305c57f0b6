"""What is drawn on terminals, with rich. Imported only where there is one, since rich takes its time."""

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


def picture(table: Table) -> RichTable:
    """Return a table as rich draws it. Cells are text and never markup."""
    drawn = RichTable(title=table.title, title_justify="left", box=SIMPLE_HEAD, show_header=bool(table.columns))
    for name in table.columns or ("",) * len(table.rows[0]):
        drawn.add_column(name, justify="right" if name in table.numbers else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn


def draw(table: Table) -> None:
    """Draw a table."""
    Console().print(picture(table))


class Bar(Protocol):
    """Progress that is shown to somebody."""

    def set(self, done: int, total: int | None) -> None:
        """Show how far it is."""


class _Bar:
    def __init__(self, progress: Progress, words: str) -> None:
        self._progress = progress
        self._task = progress.add_task(words, total=None)

    def set(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar(words: str) -> Iterator[Bar]:
    """Show a bar on standard error while something goes on, and leave nothing behind."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, words)


class Screen:
    """Tables that are drawn over those before."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, tables: list[Table]) -> None:
        """Draw these tables now."""
        self._live.update(Group(*(picture(table) for table in tables)), refresh=True)


@contextmanager
def screen() -> Iterator[Screen]:
    """Take the terminal for tables that change, and give it back."""
    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        yield Screen(live)
