"""The memory of a busy server over time: ``python -m benchmarks.soak [--minutes 10] [--rate 50000] [--check]``.

One process enqueues batches of 100 messages of 1 KB at a rate, and leases and acknowledges them, with the default
client, so that the queue stays nearly empty. The resident memory of the server is printed for each tenth of the run.
The goal is that it grows by at most 5 % in the second half of the run: until then caches fill up, and the numbers of
producers are remembered for five minutes. Where the machine does not reach the rate, it goes as fast as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import mean

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.meter import cpu_s
from benchmarks.server import server_process
from benchmarks.server_works import BATCH, MESSAGES
from fairlane.client import AsyncClient

_QUEUE = "soak"
_PAIRS = 4
_SAMPLE_S = 1.0
_PARTS = 10
_GROWTH_MAX = 1.05


class Soak:
    """One run: what was done so far, and the memory of the server each second."""

    def __init__(self, process: int, *, rate: float, seconds: float) -> None:
        self._process = process
        self._rate = rate
        self._begun = time.monotonic()
        self._until = self._begun + seconds
        self.enqueued = 0
        self.acked = 0
        self.samples: list[tuple[float, int, int]] = []

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._until

    async def produce(self, client: AsyncClient) -> None:
        """Enqueue batches, and pause while that is ahead of the rate."""
        while not self.is_over:
            ahead_s = self.enqueued / self._rate - (time.monotonic() - self._begun)
            if ahead_s > 0 or self.enqueued - self.acked > 20 * BATCH:
                await asyncio.sleep(max(ahead_s, 0.001))
                continue
            results = await client.enqueue_many(_QUEUE, MESSAGES)
            self.enqueued += len(results)  # not in one line: others enqueue during the wait

    async def consume(self, client: AsyncClient) -> None:
        """Lease and acknowledge batches."""
        while not self.is_over:
            messages = await client.lease(_QUEUE, BATCH, wait_ms=500)
            if messages:
                await client.ack_many(_QUEUE, messages)
            self.acked += len(messages)

    async def watch(self) -> None:
        """Note the resident memory of the server from time to time."""
        while not self.is_over:
            self.samples.append((time.monotonic() - self._begun, self.acked, resident_bytes(self._process)))
            await asyncio.sleep(_SAMPLE_S)


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


async def run(address: str, soak: Soak) -> None:
    """Produce and consume until the time is up."""
    async with AsyncClient(address) as client:
        await client.create_queue(_QUEUE)
        works = [work for _ in range(_PAIRS) for work in (soak.produce(client), soak.consume(client))]
        await asyncio.gather(soak.watch(), *works)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=50_000, help="messages a second")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the goal is missed")
    options = parser.parse_args()
    uvloop.install()
    with server_process() as (address, process):
        soak = Soak(process, rate=options.rate, seconds=60 * options.minutes)
        spent_s = cpu_s(process)
        asyncio.run(run(address, soak))
        spent_s = cpu_s(process) - spent_s
    growth = show(soak)
    print(
        f"{soak.acked:,} messages from enqueue to ack, {spent_s / max(1, soak.acked) * 1e6:.1f} µs of server CPU each"
    )
    print(f"memory in the last tenth, of that after half of the run: {growth:.3f}, goal at most {_GROWTH_MAX}")
    return int(options.check and growth > _GROWTH_MAX)


def show(soak: Soak) -> float:
    """Print a line for each tenth of the run, and return how the memory grew in the second half."""
    table = Table("until, s", "messages/s", "resident MB")
    size = max(1, -(-len(soak.samples) // _PARTS))
    parts = [soak.samples[at : at + size] for at in range(0, len(soak.samples), size)]
    sizes = [mean(memory for _, _, memory in part) for part in parts]
    begun_s, before = 0.0, 0
    for part, memory in zip(parts, sizes, strict=True):
        until_s, acked, _ = part[-1]
        rate = (acked - before) / max(until_s - begun_s, _SAMPLE_S)
        table.add_row(f"{until_s:.0f}", f"{rate:,.0f}", f"{memory / 1e6:.1f}")
        begun_s, before = until_s, acked
    Console(width=100).print(table)
    return sizes[-1] / sizes[len(sizes) // 2]


if __name__ == "__main__":
    sys.exit(main())
