"""Whatever happens to days and prices: all lines together are what a computation from scratch gives."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.chargeback import reconcile
from tests.unit.chargeback.usage_tables import Books, usage, write_usage

DAYS = ("2026-03-30", "2026-03-31", "2026-04-01")
NEWEST = "2026-04-02"
TENANTS = ("acme", "beta")
QUEUES = ("orders", "mail")
COLUMNS = {"cost_true": ("cost", 1), "acked_bytes": ("payload", 10**9), "service_ms": ("service-time", 1000)}
PRICES = ("0.002", "0.333333333", "0", "17")

Quantities = dict[tuple[str, str, str], int]
"""The usage of a day by tenant, queue and column."""

changes = st.tuples(
    st.sampled_from(DAYS),
    st.dictionaries(
        st.tuples(st.sampled_from(TENANTS), st.sampled_from(QUEUES), st.sampled_from(sorted(COLUMNS))),
        st.integers(0, 10**12),
        max_size=5,
    ),
    st.sampled_from(PRICES),
)
"""A day that is written again, and the price of all meters from then on."""


def written(books: Books, day: str, quantities: Quantities) -> None:
    """Write a day again. It keeps a row, so that it stays in the tables."""
    rows = [usage(tenant, queue, **{column: value}) for (tenant, queue, column), value in quantities.items()]
    write_usage(books.tables, {day: [usage("acme"), *rows]})


def priced(books: Books, price: str) -> None:
    """Write a price book in which acme pays half."""
    names = ("cost_unit", "gigabyte", "service_second")
    half = Fraction(price) / 2
    text = "\n".join(f"{name} = {price}" for name in names)
    halved = "\n".join(f"{name} = {float(half):.9f}" for name in names) if price != PRICES[1] else text
    books.prices.write_text(f'currency = "EUR"\n[[prices]]\n{text}\n[[prices]]\ntenant = "acme"\n{halved}\n')


def price_of(tenant: str, price: str) -> Fraction:
    """Return the price that a tenant pays."""
    return Fraction(price) / (2 if tenant == "acme" and price != PRICES[1] else 1)


def from_scratch(days: dict[str, Quantities], price: str) -> dict[tuple[str, ...], Fraction]:
    """Return the amounts by day, tenant, queue and meter."""
    found = {}
    for day, quantities in days.items():
        for (tenant, queue, column), quantity in quantities.items():
            sku, units = COLUMNS[column]
            found[day, tenant, queue, sku] = Fraction(quantity, units) * price_of(tenant, price)
    return {place: amount for place, amount in found.items() if amount}


def added_up(lines: list[dict[str, Any]]) -> dict[tuple[str, ...], Fraction]:
    """Return the amounts of lines by day, tenant, queue and meter."""
    found: defaultdict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for line in lines:
        place = f"{line['ChargePeriodStart']:%Y-%m-%d}", line["SubAccountId"], line["ResourceId"], line["SkuId"]
        found[place] += Fraction(line["BilledCost"])
        assert line["BilledCost"] == line["PricingQuantity"] * line["ContractedUnitPrice"]
    return {place: amount for place, amount in found.items() if amount}


@settings(max_examples=10)
@given(st.lists(changes, min_size=1, max_size=5))
def test_all_lines_are_what_a_computation_from_scratch_gives(steps: list[Any]) -> None:
    """After each statement the lines of all statements add up exactly, and earlier statements have not changed."""
    with tempfile.TemporaryDirectory() as folder:
        books = Books(Path(folder))
        write_usage(books.tables, {NEWEST: [usage("acme")]})
        days: dict[str, Quantities] = {}
        count, before = 0, books.files()
        for day, quantities, price in steps:
            days[day] = quantities
            written(books, day, quantities)
            priced(books, price)
            count += books.issue().statement is not None
            lines = [line for number in range(1, count + 1) for line in books.lines(number)]
            assert added_up(lines) == from_scratch(days, price)
            after = books.files()
            assert {name: after.get(name) for name in before} == before
            before = after
        assert reconcile(books.tables, books.statements, prices=books.prices).agrees
        assert books.issue().statement is None
