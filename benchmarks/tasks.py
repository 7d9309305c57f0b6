"""Typed tasks next to plain handlers of the same worker, and other task queues for Python on Redis.

With ``FAIRLANE_PEERS=PYTHON``, a Python that has celery, dramatiq, huey and redis installed, it measures those as well.
A server with fsync and a worker share two cores. Each round enqueues messages, then measures how fast a worker drains
the queue. Plain and typed rounds take turns, so that noise of the machine hits both.

The task loop is one process that sends a task after the other while a worker runs them. There each system runs as
durable as it can be, and so that a crash of the machine may lose the last second: a server with ``--durability os``
next to Redis with ``appendfsync everysec``.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable
from itertools import count as counter
from typing import Literal

import uvloop

from benchmarks import redis_streams, server_works, task_peers
from benchmarks.meter import Measured, Meter, best
from benchmarks.report import Report, parse_options
from benchmarks.server import server_process
from fairlane.client import AsyncClient, NewMessage
from fairlane.tasks import App
from fairlane.worker import Worker, WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle

BATCH = 1_000
CONCURRENCY, CREDIT = 64, 1_000
PEERS_PYTHON = "FAIRLANE_PEERS"
_rounds = counter()


def plain(queue: str) -> Worker:
    """Return a worker with a handler that does nothing."""
    app = Worker()

    @app.handler(queue, concurrency=CONCURRENCY, credit=CREDIT)
    async def handle(_: WorkMessage) -> None: ...

    return app


def typed(queue: str) -> App:
    """Return an app with a task that does nothing."""
    app = App()

    @app.task(queue=queue, name="charge", key="tenant", concurrency=CONCURRENCY, credit=CREDIT)
    async def charge(order_id: int, tenant: str) -> None: ...

    return app


def messages() -> list[NewMessage]:
    """Return a batch of jobs, which both kinds of workers handle."""
    charge = typed("any").tasks["charge"]
    return [charge.message(order_id=number, tenant=f"tenant-{number % 10}") for number in range(BATCH)]


async def drain(app: Worker, address: str, queue: str, meter: Meter, count: int) -> Measured:
    """Enqueue messages, and measure how the worker drains them."""
    async with AsyncClient(address) as client:
        await client.ensure_queue(queue)
        batch = messages()
        for _ in range(0, count, BATCH):
            await client.enqueue_many(queue, batch)
        done = asyncio.Event()
        handled = 0

        @app.middleware
        async def watch(message: WorkMessage, handle: AsyncHandle) -> Answer:
            nonlocal handled
            answer = await handle(message)
            handled += 1
            if handled == count:
                done.set()
            return answer

        with meter:
            running = asyncio.create_task(app.run(client))
            await done.wait()
            app.stop()
            await running
        assert app.counters.handled == count
        await client.delete_queue(queue)
    return meter.measured(count)


def one_round(make: Callable[[str], Worker], address: str, process: int, count: int) -> Measured:
    queue = f"tasks-{next(_rounds)}"
    return uvloop.run(drain(make(queue), address, queue, Meter(process), count))


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    count, rounds = (20_000, 3) if options.quick else (40_000, 5)
    handlers: list[Measured] = []
    tasks: list[Measured] = []
    with server_process() as (address, process):
        for _ in range(rounds):
            handlers.append(one_round(plain, address, process, count))
            tasks.append(one_round(typed, address, process, count))
    report.heading("A worker drains a queue: one server process, one worker process, fsync", repeats=rounds)
    report.table(
        ["", "tasks/s", "worker CPU us", "server CPU us"],
        [_row("plain handler", best(handlers)), _row("typed task", best(tasks))],
    )
    ratio = statistics.median(task.rate / handler.rate for handler, task in zip(handlers, tasks, strict=True))
    report.goal("typed tasks compared with plain handlers, median of pairs", measured=ratio, least=0.8)
    report.goal("typed tasks", measured=best(tasks).rate, least=20_000, unit="/s")
    python = os.environ.get(PEERS_PYTHON)
    _compare(report, python, count // 8)
    compare_loops(report, python, count // 20)
    report.finish()


def _row(name: str, one: Measured) -> list[str]:
    return [name, f"{one.rate:,.0f}", f"{one.client_us:.1f}", f"{one.server_us:.1f}"]


def _compare(report: Report, python: str | None, count: int) -> None:
    """Measure the other task queues that a Python has, if one is given."""
    if python is None or not redis_streams.is_installed():
        return
    report.heading("Others, with two worker processes and Redis with appendfsync everysec", repeats=1)
    rows = []
    with redis_streams.server(fsync="everysec") as (port, _):
        for peer in task_peers.PEERS:
            known = task_peers.has(python, peer)
            rows.append(
                [peer.name, f"{task_peers.drain_rate(python, peer, port, count):,.0f}" if known else "not installed"]
            )
    report.table(["", "tasks/s"], rows)


LEVELS: tuple[tuple[Literal["fsync", "os"], Literal["always", "everysec"]], ...] = (
    ("fsync", "always"),
    ("os", "everysec"),
)
"""The durability of our server, and of Redis, so that both lose as much in a crash of the machine."""


def compare_loops(report: Report, python: str | None, count: int) -> None:
    """Compare the task loop with that of others, at both levels of durability."""
    report.heading("The task loop: one process sends, one worker handles", repeats=1)
    rows = []
    for ours, theirs in LEVELS:
        with server_process(durability=ours) as (address, process):
            own = server_works.task_loop(address, Meter(process), count).rate
        rows.append([f"Fairlane, {ours}", f"{own:,.0f}"])
        if ours == "fsync":
            report.goal("task loop with fsync", measured=own, least=4_500, unit="/s")
        for name, rate in _loops_of_peers(python, theirs, count).items():
            rows.append([f"{name}, Redis {theirs}", f"{rate:,.0f}"])
            report.goal(f"task loop with {ours}, times {name}", measured=own / rate, least=1, unit="x")
    report.table(["", "tasks/s"], rows)


def _loops_of_peers(python: str | None, fsync: Literal["always", "everysec"], count: int) -> dict[str, float]:
    if python is None or not redis_streams.is_installed():
        return {}
    with redis_streams.server(fsync=fsync) as (port, _):
        found = [peer for peer in task_peers.PEERS if task_peers.has(python, peer)]
        return {peer.name: task_peers.loop_rate(python, peer, port, count) for peer in found}


if __name__ == "__main__":
    main()
