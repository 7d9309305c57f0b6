"""The price book: which price applies, and what is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from fairlane.chargeback.meters import METERS
from fairlane.chargeback.price_book import PriceBook, Rate, parse_price_book
from fairlane.errors import InvalidArgument

COST, GIGABYTE, SECOND, MESSAGE = METERS
MARCH, APRIL = date(2026, 3, 31), date(2026, 4, 1)


def book(text: str) -> PriceBook:
    """Return a price book in euros."""
    return parse_price_book(f'currency = "EUR"\n{text}'.encode())


def rate(found: PriceBook, *, day: date = MARCH, queue: str = "orders", tenant: str = "acme") -> Rate | None:
    """Return the rate of a unit of cost."""
    return found.on(day).rate(COST, queue=queue, tenant=tenant)


def flat(price: str | int) -> Rate:
    """Return a rate that is the same for all tenants."""
    return Rate(Decimal(price), Decimal(price))


def test_prices_are_exactly_what_the_file_says() -> None:
    """A price that no float can hold, and whole numbers, are read as decimals."""
    found = book("[[prices]]\ncost_unit = 0.1\ngigabyte = 3\nmessage = 0.000000001").on(MARCH)
    place = {"queue": "orders", "tenant": "acme"}
    assert found.rate(COST, **place) == flat("0.1")
    assert found.rate(GIGABYTE, **place) == flat(3)
    assert found.rate(MESSAGE, **place) == flat("1E-9")
    assert found.rate(SECOND, **place) is None


def test_a_price_begins_and_ends_with_a_day() -> None:
    """A price holds from valid_from to valid_to, both included, and a later valid_from replaces an earlier one."""
    found = book(
        """
        [[prices]]
        cost_unit = 1
        [[prices]]
        valid_from = 2026-04-01
        valid_to = 2026-04-30
        cost_unit = 2
        """
    )
    rates = [rate(found, day=day) for day in (MARCH, APRIL, date(2026, 4, 30), date(2026, 5, 1))]
    assert rates == [flat(1), flat(2), flat(2), flat(1)]


def test_the_most_specific_price_wins() -> None:
    """Tenant and queue win over tenant, tenant over queue, queue over neither, whatever the order and the dates."""
    found = book(
        """
        prices = [
          {tenant = "acme*", queue = "mail", cost_unit = 4},
          {tenant = "acme*", cost_unit = 3},
          {queue = "mail", cost_unit = 2},
          {valid_from = 2026-01-01, cost_unit = 1},
        ]
        """
    )
    assert rate(found, queue="mail", tenant="acme-eu") == Rate(Decimal(2), Decimal(4))
    assert rate(found, queue="orders", tenant="acme-eu") == Rate(Decimal(1), Decimal(3))
    assert rate(found, queue="mail", tenant="beta") == flat(2)
    assert rate(found, queue="orders", tenant="beta") == flat(1)


def test_of_two_equally_specific_prices_the_last_in_the_file_wins() -> None:
    """Two patterns that match the same tenant from the same day on."""
    found = book('prices = [{tenant = "a*", cost_unit = 1}, {tenant = "*e", cost_unit = 2}]')
    assert rate(found) == flat(2)


def test_a_specific_entry_leaves_other_meters_to_the_general_one() -> None:
    """An entry for a tenant replaces the prices that it names, and no others."""
    found = book('prices = [{cost_unit = 1, gigabyte = 5}, {tenant = "acme", cost_unit = 0}]')
    assert rate(found) == Rate(Decimal(1), Decimal(0))
    assert found.on(MARCH).rate(GIGABYTE, queue="orders", tenant="acme") == flat(5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("currency = 'EUR'", "missing required field `prices`"),
        ("currency = 'EUR'\nprices = []", "length >= 1 - at `$.prices`"),
        ("currency = 'euro'\nprices = [{message = 1}]", "`$.currency`"),
        ("currency = 'EUR'\nprices = [{message = 1}, {mesage = 1}]", "unknown field `mesage` - at `$.prices[1]`"),
        ("currency = 'EUR'\nprices = [{queue = 'a'}]", "no price; set one of cost_unit, gigabyte"),
        ("currency = 'EUR'\nprices = [{message = -1}]", "message is -1; a price is between 0"),
        ("currency = 'EUR'\nprices = [{message = inf}]", "message is Infinity; a price is between 0"),
        ("currency = 'EUR'\nprices = [{message = nan}]", "message is NaN; a price is between 0"),
        ("currency = 'EUR'\nprices = [{gigabyte = 0.0000000001}]", "at most 9 decimal places - at `$.prices[0]`"),
        ("currency = 'EUR'\nprices = [{message = true}]", "got `bool` - at `$.prices[0].message`"),
        ("currency = 'EUR'\nprices = [{message = '1'}]", "got `str` - at `$.prices[0].message`"),
        ("currency = 'EUR'\nprices = [{valid_from = 'x', message = 1}]", "`$.prices[0].valid_from`"),
        (
            "currency = 'EUR'\nprices = [{valid_from = 2026-02-01, valid_to = 2026-01-01, message = 1}]",
            "valid_from 2026-02-01 is after valid_to 2026-01-01",
        ),
        ("currency = ", "Invalid value"),
    ],
)
def test_a_wrong_price_book_is_refused_with_the_field(text: str, complaint: str) -> None:
    """The error names the file, and the field or the entry that is wrong."""
    with pytest.raises(InvalidArgument) as refused:
        parse_price_book(text.encode(), name="prices.toml")
    assert "Invalid price book prices.toml: " in str(refused.value)
    assert complaint in str(refused.value)
