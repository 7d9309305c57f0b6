"""Charges of a day: usage times rates, as whole quantities and exact decimals. No file and no clock."""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Final, NamedTuple

from fairlane.chargeback.meters import BY_SKU, METERS, Meter
from fairlane.chargeback.price_book import DayPrices, Rate
from fairlane.errors import InvalidArgument

# A product that does not fit raises instead of being rounded. A quantity has 19 digits and a price at most 19.
_EXACT: Final = decimal.Context(prec=60, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow])
AMOUNT_MAX: Final = Decimal(10**20)
"""What an amount is below: 20 digits before the point and 18 after it are a decimal of 128 bits."""


class TenantInQueue(NamedTuple):
    """A tenant in a queue. The tenant is empty if the journal does not tell it."""

    queue: str
    tenant: str


class Charge(NamedTuple):
    """What a quantity is charged for, and at which rate."""

    queue: str
    tenant: str
    sku: str
    rate: Rate

    @property
    def meter(self) -> Meter:
        """The meter."""
        return BY_SKU[self.sku]


Usage = Mapping[TenantInQueue, tuple[int, ...]]
"""The quantities of one day, in the order of the meters."""
Charges = dict[Charge, int]
"""The quantities of one day by charge, in consumed units."""


def charges_of(usage: Usage, prices: DayPrices) -> Charges:
    """Return the charges of a day. Meters without a price and quantities of 0 have none."""
    found: Charges = {}
    for (queue, tenant), quantities in usage.items():
        for meter, quantity in zip(METERS, quantities, strict=True):
            rate = prices.rate(meter, queue=queue, tenant=tenant) if quantity else None
            if rate is not None:
                found[Charge(queue, tenant, meter.sku, rate)] = quantity
    return found


def difference(now: Charges, issued: Charges) -> Charges:
    """Return what has to be issued so that all lines add up to ``now``.

    The rate is a part of a charge. So a changed price credits the whole quantity at the old rate and charges it at the
    new one, and the amount of each line is its quantity times its price.
    """
    changes = {charge: now.get(charge, 0) - issued.get(charge, 0) for charge in now.keys() | issued.keys()}
    return {charge: quantity for charge, quantity in sorted(changes.items()) if quantity}


def priced_quantity(meter: Meter, quantity: int) -> Decimal:
    """Return a quantity in pricing units."""
    return Decimal(quantity).scaleb(-meter.digits, _EXACT)


def amount_of(meter: Meter, quantity: int, price: Decimal) -> Decimal:
    """Return the amount for a quantity, exactly. Raises InvalidArgument if it is too large for a line."""
    amount = _EXACT.multiply(priced_quantity(meter, quantity), price)
    if abs(amount) >= AMOUNT_MAX:
        raise InvalidArgument(f"{quantity} {meter.consumed_unit} at {price} exceed the greatest amount, {AMOUNT_MAX}.")
    return amount


def sum_of(amounts: Iterable[Decimal]) -> Decimal:
    """Return the sum of amounts, exactly: the sum of Python rounds to 28 digits."""
    return reduce(_EXACT.add, amounts, Decimal(0))
