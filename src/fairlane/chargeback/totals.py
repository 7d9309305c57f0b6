"""What each tenant is billed in each month, by the lines of all statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

from fairlane.chargeback.statements import StatementFolder
from fairlane.errors import InvalidArgument
from fairlane.lakehouse.rollups import Operation, rolled_up

_BY: Final = ("BillingPeriodStart", "SubAccountId", "BillingCurrency")
_SUMS: Final[dict[str, Operation]] = {"BilledCost": "sum", "ListCost": "sum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBill:
    """What a tenant is billed in a month.

    Attributes:
        month: the first day of the month.
        tenant: the tenant; empty if the journal does not tell it.
        billed: the sum of its lines.
        listed: what the sum would be without prices for tenants.
        currency: the currency of both.
    """

    month: date
    tenant: str
    billed: Decimal
    listed: Decimal
    currency: str


def tenant_bills(statements: Path, *, tenant: str | None = None) -> list[TenantBill]:
    """Return what each tenant, or one, is billed in each month, in order.

    Raises:
        InvalidArgument: there are no statements.
        StoreCorrupt: a statement cannot be read.
    """
    folder = StatementFolder(statements)
    if not folder.statements:
        raise InvalidArgument(f"There are no statements in {statements}. Create them with 'fairlane chargeback issue'.")
    found = rolled_up(folder.all_batches((*_BY, *_SUMS)), _BY, _SUMS)
    bills = [
        TenantBill(month=start.date(), tenant=name or "", billed=billed, listed=listed, currency=currency)
        for start, name, currency, billed, listed in zip(
            *(found[column].to_pylist() for column in (*_BY, *_SUMS)), strict=True
        )
        if tenant is None or tenant == name
    ]
    return sorted(bills, key=lambda bill: (bill.month, bill.tenant))
