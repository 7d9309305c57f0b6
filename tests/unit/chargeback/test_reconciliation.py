"""All lines of a tenant and day add up to what the tables say now, or the difference is found."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from fairlane.chargeback import ChargeMismatch, Reconciliation, reconcile, tenant_bills
from fairlane.errors import InvalidArgument
from tests.unit.chargeback.usage_tables import PRICES, Books, usage, write_usage

FIRST, SECOND, THIRD = "2026-03-01", "2026-03-02", "2026-03-03"


def compared(books: Books) -> Reconciliation:
    """Compare statements with tables."""
    return reconcile(books.tables, books.statements, prices=books.prices)


@pytest.fixture
def issued(books: Books) -> Books:
    """Return books of two days, one of which was corrected."""
    write_usage(
        books.tables,
        {FIRST: [usage("acme", acked=5)], SECOND: [usage("acme", acked=7)], THIRD: [usage("acme", acked=1)]},
    )
    books.issue()
    write_usage(books.tables, {FIRST: [usage("acme", acked=6), usage("beta", acked=1)]})
    books.issue()
    return books


def test_lines_and_corrections_add_up(issued: Books) -> None:
    """After each statement there is no difference, and the sum of all lines is 14 messages."""
    found = compared(issued)
    assert found.agrees
    assert (found.statements, found.days, found.billed) == (2, 2, Decimal("0.000014"))
    assert [held.day.isoformat() for held in found.held] == [THIRD]


def test_late_data_is_a_difference_until_it_is_issued(issued: Books) -> None:
    """The difference names day, tenant, queue and meter, with both amounts and both quantities."""
    write_usage(issued.tables, {FIRST: [usage("acme", acked=6), usage("beta", acked=3)]})
    found = compared(issued)
    assert not found.agrees
    assert found.mismatches == [
        ChargeMismatch(
            day=date(2026, 3, 1),
            tenant="beta",
            queue="orders",
            meter="messages",
            issued=Decimal("0.000001"),
            tables=Decimal("0.000003"),
            issued_quantity=1,
            tables_quantity=3,
        )
    ]
    issued.issue()
    assert compared(issued).agrees


def test_a_price_that_changed_is_a_difference(issued: Books) -> None:
    """Lines that no longer follow from the price book differ in their amount alone."""
    issued.prices.write_text(PRICES + '\n[[prices]]\ntenant = "beta"\nmessage = 0\n')
    [found] = compared(issued).mismatches
    assert (found.tenant, found.issued, found.tables) == ("beta", Decimal("0.000001"), Decimal(0))
    assert (found.issued_quantity, found.tables_quantity) == (1, 1)


def test_a_day_that_was_not_issued_is_a_difference(issued: Books) -> None:
    """A day that is over has to be issued."""
    write_usage(issued.tables, {"2026-03-04": [usage("acme")]})
    assert [(each.day.isoformat(), each.issued) for each in compared(issued).mismatches] == [(THIRD, Decimal(0))]


def test_an_issued_day_that_is_held_back_now_is_compared(issued: Books) -> None:
    """A day that was issued while it was the newest has to agree as well."""
    issued.issue(newest=True)
    write_usage(issued.tables, {THIRD: [usage("acme", acked=2)]})
    assert [each.day.isoformat() for each in compared(issued).mismatches] == [THIRD]


def test_a_changed_file_is_found(issued: Books) -> None:
    """A byte that was changed, and a file that was deleted, are named; sums of damaged lines are not made."""
    path = issued.statements / "statement-000001" / "lines.csv"
    path.write_bytes(path.read_bytes().replace(b"EUR", b"USD"))
    (issued.statements / "statement-000002" / "lines.parquet").unlink()
    found = compared(issued)
    assert found.damaged == ["statement-000001/lines.csv", "statement-000002/lines.parquet"]
    assert not found.agrees


def test_an_issued_day_that_left_the_tables_is_found(issued: Books) -> None:
    """What the tables no longer have cannot be confirmed."""
    write_usage(issued.tables, {FIRST: []})
    found = compared(issued)
    assert (found.missing_days, found.mismatches, found.agrees) == ([date(2026, 3, 1)], [], False)


def test_the_bill_of_a_month(issued: Books) -> None:
    """Lines and corrections of a month add up for each tenant, with and without the prices for tenants."""
    issued.prices.write_text(PRICES + '\n[[prices]]\ntenant = "beta"\nmessage = 0.0000004\n')
    issued.issue()
    bills = [(bill.month, bill.tenant, bill.billed, bill.listed) for bill in tenant_bills(issued.statements)]
    assert bills == [
        (date(2026, 3, 1), "acme", Decimal("0.000013"), Decimal("0.000013")),
        (date(2026, 3, 1), "beta", Decimal("0.0000004"), Decimal("0.000001")),
    ]
    assert [bill.tenant for bill in tenant_bills(issued.statements, tenant="beta")] == ["beta"]


def test_no_statements_have_no_bill(books: Books) -> None:
    """A folder without statements is refused, with the command that creates them."""
    with pytest.raises(InvalidArgument, match="fairlane chargeback issue"):
        tenant_bills(books.statements)
