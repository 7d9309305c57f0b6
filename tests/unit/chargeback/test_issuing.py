"""Statements: lines for new days, corrections for days that changed, and nothing else."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from fairlane.errors import InvalidArgument, StoreCorrupt, StoreLocked
from tests.unit.chargeback.usage_tables import NOW_MS, PRICES, Books, usage, write_usage

FIRST, SECOND, THIRD = "2026-03-01", "2026-03-02", "2026-03-03"
KILLED_AT_THE_RENAME = """
import os, signal, sys
from pathlib import Path
from fairlane.chargeback import issue_statement

def kill(event, arguments):
    if event == "os.rename" and "statement-" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
tables, statements, prices = map(Path, sys.argv[1:])
issue_statement(tables, statements, prices=prices, now_ms=0)
"""


def amounts(books: Books, number: int) -> list[tuple[str, str | None, str, Decimal]]:
    """Return day, tenant, meter and amount of each line."""
    return [
        (f"{line['ChargePeriodStart']:%Y-%m-%d}", line["SubAccountId"], line["SkuId"], line["BilledCost"])
        for line in books.lines(number)
    ]


def test_the_lines_of_a_day(books: Books) -> None:
    """Every meter of every tenant and queue has a line with its exact amount; hours and keys of a tenant add up."""
    write_usage(
        books.tables,
        {
            FIRST: [
                usage("acme", cost_true=100, acked_bytes=1_500_000_000, service_ms=61_001, acked=40),
                usage("acme", cost_true=23, acked_bytes=1, service_ms=0, acked=1, hour_ms=3_600_000),
                usage("beta", queue="mail", acked=3),
            ],
            SECOND: [usage("acme", acked=1)],
        },
    )
    done = books.issue()
    assert done.statement is not None
    assert amounts(books, 1) == [
        (FIRST, "beta", "messages", Decimal("0.000003")),
        (FIRST, "acme", "cost", Decimal("0.246")),
        (FIRST, "acme", "messages", Decimal("0.000041")),
        (FIRST, "acme", "payload", Decimal("0.13500000009")),
        (FIRST, "acme", "service-time", Decimal("0.0244004")),
    ]
    assert (done.statement.lines, done.statement.corrections) == (5, 0)
    assert done.statement.billed == Decimal("0.40544440009")
    assert done.statement.issued_ms == NOW_MS
    assert [(held.day, held.reason) for held in done.held] == [(date(2026, 3, 2), "newest")]


def test_a_line_in_all_columns(books: Books) -> None:
    """Parquet and CSV have the same line, in the columns of FOCUS."""
    books.prices.write_text(PRICES + '\n[[prices]]\ntenant = "acme"\ngigabyte = 0.05\n')
    write_usage(books.tables, {FIRST: [usage("acme", acked_bytes=2_500_000_000)], SECOND: [usage("acme")]})
    books.issue()
    [line] = books.lines(1)
    assert line == {
        "BilledCost": Decimal("0.125"),
        "BillingAccountId": "fairlane",
        "BillingAccountName": "fairlane",
        "BillingCurrency": "EUR",
        "BillingPeriodEnd": datetime(2026, 4, 1, tzinfo=UTC),
        "BillingPeriodStart": datetime(2026, 3, 1, tzinfo=UTC),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": "Payload of acknowledged messages in queue orders on 2026-03-01, 0.05 EUR per gigabyte",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": datetime(2026, 3, 2, tzinfo=UTC),
        "ChargePeriodStart": datetime(2026, 3, 1, tzinfo=UTC),
        "ConsumedQuantity": Decimal(2_500_000_000),
        "ConsumedUnit": "B",
        "ContractedCost": Decimal("0.125"),
        "ContractedUnitPrice": Decimal("0.05"),
        "EffectiveCost": Decimal("0.125"),
        "InvoiceIssuerName": "Fairlane",
        "ListCost": Decimal("0.225"),
        "ListUnitPrice": Decimal("0.09"),
        "PricingCategory": "Standard",
        "PricingQuantity": Decimal("2.5"),
        "PricingUnit": "GB",
        "ProviderName": "Fairlane",
        "PublisherName": "Fairlane",
        "ResourceId": "orders",
        "ResourceName": "orders",
        "ResourceType": "Queue",
        "ServiceCategory": "Integration",
        "ServiceName": "Fairlane",
        "ServiceSubcategory": "Messaging",
        "SkuId": "payload",
        "SkuMeter": "Payload of acknowledged messages",
        "SkuPriceId": "payload",
        "SubAccountId": "acme",
        "SubAccountName": "acme",
        "SubAccountType": "Tenant",
        "x_CorrectsLineId": None,
        "x_IsCorrection": False,
        "x_LineId": "000001-00000001",
    }
    [cells] = books.csv_lines(1)
    assert list(cells) == list(line)
    assert (cells["BilledCost"], cells["ConsumedQuantity"], cells["PricingQuantity"]) == ("0.125", "2500000000", "2.5")
    assert (cells["BillingPeriodEnd"], cells["ChargeClass"]) == ("2026-04-01T00:00:00Z", "")
    assert (cells["SubAccountId"], cells["x_IsCorrection"]) == ("acme", "false")


def test_issuing_twice_adds_nothing(books: Books) -> None:
    """Without a change there is no second statement, and no file changes."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=5)], SECOND: [usage("acme", acked=1)]})
    books.issue()
    before = books.files()
    assert books.issue().statement is None
    assert books.files() == before


def test_late_data_becomes_a_correction(books: Books) -> None:
    """More, less and new usage on an issued day are lines with the difference; issued lines stay as they are."""
    write_usage(
        books.tables,
        {FIRST: [usage("acme", acked=5), usage("beta", acked=9)], SECOND: [usage("acme", acked=1)]},
    )
    books.issue()
    before = books.files()
    write_usage(
        books.tables,
        {FIRST: [usage("acme", acked=7), usage("beta", acked=6), usage("gamma", acked=1)], THIRD: [usage("acme")]},
    )
    done = books.issue()
    found = [
        (line["SubAccountId"], line["ConsumedQuantity"], line["BilledCost"], line["x_CorrectsLineId"])
        for line in books.lines(2)
        if line["x_IsCorrection"]
    ]
    assert found == [
        ("acme", 2, Decimal("0.000002"), "000001-00000001"),
        ("beta", -3, Decimal("-0.000003"), "000001-00000002"),
        ("gamma", 1, Decimal("0.000001"), None),
    ]
    assert [line for line in amounts(books, 2) if line[0] == SECOND] == [
        (SECOND, "acme", "messages", Decimal("0.000001"))
    ]
    assert done.statement is not None
    assert (done.statement.lines, done.statement.corrections) == (4, 3)
    assert {name: data for name, data in books.files().items() if name in before} == before


def test_usage_that_is_gone_is_credited(books: Books) -> None:
    """A tenant that an issued day no longer has gets all of it back, and a second correction refers to the original."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=5), usage("beta", acked=1)], SECOND: []})
    books.issue(newest=True)
    write_usage(books.tables, {FIRST: [usage("beta", acked=1)]})
    books.issue(newest=True)
    write_usage(books.tables, {FIRST: [usage("acme", acked=4), usage("beta", acked=1)]})
    books.issue(newest=True)
    found = [(line["ConsumedQuantity"], line["x_CorrectsLineId"]) for at in (2, 3) for line in books.lines(at)]
    assert found == [(-5, "000001-00000001"), (4, "000001-00000001")]
    assert books.lines(2)[0]["ChargeDescription"].startswith("Correction, credit: Acknowledged messages")


def test_a_changed_price_of_an_issued_day(books: Books) -> None:
    """The quantity is credited at the old price and charged at the new one; days before the change stay."""
    write_usage(books.tables, {day: [usage("acme", cost_true=10)] for day in (FIRST, SECOND, THIRD)})
    books.issue()
    books.prices.write_text(PRICES + f"\n[[prices]]\nvalid_from = {SECOND}\ncost_unit = 0.003\n")
    books.issue()
    found = [
        (line["ContractedUnitPrice"], line["PricingQuantity"], line["BilledCost"], line["x_CorrectsLineId"])
        for line in books.lines(2)
    ]
    assert found == [
        (Decimal("0.002"), -10, Decimal("-0.02"), "000001-00000002"),
        (Decimal("0.003"), 10, Decimal("0.03"), "000001-00000002"),
    ]
    assert {line["ChargePeriodStart"].date() for line in books.lines(2)} == {date(2026, 3, 2)}


def test_a_correction_of_a_closed_month_is_billed_in_the_open_one(books: Books) -> None:
    """Once a day of April is issued, March is closed: what comes late is a Correction in the bill of April."""
    write_usage(books.tables, {"2026-03-31": [usage("acme", acked=1)], "2026-04-01": [usage("acme", acked=1)]})
    books.issue()
    write_usage(books.tables, {"2026-03-31": [usage("acme", acked=2)], "2026-04-02": [usage("acme", acked=1)]})
    books.issue()
    write_usage(books.tables, {"2026-03-31": [usage("acme", acked=4)]})
    books.issue()
    found = [
        (f"{line['ChargePeriodStart']:%m-%d}", f"{line['BillingPeriodStart']:%m-%d}", line["ChargeClass"])
        for number in (1, 2, 3)
        for line in books.lines(number)
    ]
    assert found == [
        ("03-31", "03-01", None),
        ("03-31", "03-01", None),  # no day of April was issued before this statement
        ("04-01", "04-01", None),
        ("03-31", "04-01", "Correction"),
    ]
    assert books.lines(3)[0]["BillingPeriodEnd"] == datetime(2026, 5, 1, tzinfo=UTC)


def test_days_that_are_not_complete_are_held_back(books: Books) -> None:
    """The newest day and a day that lacks a part of the journal are issued only on request."""
    write_usage(
        books.tables,
        {
            FIRST: [usage("acme", acked=1), usage("beta", acked=1, is_complete=False)],
            SECOND: [usage("acme", acked=2)],
            THIRD: [usage("acme", acked=3)],
        },
    )
    done = books.issue()
    assert [(held.day.isoformat(), held.reason) for held in done.held] == [(FIRST, "incomplete"), (THIRD, "newest")]
    assert {line[0] for line in amounts(books, 1)} == {SECOND}
    assert books.issue(incomplete=True).held[0].day.isoformat() == THIRD
    assert {line[0] for line in amounts(books, 2)} == {FIRST}
    assert books.issue(incomplete=True, newest=True).held == []
    assert {line[0] for line in amounts(books, 3)} == {THIRD}


def test_only_the_days_of_a_range(books: Books) -> None:
    """Days outside of the range are neither issued nor held back."""
    write_usage(books.tables, {day: [usage("acme", acked=1)] for day in (FIRST, SECOND, THIRD)})
    done = books.issue(first_day=date(2026, 3, 2), last_day=date(2026, 3, 2))
    assert {line[0] for line in amounts(books, 1)} == {SECOND}
    assert done.held == []


def test_days_that_left_the_tables_are_not_credited(books: Books) -> None:
    """Old days that were deleted from the tables, or other tables by mistake, change no bill."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=1)], SECOND: [usage("acme", acked=1)]})
    books.issue()
    write_usage(books.tables, {FIRST: []})
    done = books.issue()
    assert (done.statement, done.missing_days) == (None, [date(2026, 3, 1)])


def test_usage_without_a_tenant(books: Books) -> None:
    """Usage whose tenant the journal does not tell has no sub account, and is issued once."""
    write_usage(books.tables, {FIRST: [usage(None, acked=1)], SECOND: []})
    books.issue(newest=True)
    assert amounts(books, 1) == [(FIRST, None, "messages", Decimal("0.000001"))]
    assert books.lines(1)[0]["SubAccountType"] is None
    assert books.issue(newest=True).statement is None


def test_a_tenant_is_no_formula_of_a_spreadsheet(books: Books) -> None:
    """In CSV a name that a spreadsheet would compute gets a quote in front; a credit stays a number."""
    write_usage(books.tables, {FIRST: [usage("=1+1", acked=2)], SECOND: []})
    books.issue(newest=True)
    write_usage(books.tables, {FIRST: [usage("=1+1", acked=1)]})
    books.issue(newest=True)
    [cells] = books.csv_lines(2)
    assert (cells["SubAccountId"], cells["BilledCost"]) == ("'=1+1", "-0.000001")
    assert books.lines(2)[0]["SubAccountId"] == "=1+1"


def test_another_currency_is_refused(books: Books) -> None:
    """Statements of a folder have one currency; nothing is written."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=1)], SECOND: []})
    books.issue(newest=True)
    before = books.files()
    books.prices.write_text(PRICES.replace("EUR", "USD"))
    with pytest.raises(InvalidArgument, match="are in EUR, and the price book is in USD"):
        books.issue(newest=True)
    assert books.files() == before


def test_a_failed_statement_leaves_nothing(books: Books) -> None:
    """A charge that no line can hold, after a day that was written already, leaves no statement and no file."""
    write_usage(
        books.tables,
        {FIRST: [usage("acme", cost_true=1)], SECOND: [usage("acme", cost_true=2**62)], THIRD: [usage("acme")]},
    )
    books.prices.write_text(PRICES.replace("0.002", "1000"))
    with pytest.raises(InvalidArgument, match="exceed the greatest amount"):
        books.issue()
    assert [path.name for path in books.statements.iterdir()] == [".lock"]


def test_a_process_that_is_killed_leaves_the_old_state(books: Books) -> None:
    """Killed when all files are written but not renamed, it leaves no statement; the next one is complete."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=1)], SECOND: [usage("acme", acked=1)]})
    command = [sys.executable, "-c", KILLED_AT_THE_RENAME, *map(str, (books.tables, books.statements, books.prices))]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert books.files() == {}
    assert (books.statements / ".statement-000001.new" / "statement.json").exists()
    books.issue()
    assert amounts(books, 1) == [(FIRST, "acme", "messages", Decimal("0.000001"))]
    assert [path.name for path in books.statements.glob(".statement*")] == []


def test_one_statement_at_a_time(books: Books) -> None:
    """While another process issues a statement, the command is refused."""
    write_usage(books.tables, {FIRST: [usage("acme", acked=1)], SECOND: []})
    books.statements.mkdir()
    with (books.statements / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked, match="Another process issues a statement"):
            books.issue(newest=True)
    assert books.issue(newest=True).statement is not None


def test_a_missing_statement_stops_everything(books: Books) -> None:
    """Without an earlier statement its lines would be issued again, so the folder is refused."""
    for quantity in (1, 2):
        write_usage(books.tables, {FIRST: [usage("acme", acked=quantity)], SECOND: []})
        books.issue(newest=True)
    (books.statements / "statement-000001").rename(books.statements / "elsewhere")
    with pytest.raises(StoreCorrupt, match="Statement 1 is missing"):
        books.issue(newest=True)
