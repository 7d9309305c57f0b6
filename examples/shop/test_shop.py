"""Tests of the shop: no server, no waiting. Run them with: pytest"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import web
from jobs import Order, app, charge, report

from fairlane.errors import InvalidArgument, MessageCancelled, MessageDead
from fairlane.testing import AppHarness

MONDAY = datetime(2026, 3, 2, 4, tzinfo=UTC)


@pytest.fixture
def shop() -> Iterator[AppHarness]:
    with app.testing(now=MONDAY) as harness:
        yield harness


def order(number: int, *, tenant: str = "acme", card: str = "4242") -> Order:
    return Order(id=number, tenant=tenant, cents=999, card=card)


def test_an_order_is_charged_and_a_receipt_sent(shop: AppHarness) -> None:
    """An endpoint is a function: call it as the framework does."""
    job_id = asyncio.run(web.order(order(7)))["job"]
    assert asyncio.run(web.job("charge", job_id))["status"] == "waiting"
    assert shop.run().handled == 2
    assert asyncio.run(web.job("charge", job_id))["result"] == "charged 999 cents"


def test_a_flaky_bank_is_asked_again(shop: AppHarness) -> None:
    job = charge.send_sync(order(8, card="flaky"))
    assert shop.run().retried == 2
    assert job.result() == "charged 999 cents"
    assert (shop.now - MONDAY).total_seconds() >= 3


def test_a_declined_card_is_a_dead_letter_at_once(shop: AppHarness) -> None:
    job = charge.send_sync(order(9, card="declined"))
    assert shop.run().failed == 1
    assert shop.dead_letters("payments")[0].errors[-1].error == "CardDeclined: order 9"
    with pytest.raises(MessageDead):
        job.result()


def test_a_noisy_tenant_does_not_delay_others(shop: AppHarness) -> None:
    shop.client.ensure_queue("payments")
    charge.send_many_sync([{"order": order(number)} for number in range(100)])
    charge.send_sync(order(200, tenant="bakery"))
    keys = [message.fairness_key for message in shop.client.lease("payments", 3)]
    assert keys == ["acme", "bakery", "acme"]


def test_a_report_can_be_cancelled(shop: AppHarness) -> None:
    job = report.send_sync("acme", pages=1_000_000)
    shop.advance("5s")
    asyncio.run(web.cancel("report", job.id))
    with pytest.raises(MessageCancelled, match="the customer cancelled it"):
        job.result()


def test_reports_are_made_every_monday(shop: AppHarness) -> None:
    assert shop.advance("2h").handled == 3  # 6:00 in Berlin is 5:00 UTC: the schedule, and two reports


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="pages: Expected `int`"):
        report.send_sync("acme", pages="many")  # type: ignore[arg-type] # mypy sees it, too
