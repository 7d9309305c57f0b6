"""Charges for tenants, from the tables of the pipeline: a price book, daily lines, corrections and reconciliation.

Theory of operation. Usage is whole numbers: cost units, bytes, milliseconds and messages of a tenant in a queue on a
day. A price book gives each of these *meters* a rate. A *charge* is a day, a tenant, a queue, a meter and its rate,
with a quantity; its amount is the product, exactly. Nothing is rounded, here or below.

A *statement* is a folder of lines that never changes. Its lines are the difference between the charges that the
tables and the price book give now, and the sum of all lines that were issued before. So late events, a rebuilt day and
a changed price all become lines of the next statement in the same way, and all lines together always add up to what a
computation from scratch would give. ``reconcile`` checks exactly that, by other arithmetic.

It needs Arrow but no Spark.
"""

from __future__ import annotations

from fairlane.chargeback.issuing import DaySelection, HeldDay, Issue, issue_statement
from fairlane.chargeback.price_book import PriceBook, read_price_book
from fairlane.chargeback.reconciliation import ChargeMismatch, Reconciliation, reconcile
from fairlane.chargeback.totals import TenantBill, tenant_bills

__all__ = [
    "ChargeMismatch",
    "DaySelection",
    "HeldDay",
    "Issue",
    "PriceBook",
    "Reconciliation",
    "TenantBill",
    "issue_statement",
    "read_price_book",
    "reconcile",
    "tenant_bills",
]
