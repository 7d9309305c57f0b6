"""How costs grow with the size of a cluster: ``python -m benchmarks.sizes [--quick]``. It has no goals.

It measures what idle nodes with unused groups cost themselves and PostgreSQL; how long it takes to move a queue with
more and more messages, or to take it over when its owner is killed; and many queues in few groups. All nodes are real
server processes over one PostgreSQL on this machine.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.nodes import cpu_s
from benchmarks.report import Options, Report, parse_options
from fairlane.client import AsyncClient, NewMessage, Retries
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import wait_until

HEARTBEAT_TIMEOUT_MS = 5_000
BATCH = 500
PAYLOAD = b"x" * 1_024
_MIB = 1 << 20


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    with PostgresServer(settings=["max_connections=400", "max_wal_size=2GB"]) as server:
        measure_idle(report, options, server)
        measure_backlogs(report, options, server)
        measure_queues(report, options, server)
    report.finish()


@contextmanager
def cluster_of(count: int, server: PostgresServer, namespace: str, *flags: str) -> Iterator[Cluster]:
    options = ("--heartbeat-timeout-ms", str(HEARTBEAT_TIMEOUT_MS), "--log-level", "error", *flags)
    store = f"{server.url}&namespace={namespace}"
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster.of(count, store, Path(folder), flags=options) as cluster,
    ):
        yield cluster


def client_of(cluster: Cluster) -> AsyncClient:
    return AsyncClient(cluster.addresses, timeout=120, retries=Retries(patience_s=120, longest_s=0.1))


# ----------------------------------------------------------------------------------------------------------------- idle


def measure_idle(report: Report, options: Options, server: PostgresServer) -> None:
    seconds = 4 if options.quick else 10
    report.heading(f"Nodes that only live, heartbeat_timeout_ms {HEARTBEAT_TIMEOUT_MS}: {seconds} s", repeats=1)
    rows = []
    for nodes, groups in [(1, 1), (1, 32), (3, 32)] if options.quick else [(1, 1), (1, 32), (3, 32), (6, 32), (3, 96)]:
        with cluster_of(nodes, server, f"idle-{nodes}-{groups}", "--groups-max", str(groups)) as cluster:
            asyncio.run(_make_queues(cluster, groups))
            pids = [node.process.pid for node in cluster.nodes if node.process is not None]
            before = cpu_s(pids), cpu_s(server.pids()), time.perf_counter()
            threading.Event().wait(seconds)
            took_s = time.perf_counter() - before[2]
            node_share = (cpu_s(pids) - before[0]) / took_s / nodes
            postgres_share = (cpu_s(server.pids()) - before[1]) / took_s
            memory = max(_resident_bytes(pid) for pid in pids) / _MIB
            numbers = [f"{node_share:.1%}", f"{postgres_share:.1%}", f"{_connections(server)}", f"{memory:.0f}"]
            rows.append([f"{nodes} nodes, {groups} groups", *numbers])
    columns = ["", "a node of a core", "PostgreSQL of a core", "connections", "largest node MiB"]
    report.table(columns, rows)


async def _make_queues(cluster: Cluster, count: int) -> float:
    """Create queues, wait until all have an owner, and return the seconds that took."""
    begun = time.perf_counter()
    async with client_of(cluster) as client:
        for number in range(count):
            await client.create_queue(f"q{number}")
    await asyncio.to_thread(
        wait_until, lambda: len(cluster.owners()) == count, what="All queues are owned", patience_s=120
    )
    return time.perf_counter() - begun


def _connections(server: PostgresServer) -> int:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT count(*) - 1 FROM pg_stat_activity WHERE datname IS NOT NULL").fetchone()
    return 0 if row is None else int(row[0])


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------------------------------------- backlogs


def measure_backlogs(report: Report, options: Options, server: PostgresServer) -> None:
    sizes = (1_000, 20_000) if options.quick else (1_000, 30_000, 100_000)
    report.heading("A queue that moves by hand, and whose owner is killed, until an enqueue is answered", repeats=1)
    with cluster_of(2, server, "backlogs") as cluster:
        rows = asyncio.run(_move_and_kill(cluster, sizes))
    report.table(
        ["waiting messages of 1 KB", "moved s", f"killed s, heartbeat_timeout_ms {HEARTBEAT_TIMEOUT_MS}"], rows
    )


async def _move_and_kill(cluster: Cluster, sizes: tuple[int, ...]) -> list[list[str]]:
    rows, waiting = [], 0
    async with client_of(cluster) as client:
        await client.create_queue("work")
        for size in sizes:
            batch = [NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{at % 10}") for at in range(BATCH)]
            for _ in range((size - waiting) // BATCH):
                await client.enqueue_many("work", batch)
            waiting = size
            owner = await asyncio.to_thread(cluster.owner, "work")
            other = next(node for node in cluster.nodes if node is not owner)
            moved_s = await _moved(cluster, client, other)
            begun = time.perf_counter()
            other.kill()
            await client.enqueue("work", b"after")
            killed_s = time.perf_counter() - begun
            await asyncio.to_thread(cluster.start, [other])
            rows.append([f"{size:,}", f"{moved_s:.2f}", f"{killed_s:.2f}"])
    return rows


async def _moved(cluster: Cluster, client: AsyncClient, node: Node) -> float:
    begun = time.perf_counter()
    await client.move_queue("work", node.name)
    await asyncio.to_thread(cluster.wait_for, "work", node)
    await client.enqueue("work", b"after")
    return time.perf_counter() - begun


# --------------------------------------------------------------------------------------------------------------- queues


def measure_queues(report: Report, options: Options, server: PostgresServer) -> None:
    count = 64 if options.quick else 300
    report.heading(f"{count} queues in 32 groups on three nodes", repeats=1)
    with cluster_of(3, server, "queues") as cluster:
        took_s = asyncio.run(_make_queues(cluster, count))
        listed_s, killed_s = asyncio.run(_list_and_kill(cluster, count))
    cells = [f"{1_000 * took_s / count:.0f}", f"{1_000 * listed_s:.0f}", f"{killed_s:.2f}"]
    report.table(["", "create one ms", "list all ms", "all owned again after a kill s"], [[f"{count} queues", *cells]])


async def _list_and_kill(cluster: Cluster, count: int) -> tuple[float, float]:
    async with client_of(cluster) as client:
        begun = time.perf_counter()
        assert len(await client.queues()) == 2 * count  # each has a queue for its dead letters
        listed_s = time.perf_counter() - begun
    victim = cluster.nodes[-1]
    begun = time.perf_counter()
    victim.kill()

    def is_over() -> bool:
        owners = cluster.owners()
        return len(owners) == count and victim.name not in owners.values()

    await asyncio.to_thread(wait_until, is_over, what="The others have all")
    return listed_s, time.perf_counter() - begun


if __name__ == "__main__":
    main()
