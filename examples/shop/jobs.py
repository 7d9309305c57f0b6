"""The jobs of a shop that many tenants share. Run them with: fairlane worker jobs:app"""

from __future__ import annotations

import asyncio
import logging

from pydantic import BaseModel

from fairlane import App, QueuePolicy, WorkMessage

app = App()
log = logging.getLogger("shop")

# Every tenant: at most 2 jobs at the same time and 50 a second. Retries after 2, 4, 8 seconds, then a dead letter.
SHARED = QueuePolicy(key_cap=2, key_rate=50, max_attempts=4, backoff_ms=2_000)


class Order(BaseModel):
    id: int
    tenant: str
    cents: int
    card: str


class CardDeclined(Exception):
    """The bank says no, and will say so again."""


@app.task(
    queue="payments", key=lambda order: order.tenant, policy=SHARED, result_ttl="1d", dead_letter_on=(CardDeclined,)
)
async def charge(message: WorkMessage, order: Order) -> str:
    if order.card == "declined":
        raise CardDeclined(f"order {order.id}")
    if order.card == "flaky" and message.attempt < 3:
        raise ConnectionError("the bank does not answer")
    await receipt.options(dedup_id=f"receipt-{order.id}").send(order.id, tenant=order.tenant)
    return f"charged {order.cents} cents"


@app.task(queue="mail", key="tenant", policy=SHARED, throttles=("smtp",))
def receipt(order_id: int, tenant: str) -> None:  # a sync task runs in a thread
    log.info("mail to %s: order %d is paid", tenant, order_id)


@app.task(queue="reports", key="tenant", policy=QueuePolicy(key_cap=1), result_ttl="1d")
async def report(message: WorkMessage, tenant: str, pages: int = 3) -> str:
    for page in range(1, pages + 1):
        await asyncio.sleep(1)  # something slow; a cancelled job ends here
        message.report_progress(page / pages, note=f"page {page} of {pages}")
    return f"{pages} pages for {tenant}"


@app.task(queue="reports", cron="0 6 * * mon", timezone="Europe/Berlin")
async def weekly() -> None:
    await report.send_many([{"tenant": tenant} for tenant in ("acme", "bakery")])


@app.on_stop  # SIGTERM: running jobs finish first, the others go back to the queue
def stopped() -> None:
    log.info("stopped after %d jobs", app.counters.handled)
