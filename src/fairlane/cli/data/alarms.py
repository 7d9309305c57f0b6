"""The command ``alarms``. It reads a small file next to the tables, without Spark."""

from __future__ import annotations

import click

from fairlane.cli.formatting import instant
from fairlane.cli.output import Table
from fairlane.cli.parameters import TABLES
from fairlane.cli.session import Session, pass_session


@click.command(name="alarms")
@TABLES
@click.option("--resolved", "with_resolved", is_flag=True, help="Also show alarms that were resolved recently.")
@pass_session
def alarms_command(session: Session, *, tables: str, with_resolved: bool) -> None:
    """Show tenants that are served too much, waits that have risen, and new errors.

    These are the alarms that the last run of the pipeline found in the tables. Send them to a webhook with 'fairlane
    pipeline run --webhook URL'.
    """
    # Only here: reading tables needs packages that other commands do without.
    from fairlane.alarms import read_board

    board = read_board(tables)
    if not board.raised and not (with_resolved and board.resolved):
        session.answer(board, f"No alarms up to {instant(board.horizon_ms)}." if board.horizon_ms else "No alarms.")
        return
    rows = [[instant(each.since_ms), each.kind, each.text] for each in board.raised]
    found = [Table(["since", "kind", "alarm"], rows)] if rows else []
    if with_resolved:
        over = [[instant(each.resolved_ms), each.alarm.kind, each.alarm.text] for each in board.resolved]
        found.append(Table(["resolved", "kind", "alarm"], over))
    session.answer(board, found)
