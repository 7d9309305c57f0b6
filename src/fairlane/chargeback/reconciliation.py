"""Compares the statements with the tables: all lines of a tenant and day must add up to what the tables say now.

The sums are made in another way than when lines are issued: Arrow adds the amounts up that lines state, and they are
compared with what the price book gives for the usage, whatever lines there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple

from fairlane.chargeback.charges import amount_of, charges_of, sum_of
from fairlane.chargeback.issuing import DaySelection, HeldDay, check_currency, missing_days
from fairlane.chargeback.price_book import PriceBook, read_price_book
from fairlane.chargeback.statements import StatementFolder
from fairlane.chargeback.usage import UsageTable
from fairlane.lakehouse import TablesAddress
from fairlane.lakehouse.rollups import Operation, rolled_up

_BY: Final = ("SubAccountId", "ResourceId", "SkuId")
_SUMS: Final[dict[str, Operation]] = {"ConsumedQuantity": "sum", "BilledCost": "sum"}


class _Total(NamedTuple):
    """A quantity in consumed units, and an amount."""

    quantity: int
    amount: Decimal


_NOTHING: Final = _Total(0, Decimal(0))
_Totals = dict[tuple[str, str, str], _Total]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeMismatch:
    """A sum that differs.

    Attributes:
        day: the day.
        tenant: the tenant; empty if the journal does not tell it.
        queue: the queue.
        meter: what is charged for.
        issued: the amount of all lines.
        tables: the amount that the tables and the price book give.
        issued_quantity: the quantity of all lines, in consumed units.
        tables_quantity: the quantity in the tables.
    """

    day: date
    tenant: str
    queue: str
    meter: str
    issued: Decimal
    tables: Decimal
    issued_quantity: int
    tables_quantity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a comparison found.

    Attributes:
        statements: how many statements there are.
        days: how many days were compared.
        billed: the amount of all lines of these days.
        currency: its currency.
        mismatches: what differs.
        damaged: files of statements that are missing or are not as they were issued.
        missing_days: days that have lines and are not in the tables.
        held: days that were not compared.
    """

    statements: int
    days: int
    billed: Decimal
    currency: str
    mismatches: list[ChargeMismatch]
    damaged: list[str]
    missing_days: list[date]
    held: list[HeldDay]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs, and nothing is damaged or missing."""
        return not (self.mismatches or self.damaged or self.missing_days)


def reconcile(
    tables: str | Path | TablesAddress, statements: Path, *, prices: Path, days: DaySelection | None = None
) -> Reconciliation:
    """Compare statements with tables.

    Args:
        tables: the address of the tables.
        statements: the folder of statements.
        prices: the file of the price book.
        days: which days to compare. Of the newest day and of incomplete ones, those are compared that have lines.

    Raises:
        InvalidArgument: there are no tables, the price book is not valid, or its currency is another one.
        StoreCorrupt: a statement cannot be read.
    """
    days = days or DaySelection()
    book, folder, table = read_price_book(prices), StatementFolder(statements), UsageTable(tables)
    check_currency(folder, book)
    damaged = folder.damaged()
    found = [] if damaged else list(_compared(table, folder, book, days))
    compared = [each for each in found if isinstance(each, _ComparedDay)]
    return Reconciliation(
        statements=len(folder.statements),
        days=len(compared),
        billed=sum_of(each.billed for each in compared),
        currency=book.currency,
        mismatches=[mismatch for each in compared for mismatch in each.mismatches],
        damaged=damaged,
        missing_days=missing_days(folder, table, days),
        held=[each for each in found if isinstance(each, HeldDay)],
    )


@dataclass(frozen=True, slots=True)
class _ComparedDay:
    billed: Decimal
    mismatches: list[ChargeMismatch]


def _compared(
    table: UsageTable, folder: StatementFolder, book: PriceBook, days: DaySelection
) -> Iterator[_ComparedDay | HeldDay]:
    has_lines = folder.days()
    for day, found in days.usage(table):
        if isinstance(found, HeldDay) and day not in has_lines:
            yield found
            continue
        issued, now = _issued_totals(folder, day), _totals_now(table, book, day)
        billed = sum_of(total.amount for total in issued.values())
        yield _ComparedDay(billed, list(_mismatches(day, issued, now)))


def _issued_totals(folder: StatementFolder, day: date) -> _Totals:
    """Return what lines state for a day, added up by Arrow."""
    found = rolled_up(folder.batches(day, (*_BY, *_SUMS)), _BY, _SUMS)
    tenants, queues, skus, quantities, amounts = (found[name].to_pylist() for name in (*_BY, *_SUMS))
    return {
        (tenant or "", queue, sku): _Total(int(quantity), amount)
        for tenant, queue, sku, quantity, amount in zip(tenants, queues, skus, quantities, amounts, strict=True)
    }


def _totals_now(table: UsageTable, book: PriceBook, day: date) -> _Totals:
    """Return what the tables and the price book give for a day."""
    return {
        (charge.tenant, charge.queue, charge.sku): _Total(
            quantity, amount_of(charge.meter, quantity, charge.rate.contracted)
        )
        for charge, quantity in charges_of(table.on(day).usage, book.on(day)).items()
    }


def _mismatches(day: date, issued: _Totals, now: _Totals) -> Iterator[ChargeMismatch]:
    for place in sorted(issued.keys() | now.keys()):
        tenant, queue, sku = place
        told, given = issued.get(place, _NOTHING), now.get(place, _NOTHING)
        if told != given:
            yield ChargeMismatch(
                day=day,
                tenant=tenant,
                queue=queue,
                meter=sku,
                issued=told.amount,
                tables=given.amount,
                issued_quantity=told.quantity,
                tables_quantity=given.quantity,
            )
