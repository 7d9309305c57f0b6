"""What-if against reality: ``python -m benchmarks.whatif_reality [--quick] [--check]``.

Three runs against a real server: streaming workers, workers that lease in batches, and both. In the first half of each,
messages of several tenants arrive in bursts, more than the consumers keep up with. From the journal of that half alone,
what-if forecasts the p99 wait of each tenant under a change: other weights, more workers, or faster ones. In the second
half the same messages arrive again and the change is made. A forecast counts if it is within 15 % of what happened, or
if what-if declined, because its model is more than 20 % off on the first half.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, parse_options
from benchmarks.server import server
from fairlane.assembly import export_events
from fairlane.client import AsyncClient, Client, NewMessage
from fairlane.spark.whatif.accuracy import ERROR_MAX
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.sweeps import assumed
from fairlane.testing.traffic import Arrival, Traffic
from fairlane.worker import Worker, WorkMessage

QUEUE = "work"
NEAR = 0.15
NEAR_MS = 100
"""A difference up to this counts as none: a process that waits for a core on a busy machine makes as much."""
MESSAGES_MIN = 100
SETTLE_S = 5.0
"""The time that consumers have to connect before messages arrive; forecasts don't know of it."""
CONCURRENCY, CREDIT, BATCH = 4, 12, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The consumers of one half: workers that stream, workers that lease in batches, and how fast they are."""

    streams: int = 0
    leasers: int = 0
    times: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run: the consumers of its halves, and the change as what-if writes it."""

    name: str
    first: Crew
    second: Crew
    change: tuple[str, ...]
    weights: dict[str, int]


TRIALS = (
    Trial(
        name="streaming workers, 2 to 3",
        first=Crew(streams=2),
        second=Crew(streams=3),
        change=("consumers=3",),
        weights={},
    ),
    Trial(
        name="batch leasers, weight of acme 1 to 4",
        first=Crew(leasers=8),
        second=Crew(leasers=8),
        change=("weight:acme=4",),
        weights={"acme": 4},
    ),
    Trial(
        name="both kinds, work 0.8 times as long",
        first=Crew(streams=1, leasers=4),
        second=Crew(streams=1, leasers=4, times=0.8),
        change=("service=x0.8",),
        weights={},
    ),
)


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    report_to(report, options)
    report.finish()


def report_to(report: Report, options: Options) -> None:
    span_ms = 20_000 if options.quick else 60_000
    traffic = Traffic(
        messages=span_ms // 15,
        span_ms=span_ms,
        tenants=5,
        zipf=0.7,
        burst_part=0.4,
        burst_messages=40,
        consumers=8,
        load=1.4,
        cost_tail=4.0,
        failing_part=0.0,
        poison_part=0.0,
        vanishing_part=0.0,
        delayed_part=0.0,
    )
    for trial in TRIALS:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_report_trial(report, trial, traffic.arrivals(), Path(folder)))


async def _report_trial(report: Report, trial: Trial, arrivals: Sequence[Arrival], folder: Path) -> None:
    with server() as address:
        async with AsyncClient(address) as client:
            await client.create_queue(QUEUE)
            await _half(client, address, trial.first, arrivals)
            await asyncio.to_thread(_export, address, folder / "first")
            if trial.weights:
                await client.set_config_many({f"weight:{QUEUE}:{key}": str(to) for key, to in trial.weights.items()})
            begun = len(await _events(client))
            await _half(client, address, trial.second, arrivals)
            real = waits_of((await _events(client))[begun:])
    journal = Journal(folder / "first")
    found = compare(journal, [assumed(trial.change, journal.queues, journal.policies)])
    _report_waits(report, trial, found, real)


def _report_waits(report: Report, trial: Trial, found: Comparison, real: dict[str, list[int]]) -> None:
    report.heading(f"What-if against reality: {trial.name}", repeats=1)
    before, after = found.of(0, QUEUE), found.of(1, QUEUE)
    rows, worst = [], 0.0
    for key, waits in sorted(real.items(), key=lambda item: -len(item[1])):
        p99 = sorted(waits)[-(-99 * len(waits) // 100) - 1]
        apart = abs(after[key].wait_p99_ms - p99)
        error = apart / max(p99, 1) if apart > NEAR_MS else 0.0
        is_counted = len(waits) >= MESSAGES_MIN
        worst = max(worst, error) if is_counted else worst
        texts = [f"{value:,} ms" for value in (before[key].wait_p99_ms, after[key].wait_p99_ms, p99)]
        rows.append([key, f"{len(waits):,}", *texts, f"{error:.0%}" if is_counted else "too few"])
    report.table(["tenant", "messages", "p99 before", "p99 forecast", "p99 measured", "off"], rows)
    (error_here,) = found.errors
    report.console.print(f"  error of the model on the first half: {error_here.error:.0%}; consumers: {_kinds(found)}")
    if error_here.error > ERROR_MAX:
        report.console.print("  declined: the model is too far from the journal")
        worst = 0.0
    report.goal(trial.name, measured=100 * worst, most=100 * NEAR, unit=" % off")


def _kinds(found: Comparison) -> str:
    return "; ".join(f"{kind.most} with {kind.holds} leases and {kind.works} at work" for kind in found.kinds_of(QUEUE))


# ------------------------------------------------------------------------------------------------------------- a half


class Countdown:
    """Counts messages that are done, and tells when all are."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self.over = asyncio.Event()

    def count(self) -> None:
        """Note that a message is done."""
        self._left -= 1
        if not self._left:
            self.over.set()


async def _half(client: AsyncClient, address: str, crew: Crew, arrivals: Sequence[Arrival]) -> None:
    """Send all messages when they are due, and wait until consumers have worked them off."""
    left = Countdown(len(arrivals))
    async with _consumers(address, crew, left):
        await asyncio.sleep(SETTLE_S)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for arrival in arrivals:
            await asyncio.sleep(max(0.0, begun + arrival.at_ms / 1000 - loop.time()))
            payload = str(round(arrival.service_ms * crew.times)).encode()
            await client.enqueue(QUEUE, NewMessage(payload=payload, fairness_key=arrival.fairness_key))
        await left.over.wait()


@asynccontextmanager
async def _consumers(address: str, crew: Crew, left: Countdown) -> AsyncIterator[None]:
    async def handle(message: WorkMessage) -> None:
        await asyncio.sleep(int(message.payload) / 1000)
        left.count()

    async with AsyncExitStack() as stack:
        for number in range(crew.streams):
            worker = Worker(address)
            worker.handler(QUEUE, concurrency=CONCURRENCY, credit=CREDIT, owner=f"stream-{number}")(handle)
            await stack.enter_async_context(worker)
        leasers = [asyncio.create_task(_lease(address, f"leaser-{number}", left)) for number in range(crew.leasers)]
        try:
            yield
        finally:
            for leaser in leasers:
                leaser.cancel()
            await asyncio.gather(*leasers, return_exceptions=True)


async def _lease(address: str, name: str, left: Countdown) -> None:
    """Lease messages in batches and work on them one after the other, until cancelled."""
    async with AsyncClient(address) as client:
        while True:
            for message in await client.lease(QUEUE, BATCH, wait_ms=10_000, owner=name):
                await asyncio.sleep(int(message.payload) / 1000)
                await message.ack()
                left.count()


# ------------------------------------------------------------------------------------------------------- the journal


async def _events(client: AsyncClient) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    position = 0
    while True:
        found = await client.read_journal(position, count=10_000)
        if found.position == position:
            return events
        events += found.events
        position = found.position


def _export(address: str, folder: Path) -> None:
    """Export the journal as ``fairlane journal export`` does."""
    with Client(address) as client:
        export_events(lambda after, on_trimmed: client.read_journal(after, count=10_000, on_trimmed=on_trimmed), folder)


def waits_of(events: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Return how long messages waited for their first lease, by key: read from the events, one by one."""
    came: dict[str, tuple[str, int]] = {}
    waits: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event["kind"] == "enqueued":
            came[event["message_id"]] = "/".join(event["fairness_key"]), event["at_ms"]
        elif event["kind"] == "leased" and event["message_id"] in came:
            key, at_ms = came.pop(event["message_id"])
            waits[key].append(event["at_ms"] - at_ms)
    return waits


if __name__ == "__main__":
    main()
