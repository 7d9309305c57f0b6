"""Lines in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

``SubAccount`` is the tenant, ``Resource`` the queue and ``Sku`` the meter. Columns of our own begin with ``x_``, as
the specification asks. ``docs/reference/chargeback.md`` has the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from fairlane.chargeback.charges import priced_quantity
from fairlane.chargeback.lines import Line, midnight, next_month, plain
from fairlane.chargeback.price_book import PriceBook
from fairlane.lakehouse.csv_text import inert

TEXT: Final = pa.string()
AMOUNT: Final = pa.decimal128(38, 18)
QUANTITY: Final = pa.decimal128(38, 9)
INSTANT: Final = pa.timestamp("ms", tz="UTC")

_Value = Callable[[Line, PriceBook], Any]


class LineColumn(NamedTuple):
    """A column of lines.

    Attributes:
        name: its name.
        type: its type.
        meaning: what it means.
        value: its value for a line, with the price book.
    """

    name: str
    type: pa.DataType
    meaning: str
    value: _Value


def _always(text: str) -> _Value:
    return lambda _line, _book: text


def _amount(line: Line, _book: PriceBook) -> Decimal:
    return line.amount


def _account(_line: Line, book: PriceBook) -> str:
    return book.billing_account


def _provider(_line: Line, book: PriceBook) -> str:
    return book.provider


def _queue(line: Line, _book: PriceBook) -> str:
    return line.charge.queue


def _tenant(line: Line, _book: PriceBook) -> str | None:
    return line.charge.tenant or None


def _sku(line: Line, _book: PriceBook) -> str:
    return line.charge.sku


COLUMNS: Final = tuple(
    LineColumn(*column)
    for column in (
        (
            "BilledCost",
            AMOUNT,
            "the amount: `PricingQuantity` times `ContractedUnitPrice`; negative for a credit",
            _amount,
        ),
        ("BillingAccountId", TEXT, "`billing_account` of the price book", _account),
        ("BillingAccountName", TEXT, "the same", _account),
        ("BillingCurrency", TEXT, "`currency` of the price book", lambda _line, book: book.currency),
        (
            "BillingPeriodEnd",
            INSTANT,
            "the end of the month in which the line is billed, exclusive",
            lambda line, _book: midnight(next_month(line.month)),
        ),
        ("BillingPeriodStart", INSTANT, "the start of that month", lambda line, _book: midnight(line.month)),
        ("ChargeCategory", TEXT, "`Usage`", _always("Usage")),
        (
            "ChargeClass",
            TEXT,
            "`Correction` if the month of the usage was closed before; otherwise null",
            lambda line, _book: "Correction" if line.is_of_closed_month else None,
        ),
        ("ChargeDescription", TEXT, "the line in words", lambda line, book: line.described(book.currency)),
        ("ChargeFrequency", TEXT, "`Usage-Based`", _always("Usage-Based")),
        (
            "ChargePeriodEnd",
            INSTANT,
            "the end of the day of the usage, in UTC, exclusive",
            lambda line, _book: midnight(line.day) + timedelta(days=1),
        ),
        ("ChargePeriodStart", INSTANT, "the start of that day", lambda line, _book: midnight(line.day)),
        (
            "ConsumedQuantity",
            QUANTITY,
            "the quantity in the unit of the table; always whole",
            lambda line, _book: Decimal(line.quantity),
        ),
        (
            "ConsumedUnit",
            TEXT,
            "`Units`, `B`, `Milliseconds` or `Messages`",
            lambda line, _book: line.charge.meter.consumed_unit,
        ),
        ("ContractedCost", AMOUNT, "the same as `BilledCost`", _amount),
        (
            "ContractedUnitPrice",
            AMOUNT,
            "the price that applies to this tenant",
            lambda line, _book: line.charge.rate.contracted,
        ),
        ("EffectiveCost", AMOUNT, "the same as `BilledCost`", _amount),
        ("InvoiceIssuerName", TEXT, "`provider` of the price book", _provider),
        ("ListCost", AMOUNT, "`PricingQuantity` times `ListUnitPrice`", lambda line, _book: line.listed_amount),
        (
            "ListUnitPrice",
            AMOUNT,
            "the price without entries for tenants; `ContractedUnitPrice` if there is none",
            lambda line, _book: line.charge.rate.listed,
        ),
        ("PricingCategory", TEXT, "`Standard`", _always("Standard")),
        (
            "PricingQuantity",
            QUANTITY,
            "the quantity in the unit of the price",
            lambda line, _book: priced_quantity(line.charge.meter, line.quantity),
        ),
        (
            "PricingUnit",
            TEXT,
            "`Units`, `GB`, `Seconds` or `Messages`",
            lambda line, _book: line.charge.meter.pricing_unit,
        ),
        ("ProviderName", TEXT, "`provider` of the price book", _provider),
        ("PublisherName", TEXT, "the same", _provider),
        ("ResourceId", TEXT, "the queue, over all its partitions", _queue),
        ("ResourceName", TEXT, "the same", _queue),
        ("ResourceType", TEXT, "`Queue`", _always("Queue")),
        ("ServiceCategory", TEXT, "`Integration`", _always("Integration")),
        ("ServiceName", TEXT, "`Fairlane`", _always("Fairlane")),
        ("ServiceSubcategory", TEXT, "`Messaging`", _always("Messaging")),
        ("SkuId", TEXT, "the meter: `cost`, `payload`, `service-time` or `messages`", _sku),
        ("SkuMeter", TEXT, "what the meter measures", lambda line, _book: line.charge.meter.meaning),
        ("SkuPriceId", TEXT, "the same as `SkuId`", _sku),
        (
            "SubAccountId",
            TEXT,
            "the tenant: the first name of the fairness key; null if the journal does not tell it",
            _tenant,
        ),
        ("SubAccountName", TEXT, "the same", _tenant),
        (
            "SubAccountType",
            TEXT,
            "`Tenant`; null if there is none",
            lambda line, _book: "Tenant" if line.charge.tenant else None,
        ),
        (
            "x_CorrectsLineId",
            TEXT,
            "of a correction: the first line of the same day, tenant, queue and meter; null if there is none",
            lambda line, _book: line.corrects,
        ),
        (
            "x_IsCorrection",
            pa.bool_(),
            "whether an earlier statement has lines of this day",
            lambda line, _book: line.is_correction,
        ),
        ("x_LineId", TEXT, "the number of the statement and of the line in it", lambda line, _book: line.line_id),
    )
)
SCHEMA: Final = pa.schema(
    [pa.field(column.name, column.type, metadata={"comment": column.meaning}) for column in COLUMNS]
)


def row_of(line: Line, book: PriceBook) -> dict[str, Any]:
    """Return a line by column."""
    return {column.name: column.value(line, book) for column in COLUMNS}


def csv_cells(row: dict[str, Any]) -> list[str]:
    """Return a row as the cells of a CSV file, in the order of the columns."""
    return [_cell(row[column.name]) for column in COLUMNS]


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case Decimal():
            return plain(value)
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(inert(value))
