"""Issues statements: the lines that are missing for the days of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from fairlane.chargeback.charges import Charge, Charges, charges_of, difference
from fairlane.chargeback.lines import Line, month_of
from fairlane.chargeback.price_book import PriceBook, Rate, parse_price_book
from fairlane.chargeback.statement_writer import StatementWriter, locked
from fairlane.chargeback.statements import StatementFacts, StatementFolder
from fairlane.chargeback.usage import DayUsage, UsageTable
from fairlane.errors import InvalidArgument
from fairlane.lakehouse import TablesAddress

_ISSUED = (
    *("ResourceId", "SubAccountId", "SkuId", "ListUnitPrice", "ContractedUnitPrice"),
    *("ConsumedQuantity", "x_LineId"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySelection:
    """Which days are issued and compared.

    Attributes:
        first_day: the first one; None for the first there is.
        last_day: the last one; None for the last there is.
        newest: whether the newest day of the tables is one of them, although it is not over.
        incomplete: whether days are among them that lack a part of the journal.
    """

    first_day: date | None = None
    last_day: date | None = None
    newest: bool = False
    incomplete: bool = False

    def __post_init__(self) -> None:
        if self.first_day is not None and self.last_day is not None and self.first_day > self.last_day:
            raise InvalidArgument(f"The first day, {self.first_day}, is after the last, {self.last_day}.")

    def has(self, day: date) -> bool:
        """Return whether a day is in the range."""
        return (self.first_day is None or self.first_day <= day) and (self.last_day is None or day <= self.last_day)

    def usage(self, table: UsageTable) -> Iterator[tuple[date, DayUsage | HeldDay]]:
        """Yield the days in the range, in order, each with its usage or with why it is held back."""
        for day in filter(self.has, table.days):
            if day == table.newest_day and not self.newest:
                yield day, HeldDay(day, "newest")
                continue
            found = table.on(day)
            yield day, found if found.is_complete or self.incomplete else HeldDay(day, "incomplete")


@dataclass(frozen=True, slots=True)
class HeldDay:
    """A day that is not issued: it is the newest, or a part of the journal is missing."""

    day: date
    reason: Literal["newest", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """What was issued.

    Attributes:
        statement: the new statement; None if there was nothing to issue.
        folder: its folder; None if there is none.
        held: the days that were held back.
        missing_days: days that have lines and are not in the tables; their lines stay as they are.
    """

    statement: StatementFacts | None
    folder: str | None
    held: list[HeldDay]
    missing_days: list[date]


def issue_statement(
    tables: str | Path | TablesAddress,
    statements: Path,
    *,
    prices: Path,
    now_ms: int,
    days: DaySelection | None = None,
) -> Issue:
    """Issue a statement with the lines that are missing, if any are.

    Args:
        tables: the address of the tables.
        statements: the folder of statements; it is created if missing.
        prices: the file of the price book.
        now_ms: the instant, which the statement records.
        days: which days to issue; by default all but the newest and those that are incomplete.

    Raises:
        InvalidArgument: there are no tables, the price book is not valid, or its currency is another one.
        StoreCorrupt: an earlier statement cannot be read.
        StoreLocked: another process issues a statement in the same folder.
        StoreFailed: the statement cannot be written.
    """
    days = days or DaySelection()
    source = prices.read_bytes()
    book = parse_price_book(source, name=str(prices))
    table = UsageTable(tables)
    with locked(statements) as folder:
        check_currency(folder, book)
        writer = StatementWriter(folder, book, source=source)
        try:
            held = list(_write_lines(writer, table, days))
            facts = writer.commit(now_ms) if writer.lines else None
        finally:
            writer.discard()
    return Issue(
        statement=facts,
        folder=None if facts is None else str(folder.path(facts.number)),
        held=held,
        missing_days=missing_days(folder, table, days),
    )


def check_currency(folder: StatementFolder, book: PriceBook) -> None:
    """Raise InvalidArgument if statements are in another currency than the prices."""
    others = {statement.currency for statement in folder.statements} - {book.currency}
    if others:
        raise InvalidArgument(
            f"The statements in {folder.folder} are in {', '.join(sorted(others))}, and the price book is in "
            f"{book.currency}. Use another folder for another currency."
        )


def missing_days(folder: StatementFolder, table: UsageTable, days: DaySelection) -> list[date]:
    """Return the days that have lines and are not in the tables."""
    return sorted(filter(days.has, folder.days() - set(table.days)))


def _write_lines(writer: StatementWriter, table: UsageTable, days: DaySelection) -> Iterator[HeldDay]:
    """Write the lines that are missing, day by day, and yield the days that are held back."""
    issued_days = writer.folder.days()
    # The months before that of the newest issued day are closed: what concerns them is billed in that month.
    open_month = month_of(max(issued_days, default=date.min))
    for day, found in days.usage(table):
        if isinstance(found, HeldDay):
            yield found
            continue
        issued, originals = _issued(writer.folder, day)
        changes = difference(charges_of(found.usage, writer.book.on(day)), issued)
        lines = [
            Line(
                line_id=writer.line_id(at),
                day=day,
                charge=charge,
                quantity=quantity,
                month=max(month_of(day), open_month),
                is_correction=day in issued_days,
                corrects=originals.get(charge[:3]),
            )
            for at, (charge, quantity) in enumerate(changes.items())
        ]
        if lines:
            writer.write(day, lines)


def _issued(folder: StatementFolder, day: date) -> tuple[Charges, dict[tuple[str, ...], str]]:
    """Return what was issued for a day, and the first line of each tenant, queue and meter."""
    charges: Charges = {}
    originals: dict[tuple[str, ...], str] = {}
    for batch in folder.batches(day, _ISSUED):
        columns = [batch[name].to_pylist() for name in _ISSUED]
        for queue, tenant, sku, listed, contracted, quantity, line_id in zip(*columns, strict=True):
            charge = Charge(queue, tenant or "", sku, Rate(listed, contracted))
            charges[charge] = charges.get(charge, 0) + int(quantity)
            originals.setdefault(charge[:3], line_id)
    return charges, originals
