"""The commands ``chargeback issue``, ``verify`` and ``show``. They read tables with Arrow, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.reports import DAY
from fairlane.cli.errors import REFUSED, Quit
from fairlane.cli.formatting import now_ms
from fairlane.cli.output import Table
from fairlane.cli.parameters import FOLDER, TABLES
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from datetime import date

    from fairlane.chargeback import HeldDay, Issue, Reconciliation

_REASONS = {"newest": "the newest day", "incomplete": "a part of the journal is missing"}
_REMEDIES = {"newest": "--include-newest", "incomplete": "--include-incomplete"}
PRICES_HELP = "The price book, a TOML file."
STATEMENTS_HELP = "The folder of statements."
PRICE_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PRICES = click.option("--prices", type=PRICE_FILE, required=True, metavar="FILE", help=PRICES_HELP)
_STATEMENTS = click.option("--statements", type=FOLDER, required=True, metavar="FOLDER", help=STATEMENTS_HELP)
_FROM = click.option("--from", "first", type=DAY, metavar="YYYY-MM-DD", help="The first day, in UTC.")
_TO = click.option("--to", "last", type=DAY, metavar="YYYY-MM-DD", help="The last day, in UTC.")


@click.group(name="chargeback")
def chargeback_command() -> None:
    """Charge tenants for what they used: statements from the tables of the pipeline and a price book."""


@chargeback_command.command(name="issue")
@TABLES
@_PRICES
@_STATEMENTS
@_FROM
@_TO
@click.option(
    "--include-newest", is_flag=True, help="Also issue the newest day of the tables, as far as it is complete."
)
@click.option("--include-incomplete", is_flag=True, help="Also issue days for which a part of the journal is missing.")
@pass_session
def issue_command(
    session: Session,
    *,
    tables: str,
    prices: Path,
    statements: Path,
    first: datetime | None,
    last: datetime | None,
    include_newest: bool,
    include_incomplete: bool,
) -> None:
    """Issue a statement: lines for new days, and corrections for days that have changed since they were issued.

    Issued lines never change. If nothing is new, no statement is issued. The command can be killed at any time: it
    leaves a whole statement or none.
    """
    # Only here: reading tables needs packages that other commands do without.
    from fairlane.chargeback import DaySelection, issue_statement

    days = DaySelection(
        first_day=_day(first), last_day=_day(last), newest=include_newest, incomplete=include_incomplete
    )
    done = issue_statement(tables, statements, prices=prices, now_ms=now_ms(), days=days)
    session.answer(done, "\n".join(_issued(done)))


def _day(instant: datetime | None) -> date | None:
    return None if instant is None else instant.date()


def _issued(done: Issue) -> Iterable[str]:
    from fairlane.chargeback.lines import plain

    statement = done.statement
    if statement is None:
        yield "Nothing to issue: the statements are up to date."
    else:
        days = f"{statement.days[0]} to {statement.days[-1]}" if len(statement.days) > 1 else f"{statement.days[0]}"
        yield (
            f"Statement {statement.number}: {_count(statement.lines - statement.corrections, 'line')} and "
            f"{_count(statement.corrections, 'correction')} for {days}, "
            f"{plain(statement.billed)} {statement.currency}, in {done.folder}."
        )
    yield from _held(done.held)
    if done.missing_days:
        yield f"Left as they are: {_days(done.missing_days)}, issued before and no longer in the tables."


def _held(held: Sequence[HeldDay]) -> Iterable[str]:
    for reason, meaning in _REASONS.items():
        if days := [each.day for each in held if each.reason == reason]:
            yield f"Held back: {_days(days)}, {meaning}; {_REMEDIES[reason]} includes it."


def _days(days: Sequence[date]) -> str:
    return ", ".join(map(str, days))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@chargeback_command.command(name="verify")
@TABLES
@_PRICES
@_STATEMENTS
@_FROM
@_TO
@pass_session
def verify_command(
    session: Session, *, tables: str, prices: Path, statements: Path, first: datetime | None, last: datetime | None
) -> None:
    """Compare the statements with the tables: the lines of a tenant and day must add up to what the tables say now.

    Each difference is printed. The command exits with 0 if there is none, and with 1 if there is one, if a statement is
    damaged, or if an issued day is no longer in the tables. It does not compare days that are not issued because they
    are the newest or incomplete.
    """
    from fairlane.chargeback import DaySelection, reconcile

    days = DaySelection(first_day=_day(first), last_day=_day(last))
    found = reconcile(tables, statements, prices=prices, days=days)
    session.answer(found, reconciliation_tables(found))
    if not found.agrees:
        raise Quit(REFUSED)


def reconciliation_tables(found: Reconciliation) -> list[Table]:
    """Return what people read of a reconciliation."""
    from fairlane.chargeback.lines import plain

    facts = [
        ["compared", f"{_count(found.days, 'day')} of {_count(found.statements, 'statement')}"],
        ["billed", f"{plain(found.billed)} {found.currency}"],
        *(["damaged", name] for name in found.damaged),
        *(["not in the tables", str(day)] for day in found.missing_days),
        ["result", _result(found)],
    ]
    rows = [
        [str(each.day), each.tenant or "-", each.queue, each.meter, plain(each.issued), plain(each.tables)]
        for each in found.mismatches
    ]
    columns = ["day", "tenant", "queue", "meter", "issued", "tables"]
    details = [Table(columns, rows, numbers=frozenset(("issued", "tables")))] if rows else []
    return [Table([], facts), *details]


def _result(found: Reconciliation) -> str:
    if found.agrees:
        return "the statements agree with the tables"
    if found.damaged:
        return "damaged; restore the files from a backup"
    if found.mismatches:
        return f"{_count(len(found.mismatches), 'difference')}; 'fairlane chargeback issue' issues corrections"
    return "issued days are not in the tables; leave them out with --from and --to if that is right"


@chargeback_command.command(name="show")
@_STATEMENTS
@click.option("--tenant", help="Only this tenant.")
@pass_session
def show_command(session: Session, *, statements: Path, tenant: str | None) -> None:
    """Show what each tenant is billed in each month, corrections included."""
    from fairlane.chargeback import tenant_bills
    from fairlane.chargeback.lines import plain

    bills = tenant_bills(statements, tenant=tenant)
    rows = [
        [f"{bill.month:%Y-%m}", bill.tenant or "-", plain(bill.billed), plain(bill.listed), bill.currency]
        for bill in bills
    ]
    columns = ["month", "tenant", "billed", "at list prices", "currency"]
    session.answer(bills, [Table(columns, rows, numbers=frozenset(("billed", "at list prices")))])
