"""The broker on PostgreSQL and S3: ``python -m benchmarks.stores [--quick] [--check]``.

PostgreSQL runs with fsync in a temporary folder. The baseline on the same server is a hand-written queue: a table,
batches by ``UNNEST``, leases by ``FOR UPDATE SKIP LOCKED``, acks by ``DELETE``. It has no tenants, and one connection
per request in flight; the broker has a single connection. Then two nodes are compared with one, and owners are killed
(see ``benchmarks.nodes``). S3 is SeaweedFS on loopback. There the number of PUTs matters more than the rate, because
each one costs money.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.nodes import compare_two_with_one, measure_takeovers
from benchmarks.report import Options, Report, parse_options
from benchmarks.skip_locked import ACK, ENQUEUE, LEASE, MAKE, connected
from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.adapters.s3.store import S3Store
from fairlane.adapters.shared.ownership import Ownership
from fairlane.adapters.system import SystemClock, SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage
from fairlane.ports.store import Store
from tests.kit.servers.stores import PostgresServer, S3Server

if TYPE_CHECKING:
    import asyncpg

BATCH = 100
TENANTS = 10
PAYLOAD = random.Random(1).randbytes(1024)
WINDOWS_MS = (10, 100, 1_000)
PRODUCERS, CONSUMERS = 32, 16
TRICKLE = 500
"""Messages per second that arrive one by one."""
BUCKET = "benchmarks"


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    gc.set_threshold(50_000, 20, 100)
    with PostgresServer(settings=["shared_buffers=256MB", "max_wal_size=2GB"]) as server:
        compare_with_skip_locked(report, options, server)
        compare_two_with_one(report, options, server)
        measure_takeovers(report, options, server)
    with S3Server() as s3:
        s3.make_bucket(BUCKET)
        measure_windows(report, options, s3)
    report.finish()


@dataclass(slots=True)
class Pace:
    """Messages per second of one run."""

    enqueued: float
    served: float


async def timed(count: int, workers: list[Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*workers)
    return count / (time.perf_counter() - begun)


# ---------------------------------------------------------------------------------------------------------- the broker


async def opened(store: Store, **settings: int) -> AsyncBroker:
    engine = Engine(
        store,
        hooks=LuaHooks(lambda _queue, _key: None),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        settings=Settings(**settings),
    )
    engine.open()
    return AsyncBroker(engine)


def batches(count: int) -> list[list[NewMessage]]:
    messages = [NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{at % TENANTS}") for at in range(count)]
    return [messages[at : at + BATCH] for at in range(0, count, BATCH)]


async def produce(broker: AsyncBroker, todo: list[list[NewMessage]]) -> None:
    while todo:
        results = await broker.enqueue_many("work", todo.pop())
        assert all(type(result) is str for result in results)


async def drain(broker: AsyncBroker) -> None:
    while deliveries := await broker.lease("work", BATCH):
        results = await broker.ack_many("work", deliveries)
        assert results.count(None) == len(deliveries)


async def run_broker(url: str, name: str, *, count: int, in_flight: int) -> Pace:
    async with await opened(PostgresStore(url, namespace=name, ownership=Ownership(force=True))) as broker:
        if not await broker.queues():
            await broker.create_queue("work")
        todo = batches(count)
        enqueued = await timed(count, [produce(broker, todo) for _ in range(in_flight)])
        served = await timed(count, [drain(broker) for _ in range(in_flight)])
    return Pace(enqueued, served)


# -------------------------------------------------------------------------------------------------------- the baseline


async def run_skip_locked(server: PostgresServer, *, count: int, in_flight: int) -> Pace:
    connections = [await connected(server) for _ in range(in_flight)]
    await connections[0].execute(MAKE)
    tenants = [f"tenant-{at % TENANTS}" for at in range(BATCH)]
    left = [count // BATCH]

    async def insert(connection: asyncpg.Connection) -> None:
        while left[0] > 0:
            left[0] -= 1
            await connection.execute(ENQUEUE, tenants, [PAYLOAD] * BATCH)

    async def take(connection: asyncpg.Connection) -> None:
        while rows := await connection.fetch(LEASE):
            assert all(len(row["payload"]) == len(PAYLOAD) for row in rows)
            await connection.execute(ACK, [row["id"] for row in rows])

    enqueued = await timed(count, [insert(connection) for connection in connections])
    served = await timed(count, [take(connection) for connection in connections])
    for connection in connections:
        await connection.close()
    return Pace(enqueued, served)


# ---------------------------------------------------------------------------------------------------------- PostgreSQL


def compare_with_skip_locked(report: Report, options: Options, server: PostgresServer) -> None:
    report.heading(f"PostgreSQL: messages of 1 KB in batches of {BATCH}, {TENANTS} tenants, one node")
    count = 10_000 if options.quick else 40_000
    rows = []
    for in_flight in (1, 8):
        name = f"benchmark-{in_flight}"
        runs: list[Callable[[], Awaitable[Pace]]] = [
            partial(run_skip_locked, server, count=count, in_flight=in_flight),
            partial(run_broker, server.url, name, count=count, in_flight=in_flight),
        ]
        baseline, broker = best_paces(runs, repeats=3 if options.quick else 5)
        ratios = broker.enqueued / baseline.enqueued, broker.served / baseline.served
        for what, pace, (first, second) in (("SKIP LOCKED", baseline, (1.0, 1.0)), ("broker", broker, ratios)):
            cells = [f"{pace.enqueued:,.0f}", f"{first:.2f}", f"{pace.served:,.0f}", f"{second:.2f}"]
            rows.append([f"{what}, {in_flight} in flight", *cells])
        if in_flight == 1:
            goals = ratios
    report.table(["what", "enqueued/s", "x", "leased and acked/s", "x"], rows)
    report.goal("enqueue against SKIP LOCKED, one request in flight", measured=goals[0], least=0.6, unit="x")
    report.goal("lease and ack against SKIP LOCKED, one request in flight", measured=goals[1], least=0.6, unit="x")


def best_paces(runs: list[Callable[[], Awaitable[Pace]]], *, repeats: int) -> list[Pace]:
    """Return the best of each, in interleaved runs, so that noise affects all alike."""
    found = [Pace(0.0, 0.0) for _ in runs]
    for _ in range(repeats):
        for at, run in enumerate(runs):
            gc.collect()
            pace: Pace = asyncio.run(run())  # type: ignore[arg-type] # each is a coroutine
            found[at] = Pace(max(found[at].enqueued, pace.enqueued), max(found[at].served, pace.served))
    return found


# ------------------------------------------------------------------------------------------------------------------ S3


class CountingBucket(S3Bucket):
    """A bucket that counts its writes."""

    puts = 0

    def create(self, name: str, data: bytes) -> str | None:
        self.puts += 1
        return super().create(name, data)

    def replace(self, name: str, data: bytes, *, tag: str) -> str | None:
        self.puts += 1
        return super().replace(name, data, tag=tag)


@dataclass(slots=True)
class Window:
    """The result for a window: messages per second, PUTs per thousand messages, median enqueue time in ms."""

    rate: float
    puts: float
    delay_ms: float


class S3Load:
    """A broker in S3 under load, enqueue to ack."""

    def __init__(self, broker: AsyncBroker, *, count: int, window_ms: int) -> None:
        self._broker = broker
        self._count = self._left = count
        self._window_ms = window_ms
        self._delays: list[float] = []

    async def enqueue(self, messages: list[NewMessage]) -> None:
        asked = time.perf_counter()
        await self._broker.enqueue_many("work", messages)
        self._delays.append(time.perf_counter() - asked)

    async def send_all(self, todo: list[list[NewMessage]]) -> None:
        """Send batches as fast as they are answered."""
        while todo:
            await self.enqueue(todo.pop())

    async def send_evenly(self) -> None:
        """Send single messages at a constant rate, answered or not."""
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for at in range(self._count):
                await asyncio.sleep(begun + at / TRICKLE - time.perf_counter())
                group.create_task(self.enqueue([NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{at % TENANTS}")]))

    async def serve(self) -> None:
        while self._left > 0:
            if deliveries := await self._broker.lease("work", 5 * BATCH, wait_ms=self._window_ms):
                results = await self._broker.ack_many("work", deliveries)
                self._left -= results.count(None)

    async def measure(self, bucket: CountingBucket, senders: list[Awaitable[None]]) -> Window:
        puts = bucket.puts
        rate = await timed(self._count, [*senders, *(self.serve() for _ in range(CONSUMERS))])
        median = sorted(self._delays)[len(self._delays) // 2]
        return Window(rate, 1_000 * (bucket.puts - puts) / self._count, median * 1_000)


async def run_window(bucket: CountingBucket, *, window_ms: int, count: int, seconds: int) -> tuple[Window, Window]:
    """Return the results of a window at full speed and with messages that trickle in."""
    async with await opened(S3Store(bucket, window_ms=window_ms), cycle_events_max=50_000) as broker:
        await broker.create_queue("work")
        load, todo = S3Load(broker, count=count, window_ms=window_ms), batches(count)
        flood = await load.measure(bucket, [load.send_all(todo) for _ in range(PRODUCERS)])
        load = S3Load(broker, count=seconds * TRICKLE, window_ms=window_ms)
        return flood, await load.measure(bucket, [load.send_evenly()])


def measure_windows(report: Report, options: Options, server: S3Server) -> None:
    count, seconds = (6_400, 2) if options.quick else (64_000, 10)
    report.heading(f"S3: enqueue, lease and ack of 1 KB; {PRODUCERS} producers of batches of {BATCH}, or one by one")
    windows: dict[int, Window] = {}
    rows = []
    for window_ms in WINDOWS_MS:
        bucket = CountingBucket(f"{BUCKET}/window-{window_ms}", endpoint=server.endpoint, is_anonymous=True)
        run = run_window(bucket, window_ms=window_ms, count=count, seconds=seconds)
        flood, windows[window_ms] = asyncio.run(run)
        cells = [f"{flood.rate:,.0f}", f"{flood.puts:.2f}"]
        rows.append(
            [f"{window_ms} ms", *cells, f"{windows[window_ms].puts:.1f}", f"{windows[window_ms].delay_ms:,.0f}"]
        )
    columns = ["window", "messages/s", "PUTs per 1000", f"PUTs per 1000, at {TRICKLE}/s", "median enqueue ms then"]
    report.table(columns, rows)
    saved = windows[WINDOWS_MS[0]].puts / windows[WINDOWS_MS[-1]].puts
    report.goal("PUTs saved by a window of 1 s against 10 ms", measured=saved, least=5, unit="x")


if __name__ == "__main__":
    main()
