"""A line of a statement: a quantity of one day that is charged, or credited."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from fairlane.chargeback.charges import Charge, amount_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a statement.

    Attributes:
        line_id: its name, unique in a folder of statements; greater than those of all earlier lines.
        day: the day of the usage.
        charge: what the quantity is charged for.
        quantity: how much, in consumed units; negative for a credit.
        month: the first day of the month in which it is billed.
        is_correction: whether an earlier statement has lines of this day.
        corrects: of a correction, the first line of the same day, tenant, queue and meter, if there is one.
    """

    line_id: str
    day: date
    charge: Charge
    quantity: int
    month: date
    is_correction: bool
    corrects: str | None

    @property
    def amount(self) -> Decimal:
        """The amount at the price that applies."""
        return amount_of(self.charge.meter, self.quantity, self.charge.rate.contracted)

    @property
    def listed_amount(self) -> Decimal:
        """The amount at the price without entries for tenants."""
        return amount_of(self.charge.meter, self.quantity, self.charge.rate.listed)

    @property
    def is_of_closed_month(self) -> bool:
        """Whether the month of the usage was closed, so that the line is billed in a later one."""
        return self.month != month_of(self.day)

    def described(self, currency: str) -> str:
        """Return the line in words."""
        meter, price = self.charge.meter, plain(self.charge.rate.contracted)
        kind = "" if not self.is_correction else "Correction: " if self.quantity > 0 else "Correction, credit: "
        return (
            f"{kind}{meter.meaning} in queue {self.charge.queue} on {self.day}, "
            f"{price} {currency} per {meter.pricing_unit_name}"
        )


def month_of(day: date) -> date:
    """Return the first day of a month."""
    return day.replace(day=1)


def next_month(month: date) -> date:
    """Return the first day of the month after."""
    return month_of(month + timedelta(days=31))


def midnight(day: date) -> datetime:
    """Return the start of a day in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def plain(number: Decimal) -> str:
    """Return a decimal as digits, without an exponent and without zeros at its end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
