"""A cluster with a queue that is split, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fairlane.client import AsyncClient, NewMessage, Retries
from fairlane.model.partitions import partition_of_key
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.cluster import SplitQueue
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import HEARTBEAT_TIMEOUT_MS, Cluster, Member, cluster_of

QUICK = Retries(patience_s=60.0, first_s=0.001, longest_s=0.05)
TENANTS = [f"tenant-{number}" for number in range(12)]
"""They are in all of four partitions."""
Scenario = Callable[[Cluster, AsyncClient], Awaitable[None]]


def run(
    scenario: Scenario,
    *,
    partitions: int = 4,
    policy: QueuePolicy | None = None,
    names: str = "abc",
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
) -> None:
    """Run a scenario with nodes, a client of all of them, and ``orders``, which is split."""

    async def main() -> None:
        async with (
            cluster_of(names, heartbeat_timeout_ms=heartbeat_timeout_ms) as cluster,
            AsyncClient(addresses(cluster), retries=QUICK) as client,
        ):
            await client.create_queue("orders", policy or QueuePolicy())
            if partitions > 1:
                await split(cluster, client, partitions)
            await scenario(cluster, client)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def addresses(cluster: Cluster) -> str:
    """Return the addresses of all nodes."""
    return ",".join(member.address for member in cluster.members.values())


async def split(cluster: Cluster, client: AsyncClient, partitions: int) -> None:
    """Split ``orders``, and wait until all nodes know it. Partitions that are not empty stay, to be emptied."""
    await client.transport.call("split_queue", SplitQueue(queue="orders", partitions=partitions))

    def knows(member: Member) -> bool:
        found = member.groups.split_of("orders")
        return found is not None and found.partitions == partitions

    await until(lambda: all(knows(member) for member in cluster.members.values()), "all nodes know of the split")


def messages(count: int) -> list[NewMessage]:
    """Return messages of all tenants in turn, with their numbers as payloads."""
    return [NewMessage(payload=b"%d" % number, fairness_key=TENANTS[number % 12]) for number in range(count)]


def numbers(payloads: Sequence[bytes]) -> list[int]:
    """Return the numbers that messages have as payloads, in order."""
    return sorted(map(int, payloads))


def calls(cluster: Cluster, verb: str) -> int:
    """Count how often all nodes were asked for something."""
    return sum(member.server.tally.calls[verb] for member in cluster.members.values())


async def send_away(cluster: Cluster, partition: str) -> None:
    """Leave a partition without an owner until its store works again."""
    owner = cluster.owner(partition)
    cluster.shelves.failing.add(partition)
    other = next(member for member in cluster.members.values() if member is not owner)
    await other.done("cluster/move", {"queue": partition, "node": other.name})
    await until(lambda: not owner.serves(partition), "it has no owner")


def of_partition(at: int) -> str:
    """Return a tenant whose messages are in one of four partitions."""
    return next(tenant for tenant in TENANTS if partition_of_key(tenant, 4) == at)
