"""Amounts are exact, however large or small."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fairlane.chargeback.charges import Charge, amount_of, difference, sum_of
from fairlane.chargeback.meters import METERS
from fairlane.chargeback.price_book import Rate
from fairlane.errors import InvalidArgument

COST, GIGABYTE, SECOND, MESSAGE = METERS


@pytest.mark.parametrize(
    ("meter", "quantity", "price", "amount"),
    [
        (COST, 7, "0.1", "0.7"),
        (GIGABYTE, 1, "0.000000001", "0.000000000000000001"),
        (GIGABYTE, 2_500_000_000, "0.09", "0.225"),
        (SECOND, 1_001, "0.0004", "0.0004004"),
        (SECOND, -1_001, "0.0004", "-0.0004004"),
        (GIGABYTE, 9_223_372_036_854_775_807, "999999999.999999999", "9223372036854775797.776627963145224193"),
    ],
)
def test_an_amount_is_exact(meter: object, quantity: int, price: str, amount: str) -> None:
    """The smallest and the greatest quantity and price give all their digits."""
    assert amount_of(meter, quantity, Decimal(price)) == Decimal(amount)  # type: ignore[arg-type]


def test_an_amount_that_no_line_can_hold_is_refused() -> None:
    """It is not cut off."""
    with pytest.raises(InvalidArgument, match="exceed the greatest amount"):
        amount_of(COST, 9_223_372_036_854_775_807, Decimal(1_000_000_000))


def test_a_sum_is_exact() -> None:
    """A great amount and a small one keep all digits, which a sum of Python would lose."""
    assert sum_of([Decimal(10**19), Decimal("1E-18")]) == Decimal("10000000000000000000.000000000000000001")


def test_a_changed_price_credits_the_old_one() -> None:
    """The difference has the whole quantity at both rates, so each line is a quantity times a price."""
    old, new = (Charge("orders", "acme", "cost", Rate(Decimal(price), Decimal(price))) for price in (1, 2))
    assert difference({new: 12}, {old: 10}) == {old: -10, new: 12}
    assert difference({new: 12}, {new: 10}) == {new: 2}
    assert difference({}, {old: 10}) == {old: -10}
    assert difference({old: 10}, {old: 10}) == {}
