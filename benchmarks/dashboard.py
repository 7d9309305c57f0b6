"""The cost of watching a busy server: ``python -m benchmarks.dashboard [--quick] [--check]``.

A real server with 10 000 active fairness keys gets as much work as a client can send. In every other slice of the run a
viewer reads the live feed of the queue, as the dashboard does; the slices in between are the baseline. Rates are
messages from enqueue to ack per second of the server's CPU time, and their ratio is what remains with a viewer. A
server that is not saturated samples more often per CPU second; ``busy`` shows how saturated it was. Slices are short
and many, because other work on the machine varies more between slices than a viewer costs. Messages have no dedup ids,
which would fill their window during the run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
import uvloop

from benchmarks.report import Options, Report, parse_options
from benchmarks.server import server_process
from fairlane.client import AsyncClient, NewMessage

KEYS = 10_000
BACKLOG = 3 * KEYS
BATCH = 100
SLICE_S = 4.0
PAYLOAD = random.Random(1).randbytes(256)


@dataclass(frozen=True, slots=True)
class Slice:
    """The result of a slice: acknowledged messages, and CPU seconds of the server."""

    acked: int
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.acked / self.cpu_s


@dataclass(frozen=True, slots=True)
class Pair:
    """A slice with a viewer, and the one after it without."""

    watched: Slice
    alone: Slice
    shown: list[int]

    @property
    def left(self) -> float:
        return self.watched.rate / self.alone.rate


@dataclass(slots=True)
class Load:
    """Producers and consumers that keep a server busy, and the number of messages acknowledged so far."""

    client: AsyncClient
    acked: int = 0
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    """The number of batches that may be ahead of the consumers, which keeps the backlog constant."""

    async def produce(self, batches: list[list[NewMessage]]) -> None:
        for batch in cycle(batches):
            await self.room.acquire()
            results = await self.client.enqueue_many("work", batch)
            assert all(type(result) is str for result in results)

    async def consume(self) -> None:
        while True:
            leased = await self.client.lease("work", BATCH, wait_ms=5_000)
            await self.client.ack_many("work", leased)
            self.acked += len(leased)
            self.room.release()


def messages(chance: random.Random) -> list[NewMessage]:
    return [NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{chance.randrange(KEYS)}") for _ in range(BATCH)]


@asynccontextmanager
async def loaded(client: AsyncClient) -> AsyncIterator[Load]:
    await client.create_queue("work")
    for first in range(0, BACKLOG, BATCH):
        batch = [NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{at % KEYS}") for at in range(first, first + BATCH)]
        await client.enqueue_many("work", batch)
    load = Load(client)
    batches = [[messages(chance) for _ in range(100)] for chance in map(random.Random, range(4))]
    works = [*map(load.produce, batches), *(load.consume() for _ in range(4))]
    tasks = [asyncio.create_task(work) for work in works]
    yield load
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def watched(address: str, *, by_somebody: bool) -> AsyncIterator[list[int]]:
    """Attach a viewer, or none. Yields the sizes of the snapshots it receives."""
    shown: list[int] = []

    async def look() -> None:
        nonlocal shown
        async with httpx.AsyncClient(timeout=60) as http, http.stream("GET", f"{address}/v1/live?queue=work") as feed:
            async for line in feed.aiter_lines():
                shown += [len(line)] * line.startswith("data:")

    task = asyncio.create_task(look() if by_somebody else asyncio.sleep(0))
    yield shown
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process with all its threads."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9


async def one_slice(load: Load, process: int) -> Slice:
    before, acked = cpu_s(process), load.acked
    await asyncio.sleep(SLICE_S)
    return Slice(load.acked - acked, cpu_s(process) - before)


async def measure(pairs: int) -> list[Pair]:
    found = []
    with server_process() as (address, process):
        async with AsyncClient(address, dedup=False) as client, loaded(client) as load:
            await one_slice(load, process)
            for _ in range(pairs):
                async with watched(address, by_somebody=True) as shown:
                    seen = await one_slice(load, process)
                found.append(Pair(seen, await one_slice(load, process), shown))
    return found


def compare(report: Report, options: Options) -> None:
    pairs = 4 if options.quick else 40
    report.heading(f"{KEYS:,} active keys, and somebody who looks at them", repeats=1)
    found = asyncio.run(measure(pairs))
    rows = [
        [
            f"{each.alone.rate:,.0f}",
            f"{each.watched.rate:,.0f}",
            f"{each.left:.3f}",
            f"{each.watched.cpu_s / SLICE_S:.2f}",
            f"{len(each.shown)}",
        ]
        for each in found
    ]
    report.table(["alone, a CPU s", "watched, a CPU s", "ratio", "busy", "pictures"], rows)
    left = together(each.watched for each in found) / together(each.alone for each in found)
    report.goal("what is left of the rate, over all slices", measured=left, least=0.97)


def together(slices: Iterable[Slice]) -> float:
    """Return messages per CPU second over several slices."""
    known = list(slices)
    return sum(each.acked for each in known) / sum(each.cpu_s for each in known)


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    uvloop.install()
    compare(report, options)
    report.finish()


if __name__ == "__main__":
    main()
