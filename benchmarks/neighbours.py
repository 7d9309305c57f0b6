"""A noisy and a quiet tenant of a real server: ``python -m benchmarks.neighbours [--quick] [--check]``.

One tenant floods a queue with 20 000 messages; then another sends 100, and later some one by one. A consumer handles
1 000 messages a second in total, paced by the clock. The result is how long the quiet tenant's messages wait, from the
call of enqueue to the handler: in fair order, and, as the baseline of the same run, with one key for all (FIFO).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvloop

from benchmarks.report import Options, Report, parse_options
from benchmarks.server import server
from fairlane.client import AsyncClient, NewMessage

FLOOD = 20_000
QUIET = 100
PER_SECOND = 1_000
BATCH = 1_000
CREDIT = 3
"""Enough to be busy at 1 000 a second; each additional message delays the next one by 1 ms."""
FIFO_CREDIT = 64
PAYLOAD = bytes(1_000)
NOISY, CALM = "noisy", "quiet"


@dataclass(slots=True)
class Waits:
    """How long messages of the quiet tenant waited, in ms: those of one burst, and those sent one by one.

    ``rate`` is how many messages were handled in a second, of all tenants. ``meanwhile`` is how many, of all tenants,
    were handled while the quiet tenant's burst waited: from the answer to its last enqueue until its last message.
    """

    burst: list[float] = field(default_factory=list)
    singles: list[float] = field(default_factory=list)
    rate: float = 0.0
    meanwhile: int = 0


class Consumer:
    """Handles messages at a fixed rate, and reports when each was handled."""

    def __init__(self, client: AsyncClient, credit: int) -> None:
        self._client = client
        self._credit = credit
        self.count = 0
        self._begun = time.perf_counter()
        self._handled: dict[str, asyncio.Future[float]] = {}

    def handled(self, message_id: str) -> asyncio.Future[float]:
        """Wait until a message is handled, and return that instant."""
        return self._handled.setdefault(message_id, asyncio.get_running_loop().create_future())

    @property
    def rate(self) -> float:
        """The rate so far, in messages per second."""
        return self.count / (time.perf_counter() - self._begun)

    async def run(self) -> None:
        """Handle messages until cancelled."""
        async with self._client.consume("work", credit=self._credit) as stream:
            due = time.perf_counter()
            async for message in stream:
                now = time.perf_counter()
                due = max(due + 1 / PER_SECOND, now - 0.02)  # what was missed for longer is not caught up with
                await asyncio.sleep(max(0.0, due - now))
                self.handled(message.id).set_result(time.perf_counter())
                self.count += 1
                message.ack_soon()


@asynccontextmanager
async def consuming(client: AsyncClient, credit: int) -> AsyncIterator[Consumer]:
    consumer = Consumer(client, credit)
    task = asyncio.create_task(consumer.run())
    yield consumer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def wait_of(client: AsyncClient, consumer: Consumer, key: str, counts: list[int] | None = None) -> float:
    """Return how long a message of a key waits, and note how many were handled before it was enqueued."""
    begun = time.perf_counter()
    message_id = await client.enqueue("work", PAYLOAD, fairness_key=key)
    if counts is not None:
        counts.append(consumer.count)
    return (await consumer.handled(message_id) - begun) * 1000


async def measure(*, is_fair: bool, singles: int, flood: int = FLOOD) -> Waits:
    """Return what the quiet tenant waited beside a flood."""
    noisy, calm = (NOISY, CALM) if is_fair else ("all", "all")
    waits = Waits()
    with server() as address:
        async with AsyncClient(address) as client:
            await client.create_queue("work")
            for _ in range(flood // BATCH):
                await client.enqueue_many("work", [NewMessage(payload=PAYLOAD, fairness_key=noisy)] * BATCH)
            async with consuming(client, CREDIT if is_fair else FIFO_CREDIT) as consumer:
                counts: list[int] = []
                burst = [wait_of(client, consumer, calm, counts) for _ in range(QUIET)]
                waits.burst = sorted(await asyncio.gather(*burst))
                waits.meanwhile = consumer.count - max(counts)
                for _ in range(singles):
                    await asyncio.sleep(0.01)
                    waits.singles.append(await wait_of(client, consumer, calm))
                waits.rate = consumer.rate
    waits.singles.sort()
    return waits


def quantile(waits: list[float], part: float) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * part))]


def row(name: str, waits: list[float], rate: float) -> list[str]:
    told = [f"{quantile(waits, part):,.1f} ms" for part in (0.5, 0.95, 0.99)]
    return [name, *told, f"{waits[-1]:,.1f} ms", f"{rate:,.0f}/s"]


def compare(report: Report, options: Options, *, flood: int = FLOOD, singles: int = 100) -> None:
    report.heading(f"A quiet tenant beside {flood:,} messages of a noisy one, {PER_SECOND:,} handled a second")
    runs = [asyncio.run(measure(is_fair=True, singles=singles, flood=flood)) for _ in range(1 if options.quick else 3)]
    fair = min(runs, key=lambda waits: quantile(waits.burst, 0.99))
    fifo = asyncio.run(measure(is_fair=False, singles=0, flood=flood))
    rows = [
        row(f"{QUIET} at once, fair", fair.burst, fair.rate),
        row("one by one, fair", fair.singles, fair.rate),
        row(f"{QUIET} at once, first in first out", fifo.burst, fifo.rate),
    ]
    report.table(["messages of the quiet tenant", "p50", "p95", "p99", "max", "handled"], rows)
    report.goal("p99 of the burst, as times in 250 ms", measured=250 / quantile(fair.burst, 0.99), least=1)
    report.goal("p99 of single messages, as times in 10 ms", measured=10 / quantile(fair.singles, 0.99), least=1)


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    uvloop.install()
    compare(report, options)
    report.finish()


if __name__ == "__main__":
    main()
