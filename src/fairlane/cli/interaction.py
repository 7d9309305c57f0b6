"""Questions to whoever sits at the terminal."""

from __future__ import annotations

import sys

import click

from fairlane.cli.errors import REFUSED, Stop


def confirm(question: str, *, is_sure: bool) -> None:
    """Go on only if somebody says yes, or has said so with ``--yes``.

    Raises:
        Stop: somebody said no.
        click.UsageError: nobody is there to be asked.
    """
    if is_sure:
        return
    try:
        is_meant = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("Nobody is there to be asked. Say --yes if you mean it.") from None
    if not is_meant:
        click.echo("Nothing was done.", err=True)
        raise Stop(REFUSED)
