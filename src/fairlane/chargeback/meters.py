"""What is charged for: the meters, in the order in which lines list them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """A quantity of ``tenant_usage`` that has a price.

    Attributes:
        name: its name in the price book: the unit that the price is for.
        sku: its name in lines.
        column: the column of ``tenant_usage``.
        meaning: what is measured.
        consumed_unit: the unit of the column.
        pricing_unit: the unit of the price.
        digits: how many decimal places a pricing unit has: it is 10 to this power of consumed units.
    """

    name: str
    sku: str
    column: str
    meaning: str
    consumed_unit: str
    pricing_unit: str
    digits: int

    @property
    def pricing_unit_name(self) -> str:
        """The unit of the price, as one of it is called."""
        return self.name.replace("_", " ")


METERS: Final = (
    Meter(
        name="cost_unit",
        sku="cost",
        column="cost_true",
        meaning="Cost of acknowledged messages",
        consumed_unit="Units",
        pricing_unit="Units",
        digits=0,
    ),
    Meter(
        name="gigabyte",
        sku="payload",
        column="acked_bytes",
        meaning="Payload of acknowledged messages",
        consumed_unit="B",
        pricing_unit="GB",
        digits=9,
    ),
    Meter(
        name="service_second",
        sku="service-time",
        column="service_ms",
        meaning="Duration of leases",
        consumed_unit="Milliseconds",
        pricing_unit="Seconds",
        digits=3,
    ),
    Meter(
        name="message",
        sku="messages",
        column="acked",
        meaning="Acknowledged messages",
        consumed_unit="Messages",
        pricing_unit="Messages",
        digits=0,
    ),
)
BY_SKU: Final = {meter.sku: meter for meter in METERS}
