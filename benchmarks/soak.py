"""Memory and disk of a busy server over time: ``python -m benchmarks.soak [--minutes 10] [--rate 50000] [--check]``.

    python -m benchmarks.soak --minutes 60 --rate 20000 --backlog-gb 10 --drain 0.05 --check

One process enqueues batches of 100 messages of 1 KB at a rate, and leases and acknowledges them, with the default
client, so that the queue stays nearly empty. Resident memory, rate and the bytes on disk are printed for each tenth of
the run. The goal is that memory grows by at most 5 % in the second half of the run: until then caches fill up, and the
numbers of producers are remembered for five minutes. The rate has to be reached, and each tenth of the run has to keep
0.8 of it: where the machine is too slow, the benchmark goes as fast as it can, and misses the goal.

With ``--backlog-gb`` another queue is filled first, and stays; ``--drain`` is the part of it that is consumed evenly
during the run. Then the disk may take 1.6 times the payloads that wait. What is retained of the journal counts as well,
so with a small backlog or much retention the goal is stricter than it sounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

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
_RATE_MIN = 0.95
_TENTH_MIN = 0.8
_DISK_MAX = 1.6
_BACKLOG = "backlog"
_PAYLOAD_BYTES = len(MESSAGES[0].payload)


class Soak:
    """One run: what was done so far, and the memory and the disk of the server each second."""

    def __init__(
        self, process: int, folder: Path, *, rate: float, seconds: float, backlog: int = 0, drain: float = 0.0
    ) -> None:
        self._process = process
        self._folder = folder
        self._rate = rate
        self._seconds = seconds
        self._to_drain = int(backlog * drain)
        self.backlog = backlog
        self.drained = 0
        self._begun = time.monotonic()
        self._until = self._begun + seconds
        self.enqueued = 0
        self.acked = 0
        self.samples: list[tuple[float, int, int, int]] = []

    async def fill(self, client: AsyncClient) -> None:
        """Fill the backlog, and begin to count the time."""
        for _ in range(0, self.backlog, BATCH):
            await client.enqueue_many(_BACKLOG, MESSAGES)
        self._until += time.monotonic() - self._begun
        self._begun = time.monotonic()

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

    async def drain(self, client: AsyncClient) -> None:
        """Consume a part of the backlog, evenly over the run."""
        while not self.is_over and self.drained < self._to_drain:
            due = self._to_drain * (time.monotonic() - self._begun) / self._seconds
            if self.drained < due:
                messages = await client.lease(_BACKLOG, BATCH)
                await client.ack_many(_BACKLOG, messages)
                self.drained += len(messages)
            else:
                await asyncio.sleep(0.01)

    async def watch(self) -> None:
        """Note the resident memory of the server and the bytes on disk from time to time."""
        while not self.is_over:
            at_s, disk = time.monotonic() - self._begun, disk_bytes(self._folder)
            self.samples.append((at_s, self.acked, resident_bytes(self._process), disk))
            await asyncio.sleep(_SAMPLE_S)


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


def disk_bytes(folder: Path) -> int:
    """Return the bytes that the files of a folder occupy."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the server deletes files meanwhile
            total += path.stat().st_blocks * 512
    return total


async def run(address: str, soak: Soak) -> None:
    """Fill the backlog, then produce and consume until the time is up."""
    async with AsyncClient(address) as client:
        for queue in (_QUEUE, _BACKLOG):
            await client.create_queue(queue, {"waiting_max": None, "waiting_bytes_max": None})
        await soak.fill(client)
        works = [work for _ in range(_PAIRS) for work in (soak.produce(client), soak.consume(client))]
        await asyncio.gather(soak.watch(), soak.drain(client), *works)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=50_000, help="messages a second")
    parser.add_argument("--backlog-gb", type=float, default=0.0, help="payloads that wait in another queue")
    parser.add_argument("--drain", type=float, default=0.0, help="the part of the backlog that is consumed meanwhile")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the goal is missed")
    options = parser.parse_args()
    uvloop.install()
    backlog = int(options.backlog_gb * 1e9 / _PAYLOAD_BYTES) // BATCH * BATCH
    with TemporaryDirectory() as folder, server_process(folder=folder) as (address, process):
        soak = Soak(
            *(process, Path(folder)),
            rate=options.rate,
            seconds=60 * options.minutes,
            backlog=backlog,
            drain=options.drain,
        )
        spent_s = cpu_s(process)
        asyncio.run(run(address, soak))
        spent_s = cpu_s(process) - spent_s
    growth, rates = show(soak)
    print(
        f"{soak.acked:,} messages from enqueue to ack, {spent_s / max(1, soak.acked) * 1e6:.1f} µs of server CPU each"
    )
    print(f"memory in the last tenth, of that after half of the run: {growth:.3f}, goal at most {_GROWTH_MAX}")
    rate, slowest = soak.samples[-1][1] / soak.samples[-1][0], min(rates)
    print(f"rate: {rate / options.rate:.2f} of what was asked for, goal at least {_RATE_MIN};", end=" ")
    print(f"in the slowest tenth {slowest / rate:.2f} of that, goal at least {_TENTH_MIN}")
    is_missed = growth > _GROWTH_MAX or rate < _RATE_MIN * options.rate or slowest < _TENTH_MIN * rate
    if backlog:
        live = (soak.backlog - soak.drained) * _PAYLOAD_BYTES
        most = max(disk for *_, disk in soak.samples[len(soak.samples) // 2 :])
        print(f"disk, of {live / 1e9:.2f} GB that wait: at most {most / live:.2f} times, goal at most {_DISK_MAX}")
        is_missed = is_missed or most > _DISK_MAX * live
    return int(options.check and is_missed)


def show(soak: Soak) -> tuple[float, list[float]]:
    """Print a line for each tenth of the run; return how the memory grew in the second half, and the rates."""
    table = Table("until, s", "messages/s", "resident MB", "disk MB")
    size = max(1, -(-len(soak.samples) // _PARTS))
    parts = [soak.samples[at : at + size] for at in range(0, len(soak.samples), size)]
    sizes = [mean(memory for _, _, memory, _ in part) for part in parts]
    rates: list[float] = []
    begun_s, before = 0.0, 0
    for part, memory in zip(parts, sizes, strict=True):
        until_s, acked, _, disk = part[-1]
        rates.append((acked - before) / max(until_s - begun_s, _SAMPLE_S))
        table.add_row(f"{until_s:.0f}", f"{rates[-1]:,.0f}", f"{memory / 1e6:.1f}", f"{disk / 1e6:,.0f}")
        begun_s, before = until_s, acked
    Console(width=100).print(table)
    return sizes[-1] / sizes[len(sizes) // 2], rates


if __name__ == "__main__":
    sys.exit(main())
