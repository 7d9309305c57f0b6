"""Several nodes over one PostgreSQL, as ``benchmarks.stores`` measures them: two against one, a split, takeovers.

Nodes and clients are real processes, with one client per queue. On a machine without a core for each node, client and
PostgreSQL, two nodes cannot be faster than one. There the benchmark judges the cost per message: if a message costs two
nodes no more CPU than one, they handle twice as much where there are enough cores.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Options, Report
from fairlane.client import AsyncClient, NewMessage, Retries
from fairlane.model.partitions import partition_name, served_name
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer

WARM = 100
"""The number of messages that go through each queue before the measurement."""
TENANTS = 10
PAYLOAD = random.Random(1).randbytes(1024)
IN_FLIGHT = 4
CORES_WANTED = 5
"""Two nodes, two clients and PostgreSQL."""
FULL_HEARTBEAT_TIMEOUT_MS, QUICK_HEARTBEAT_TIMEOUT_MS = 2_000, 1_500
_TICKS = os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------------------ two nodes against one


@dataclass(frozen=True, slots=True)
class Work:
    """What two clients do.

    Attributes:
        what: it, in words.
        queues: the queue of each client. One that is both's is hot, and is split where there are two nodes.
        batch: how many messages are enqueued, leased and acked at once.
        goal: how much two nodes should do for one, by what a message costs a node.
    """

    what: str
    queues: tuple[str, str]
    batch: int
    goal: float

    @property
    def is_hot(self) -> bool:
        return self.queues[0] == self.queues[1]


APART = Work("two queues, batches of 100", ("one", "two"), batch=100, goal=1.5)
HOT = Work("one queue, split over two nodes, batches of 500", ("hot", "hot"), batch=500, goal=1.1)
"""Batches are large because each one is divided among the partitions, and small requests cost more per message."""


@dataclass(slots=True)
class Share:
    """The result for a number of nodes: messages per second, and CPU seconds per thousand messages by process."""

    rate: float
    nodes_cpu: float
    clients_cpu: float
    postgres_cpu: float
    postgres_share: float


def compare_two_with_one(report: Report, options: Options, server: PostgresServer) -> None:
    """Compare two nodes with one: with a queue each, and with one queue that is split over both."""
    for work in (APART, HOT):
        _compare(report, options, server, work)


def _compare(report: Report, options: Options, server: PostgresServer, work: Work) -> None:
    count = 4_000 if options.quick else 40_000
    repeats = 1 if options.quick else 3
    report.heading(f"Nodes over one PostgreSQL: {work.what}; 1 KB, enqueue, lease and ack by the SDK", repeats=repeats)
    found: dict[int, Share] = {}
    for number in range(repeats):
        for nodes in (1, 2):
            share = _share(server, nodes, work, namespace=f"{work.queues[0]}-{nodes}-{number}", count=count)
            if nodes not in found or share.rate > found[nodes].rate:
                found[nodes] = share
    columns = ["nodes", "messages/s", "x", "CPU ms per 1000: nodes", "clients", "PostgreSQL", "PostgreSQL of a core"]
    rows = []
    for nodes, share in found.items():
        costs = [f"{1_000 * cpu:.0f}" for cpu in (share.nodes_cpu, share.clients_cpu, share.postgres_cpu)]
        ratio = share.rate / found[1].rate
        rows.append([str(nodes), f"{share.rate:,.0f}", f"{ratio:.2f}", *costs, f"{share.postgres_share:.0%}"])
    report.table(columns, rows)
    by_cost = 2 * found[1].nodes_cpu / found[2].nodes_cpu
    what = "one queue split over two nodes" if work.is_hot else "two nodes against one"
    report.goal(f"{what}, by what a message costs a node", measured=by_cost, least=work.goal, unit="x")
    cores = len(os.sched_getaffinity(0))
    if cores >= CORES_WANTED:
        ratio = found[2].rate / found[1].rate
        report.goal(f"{what}, messages a second", measured=ratio, least=work.goal, unit="x")
    else:
        report.console.print(
            f"  not judged: messages a second of two nodes against one; {cores} cores are not enough for"
            f" {CORES_WANTED} processes."
        )


def _share(server: PostgresServer, nodes: int, work: Work, *, namespace: str, count: int) -> Share:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster.of(nodes, f"{server.url}&namespace={namespace}", Path(folder), flags=("--log-level", "error"))
        with cluster, ProcessPoolExecutor(len(work.queues), multiprocessing.get_context("spawn")) as pool:
            asyncio.run(_place(cluster, work))
            places = [cluster.addresses] * 2, work.queues, [work.batch] * 2
            list(pool.map(_work, *places, [WARM] * 2))  # so that all is warm
            pids = [node.process.pid for node in cluster.nodes if node.process is not None]
            before = cpu_s(pids), cpu_s(server.pids())
            begun = time.perf_counter()
            clients_s = sum(pool.map(_work, *places, [count] * 2))
            took_s = time.perf_counter() - begun
            nodes_s, postgres_s = cpu_s(pids) - before[0], cpu_s(server.pids()) - before[1]
    thousands = len(work.queues) * count / 1_000
    costs = nodes_s / thousands, clients_s / thousands, postgres_s / thousands
    return Share(len(work.queues) * count / took_s, *costs, postgres_s / took_s)


async def _place(cluster: Cluster, work: Work) -> None:
    """Create the queues, each on its own node if there are two; split a hot one over both."""
    async with AsyncClient(cluster.addresses) as client:
        names = list(dict.fromkeys(work.queues))
        for queue in names:
            await client.create_queue(queue)
        if work.is_hot and len(cluster.nodes) > 1:
            await client.split_queue(names[0], len(cluster.nodes))
            names = [partition_name(names[0], at) for at in range(len(cluster.nodes))]
        for queue, node in zip(names, cluster.nodes * 2, strict=False):
            await client.move_queue(queue, node.name)
            await asyncio.to_thread(cluster.wait_for, served_name(queue), node)


def _work(addresses: str, queue: str, batch: int, count: int) -> float:
    """Send and handle messages, and return the CPU seconds used."""
    begun = time.process_time()
    asyncio.run(_send_and_handle(addresses, queue, batch, count))
    return time.process_time() - begun


async def _send_and_handle(addresses: str, queue: str, size: int, count: int) -> None:
    batch = [NewMessage(payload=PAYLOAD, fairness_key=f"tenant-{at % TENANTS}") for at in range(size)]
    to_send, to_handle = [-(-count // size)], [count]

    async def send(client: AsyncClient) -> None:
        while to_send[0] > 0:
            to_send[0] -= 1
            await client.enqueue_many(queue, batch)

    async def handle(client: AsyncClient) -> None:
        while to_handle[0] > 0:
            messages = await client.lease(queue, size, wait_ms=20)
            if messages:
                done = await client.ack_many(queue, messages)
                to_handle[0] -= done.count(None)
            elif to_send[0] <= 0:  # another client has had some of ours
                return

    async with AsyncClient(addresses, dedup=False) as client:
        await asyncio.gather(*(act(client) for act in (send, handle) for _ in range(IN_FLIGHT)))


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds that the running processes have used so far."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


# ------------------------------------------------------------------------------------------------------------ takeovers


def measure_takeovers(report: Report, options: Options, server: PostgresServer) -> None:
    kills, heartbeat_timeout_ms = (3, QUICK_HEARTBEAT_TIMEOUT_MS) if options.quick else (20, FULL_HEARTBEAT_TIMEOUT_MS)
    report.heading(
        f"Takeover: the owner of a queue is killed, {kills} times; three nodes, timeout {heartbeat_timeout_ms} ms",
        repeats=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--heartbeat-timeout-ms", str(heartbeat_timeout_ms), "--log-level", "error")
        cluster = Cluster.of(3, f"{server.url}&namespace=takeovers", Path(folder), flags=flags)
        with cluster:
            found_s = asyncio.run(_kill_again_and_again(cluster, kills))
    median_s = statistics.median(found_s)
    columns = ["until an enqueue is answered again", "p50 s", "max s"]
    report.table(columns, [[f"{kills} kills", f"{median_s:.2f}", f"{max(found_s):.2f}"]])
    report.goal(
        "the timeout against the median takeover", measured=heartbeat_timeout_ms / 1_000 / median_s, least=0.5, unit="x"
    )


async def _kill_again_and_again(cluster: Cluster, kills: int) -> list[float]:
    found_s = []
    retries = Retries(longest_s=0.1)
    async with AsyncClient(cluster.addresses, retries=retries) as client:
        await client.create_queue("work")
        for _ in range(kills):
            await client.enqueue("work", b"before")
            owner: Node = await asyncio.to_thread(cluster.owner, "work")
            owner.kill()
            begun = time.perf_counter()
            await client.enqueue("work", b"after")
            found_s.append(time.perf_counter() - begun)
            await asyncio.to_thread(cluster.start, [owner])
    return found_s
