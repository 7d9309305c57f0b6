"""The person at the terminal: confirmation, progress, and interrupts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from fairlane.cli.errors import REFUSED, Quit
from fairlane.platforms import posix_fault

if TYPE_CHECKING:  # rich is imported only for terminals
    from fairlane.cli.terminal import Bar


def confirm(question: str, *, is_sure: bool) -> None:
    """Return if the user passed ``--yes`` or answers the question with yes.

    Raises Quit if the user answered no. Raises click.UsageError if there is no terminal to ask on.
    """
    if is_sure:
        return
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the line of the question
        raise click.UsageError("No terminal for confirmation; pass --yes.") from None
    if not is_confirmed:
        click.echo("Cancelled; nothing was changed.", err=True)
        raise Quit(REFUSED)


def check_platform(command: str, platform: str = sys.platform) -> None:
    """Raise click.UsageError where a command can't run."""
    if (fault := posix_fault(f"fairlane {command}", platform)) is not None:
        raise click.UsageError(fault)


class _NoBar:
    def set(self, done: int, total: int | None) -> None:
        """Show nothing."""


@contextmanager
def _no_bar() -> Iterator[Bar]:
    yield _NoBar()


def progress(title: str) -> AbstractContextManager[Bar]:
    """Return a progress bar on standard error; an invisible one if that is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return _no_bar()
    from fairlane.cli.terminal import bar

    return bar(title)


@contextmanager
def stoppable() -> Iterator[None]:
    """Treat SIGTERM like an interrupt inside the block, so that commands return their leases before they end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
