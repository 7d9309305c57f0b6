"""A real server and a Python client in two processes on loopback: ``python -m benchmarks.server [--quick] [--check]``.

Payloads have 1 KB, a message counts after it is synced to disk, and ten tenants share the queue. Next to each rate is
the CPU time per message of the server's and of the client processes. Redis Streams with ``appendfsync always``, a table
in PostgreSQL with ``SKIP LOCKED``, and beanstalkd with a sync after every job take turns with Fairlane where they are
installed. Rates are per second of
wall time, the best of several rounds; on a shared machine CPU time and ratios say more.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import uvloop

from benchmarks import beanstalk, redis_streams, server_works, skip_locked
from benchmarks.meter import Measured, Meter, best
from benchmarks.report import Options, Report, parse_options
from benchmarks.server_works import BATCH, PAYLOAD, Work, asynchronous
from fairlane.client import AsyncClient
from tests.kit.servers.stores import PostgresServer

ADDRESS = re.compile(r"listens on (http://\S+)")
ROUNDS = 2
Round: TypeAlias = Callable[[int], Measured]
"""One round of a work, of so many messages."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A line of the table: a work with its size and its goal, and the same work for the systems we compare with."""

    name: str
    run: Round
    count: int
    goal: float
    others: dict[str, Round]


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    uvloop.install()
    with ExitStack() as running:
        address, process = running.enter_context(server_process())
        redis = running.enter_context(redis_streams.server()) if redis_streams.is_installed() else None
        jobs = running.enter_context(beanstalk.server()) if beanstalk.is_installed() else None
        tables = running.enter_context(skip_locked.server())
        compare_rates(report, options, _workloads(address, process, redis, jobs, tables))
        measure_flood(report, address, process)
        measure_latency(report, options, address, redis)
    report.finish()


@contextmanager
def server_process(
    *, durability: Literal["fsync", "os"] = "fsync", folder: str | None = None
) -> Iterator[tuple[str, int]]:
    """Start a server on a fresh folder, or a given one. Yields its address and the id of its process."""
    with nullcontext(folder) if folder is not None else tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", data, "--durability", durability]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            found = next(match for line in process.stdout if (match := ADDRESS.search(line)) is not None)
            try:
                yield found.group(1), process.pid
            finally:
                process.terminate()
                process.stdout.close()


@contextmanager
def server() -> Iterator[str]:
    with server_process() as (address, _):
        yield address


# ---------------------------------------------------------------------------------------------------------------- rates


def _workloads(
    address: str,
    process: int,
    redis: tuple[int, int] | None,
    jobs: tuple[int, int] | None,
    tables: PostgresServer | None,
) -> list[Workload]:
    def ours(work: Work) -> Round:
        return lambda count: work(address, Meter(process), count)

    def theirs(work: redis_streams.Work) -> dict[str, Round]:
        if redis is None:
            return {}
        port, pid = redis
        return {"Redis": lambda count: work(port, PAYLOAD, Meter(pid), count)}

    def rows_of(work: skip_locked.AsyncWork, in_flight: int = 8) -> dict[str, Round]:
        if tables is None:
            return {}
        run = skip_locked.asynchronous(work, in_flight=in_flight)
        return {"PostgreSQL, SKIP LOCKED": lambda count: run(tables, PAYLOAD, Meter(tables.pids()[0]), count)}

    single = {} if jobs is None else {"beanstalkd": partial(beanstalk.put_one_at_a_time, *jobs, PAYLOAD)}
    works, streams = server_works, redis_streams
    alone = theirs(streams.asynchronous(streams.add_one_at_a_time)) | rows_of(skip_locked.add_one_at_a_time, 1)
    alone_blocking = theirs(streams.add_one_at_a_time_blocking) | single
    many = theirs(streams.asynchronous(streams.add_batches)) | rows_of(skip_locked.add_batches)
    taken = theirs(streams.asynchronous(streams.take_batches)) | rows_of(skip_locked.take_batches)
    return [
        Workload(f"enqueue, batches of {BATCH}", ours(asynchronous(works.enqueue_batches)), 24_000, 300_000, many),
        Workload(
            f"lease and ack, batches of {BATCH}",
            ours(asynchronous(works.lease_and_ack_batches)),
            24_000,
            200_000,
            taken,
        ),
        Workload("both at once, to the ack", ours(works.both_at_once), 24_000, 120_000, {}),
        Workload("enqueue, one at a time, asyncio", ours(asynchronous(works.one_at_a_time)), 1_500, 4_000, alone),
        Workload("enqueue, one at a time, blocking", ours(works.one_at_a_time_blocking), 1_500, 5_500, alone_blocking),
        Workload("enqueue, 32 in flight", ours(asynchronous(works.thirty_two_in_flight)), 16_000, 15_000, {}),
        Workload("task loop, blocking client to worker", ours(works.task_loop), 1_500, 4_500, {}),
        Workload("consume one by one, prefetched", ours(asynchronous(works.consume_one_by_one)), 20_000, 20_000, {}),
        Workload("worker with async handlers", ours(asynchronous(works.work_with_handlers)), 20_000, 100_000, {}),
    ]


def compare_rates(report: Report, options: Options, workloads: list[Workload]) -> None:
    scale = 1 if options.quick else 4
    rounds = ROUNDS if options.quick else 2 * ROUNDS
    report.heading("Server and clients in different processes, 1 KB, fsync, ten tenants", repeats=rounds)
    rows: list[list[str]] = []
    for work in workloads:
        runs = {"Fairlane": work.run} | work.others
        turns: dict[str, list[Measured]] = {system: [] for system in runs}
        for _ in range(rounds):
            for system, run in runs.items():
                turns[system].append(run(work.count * scale))
        found = {system: best(measured) for system, measured in turns.items()}
        rows += [_row(work.name if system == "Fairlane" else f"  {system}", one) for system, one in found.items()]
        report.goal(work.name, measured=found["Fairlane"].rate, least=work.goal, unit="/s")
        if "one at a time" in work.name and "Redis" in found:
            ratio = found["Fairlane"].rate / found["Redis"].rate
            report.goal(f"{work.name}, times Redis", measured=ratio, least=1.3)
    report.table(["what", "messages/s", "server µs", "client µs"], rows)


def _row(name: str, one: Measured) -> list[str]:
    return [name, f"{one.rate:,.0f}", f"{one.server_us:.1f}", f"{one.client_us:.1f}"]


def measure_flood(report: Report, address: str, process: int) -> None:
    """Measure how a consumer that has one request in flight fares against a producer that has eight."""
    rounds = [server_works.flooded_consumer(address, Meter(process)) for _ in range(ROUNDS)]
    measured, part = max(rounds, key=lambda found: found[1])
    report.table(
        ["a producer process floods, a consumer process has one request in flight", "value"],
        [["enqueued/s", f"{measured.rate:,.0f}"], ["leased and acked, of what was enqueued", f"{part:.2f}"]],
    )
    report.goal("part of the flood that the consumer gets", measured=part, least=0.8)


# -------------------------------------------------------------------------------------------------------------- latency


async def latency(client: AsyncClient, queue: str, count: int) -> list[float]:
    """Return the latency of each message from the call of enqueue to the handler, in ms, at 200 a second."""
    waits: list[float] = []
    sent: dict[bytes, float] = {}

    async def receive() -> None:
        async with client.consume(queue) as stream:
            async for message in stream:
                waits.append((time.perf_counter() - sent[message.payload]) * 1000)
                client.ack_soon(message)
                if len(waits) == count:
                    return

    receiving = asyncio.create_task(receive())
    begun = time.perf_counter()
    for at in range(count):
        await asyncio.sleep(max(0.0, begun + 0.2 + at / 200 - time.perf_counter()))
        payload = at.to_bytes(8) + PAYLOAD[8:]
        sent[payload] = time.perf_counter()
        asyncio.ensure_future(client.enqueue(queue, payload))  # noqa: RUF006 - its message is awaited
    await receiving
    return sorted(waits)


def measure_latency(report: Report, options: Options, address: str, redis: tuple[int, int] | None) -> None:
    report.heading("From the call of enqueue to the handler, at 200 a second", repeats=ROUNDS)
    count = 500 if options.quick else 4_000

    async def once() -> list[float]:
        async with server_works.fresh_queue(address) as (client, queue):
            return await latency(client, queue, count)

    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for _ in range(ROUNDS):
        ours.append(asyncio.run(once()))
        if redis is not None:
            theirs.append(redis_streams.latency(redis[0], PAYLOAD, count))
    middle, late, longest = _quantiles(ours)
    rows = [["Fairlane", f"{middle:.2f} ms", f"{late:.2f} ms", f"{longest:.2f} ms"]]
    if theirs:
        rows.append(["Redis", *(f"{value:.2f} ms" for value in _quantiles(theirs))])
        report.goal("p50, of Redis'", measured=middle / _quantiles(theirs)[0], most=1)
    report.table(["", "p50", "p99", "max"], rows)
    report.goal("p50", measured=middle, most=0.4, unit=" ms")
    report.goal("p99", measured=late, most=0.9, unit=" ms")


def _quantiles(rounds: list[list[float]]) -> tuple[float, float, float]:
    waits = min(rounds, key=lambda found: found[len(found) // 2])
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]


if __name__ == "__main__":
    main()
