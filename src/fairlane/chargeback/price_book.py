"""The price book: a TOML file with prices by day, queue and tenant.

Numbers are read as decimals, never as floats, so a price is exactly what the file says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from fairlane.chargeback.meters import METERS, Meter
from fairlane.errors import InvalidArgument

PRICE_DIGITS_MAX: Final = 9
"""The most decimal places of a price. With nine of a quantity, an amount has at most 18."""
PRICE_MAX: Final = Decimal(10**9)

Price = Decimal | int
Text = Annotated[str, msgspec.Meta(min_length=1)]


class PriceEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices that hold for some days, queues and tenants.

    Attributes:
        valid_from: the first day, in UTC; None for the first there is.
        valid_to: the last day; None if there is none.
        queue: a pattern for queues; None for all.
        tenant: a pattern for tenants, which are top keys; None for all.
        cost_unit: the price of a unit of cost.
        gigabyte: the price of 10^9 bytes of payload.
        service_second: the price of a second of leases.
        message: the price of an acknowledged message.
    """

    valid_from: date | None = None
    valid_to: date | None = None
    queue: Text | None = None
    tenant: Text | None = None
    cost_unit: Price | None = None
    gigabyte: Price | None = None
    service_second: Price | None = None
    message: Price | None = None

    def __post_init__(self) -> None:
        if self.valid_from is not None and self.valid_to is not None and self.valid_from > self.valid_to:
            raise ValueError(f"valid_from {self.valid_from} is after valid_to {self.valid_to}")
        prices = {meter.name: price for meter in METERS if (price := self.price(meter)) is not None}
        if not prices:
            raise ValueError(f"no price; set one of {', '.join(meter.name for meter in METERS)}")
        for name, price in prices.items():
            _check_price(name, price)

    def price(self, meter: Meter) -> Decimal | None:
        """Return the price for a meter; None if the entry has none."""
        found: Price | None = getattr(self, meter.name)
        return None if found is None else Decimal(found)

    def holds_on(self, day: date) -> bool:
        """Return whether the prices hold on a day."""
        return (self.valid_from is None or self.valid_from <= day) and (self.valid_to is None or day <= self.valid_to)

    def holds_for(self, queue: str, tenant: str) -> bool:
        """Return whether the prices hold for a tenant in a queue."""
        return (self.queue is None or fnmatchcase(queue, self.queue)) and (
            self.tenant is None or fnmatchcase(tenant, self.tenant)
        )


def _check_price(name: str, price: Decimal) -> None:
    if not price.is_finite() or not 0 <= price <= PRICE_MAX:
        raise ValueError(f"{name} is {price}; a price is between 0 and {PRICE_MAX}")
    if price != round(price, PRICE_DIGITS_MAX):
        raise ValueError(f"{name} is {price}; a price has at most {PRICE_DIGITS_MAX} decimal places")


class Rate(NamedTuple):
    """The prices of a meter for a tenant in a queue: without prices for this tenant, and the one that applies."""

    listed: Decimal
    contracted: Decimal


class PriceBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All prices.

    Attributes:
        currency: the code of the currency, after ISO 4217.
        prices: the entries.
        provider: who charges.
        billing_account: the account that is charged: that of all tenants together.
    """

    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
    prices: Annotated[tuple[PriceEntry, ...], msgspec.Meta(min_length=1)]
    provider: Text = "Fairlane"
    billing_account: Text = "fairlane"

    def on(self, day: date) -> DayPrices:
        """Return the prices of a day."""
        entries = [(at, entry) for at, entry in enumerate(self.prices) if entry.holds_on(day)]
        return DayPrices([entry for _, entry in sorted(entries, key=_precedence, reverse=True)])


def _precedence(place: tuple[int, PriceEntry]) -> tuple[bool, bool, date, int]:
    """Return what the entry with the greatest value wins by: the tenant, the queue, the day, the place in the file."""
    at, entry = place
    return entry.tenant is not None, entry.queue is not None, entry.valid_from or date.min, at


@dataclass(frozen=True, slots=True)
class DayPrices:
    """The prices of one day, those that win first."""

    entries: Sequence[PriceEntry]

    def rate(self, meter: Meter, *, queue: str, tenant: str) -> Rate | None:
        """Return the rate of a meter for a tenant in a queue; None if it has no price."""
        contracted = listed = None
        for entry in self.entries:
            if (price := entry.price(meter)) is None or not entry.holds_for(queue, tenant):
                continue
            if contracted is None:
                contracted = price
            if entry.tenant is None:
                listed = price
                break
        return None if contracted is None else Rate(contracted if listed is None else listed, contracted)


def read_price_book(path: Path) -> PriceBook:
    """Return the price book in a file.

    Raises:
        InvalidArgument: the file is not TOML, or a field in it is not valid.
        OSError: the file cannot be read.
    """
    return parse_price_book(path.read_bytes(), name=str(path))


def parse_price_book(data: bytes, *, name: str = "prices") -> PriceBook:
    """Return the price book that a text spells. Raises InvalidArgument if it is not valid."""
    try:
        told = tomllib.loads(data.decode(), parse_float=Decimal)
        return msgspec.convert(told, PriceBook, builtin_types=(Decimal, date))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"Invalid price book {name}: {error}.") from error
