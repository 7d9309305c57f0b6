"""The command ``report``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.parameters import FOLDER, TABLES
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from datetime import date

DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.command(name="report")
@TABLES
@click.option("--out", type=FOLDER, default=Path("report"), show_default=True, help="The folder to write to.")
@click.option("--from", "first_day", type=DAY, metavar="YYYY-MM-DD", help="The first day, in UTC.")
@click.option("--to", "last_day", type=DAY, metavar="YYYY-MM-DD", help="The last day, in UTC.")
@click.option("--queue", help="Only this queue.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(("html", "md", "json", "csv")),
    multiple=True,
    help="Only this format; repeatable.",
)
@pass_session
def report_command(
    session: Session,
    *,
    tables: str,
    out: Path,
    first_day: datetime | None,
    last_day: datetime | None,
    queue: str | None,
    formats: tuple[str, ...],
) -> None:
    """Write a report of waits and their causes, from the tables of the pipeline: a page, a summary, JSON and CSV."""
    # Only here: reading tables and drawing plots needs packages that other commands do without.
    from fairlane.report import FORMATS, Period, make_report

    period = Period(first_day=_day(first_day), last_day=_day(last_day), queue=queue)
    files = make_report(tables, out, period=period, formats=formats or FORMATS)
    session.answer([str(path) for path in files], "\n".join(str(path) for path in files))


def _day(instant: datetime | None) -> date | None:
    return None if instant is None else instant.date()
