"""Throttles are those of the cluster: what groups have of one adds up to no more than it has."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.cluster.budgets import share_in
from fairlane.cluster.entries import Share
from tests.kit.waiting import until
from tests.unit.cluster.in_process import SOON_MS, Cluster, Member, cluster_of
from tests.unit.cluster.test_serving import made
from tests.unit.server.local_server import run

if TYPE_CHECKING:
    import pytest

QUEUES = ("orders", "mails", "jobs")
QUICK_MS = 2_500
"""Nodes report what waits for a throttle with each heartbeat, and five of them fit into this."""
API = {"throttle:api:rate": "100", "throttle:api:burst": "30"}


def shares(cluster: Cluster, throttle: str = "api") -> list[tuple[float, int]]:
    """Return rate and burst of each group that is served; one that does not know the throttle may use any amount."""
    found = []
    for queue in QUEUES:
        owner = next((member for member in cluster.members.values() if member.serves(queue)), None)
        if owner is None:
            continue
        share = share_in(owner.groups.of(queue)._engine.ledger.config, throttle)
        found.append((float("inf"), 1 << 60) if share is None else (share.rate / 1e6, share.burst))
    return found


def is_all(cluster: Cluster, rate: float, burst: int) -> bool:
    """Return whether the groups together have the whole budget."""
    return sum(each for each, _ in shares(cluster)) == rate and sum(each for _, each in shares(cluster)) == burst


def has_most(cluster: Cluster, place: int) -> bool:
    """Return whether one group has nearly all of the rate."""
    found = shares(cluster)
    return len(found) == len(QUEUES) and found[place][0] >= 90


async def consume_all(member: Member, queue: str) -> None:
    """Enqueue and lease without end what needs the throttle."""
    news = [{"payload": "eA==", "throttles": ["api"]}] * 100
    while True:
        await member.done("queue/enqueue", {"queue": queue, "messages": news})
        await member.done("queue/dequeue", {"queue": queue, "count": 100, "wait_ms": 1_000})


def test_groups_share_a_throttle() -> None:
    """Set once for all, it is split over the groups of two nodes; a change arrives, and lifting it lifts it."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, *QUEUES)
            await cluster["b"].done("config/set", {"values": API})
            await until(lambda: is_all(cluster, 100, 30), "all of it is shared out")
            await cluster["a"].done("config/set", {"values": {"throttle:api:rate": "10", "throttle:api:burst": "6"}})
            await until(lambda: is_all(cluster, 10, 6), "less of it is shared out")
            throttles = (await cluster["b"].done("config/throttles"))["throttles"]
            assert [(view["name"], view["rate"], view["burst"]) for view in throttles] == [("api", 10, 6)]
            await cluster["a"].done("config/set", {"values": dict.fromkeys(API)})
            await until(lambda: shares(cluster) == [(float("inf"), 1 << 60)] * 3, "it is lifted")

    run(main())


def test_most_of_a_throttle_goes_where_messages_wait_for_it() -> None:
    """A group that is held back by it gets nearly all, and gives it up when another is."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=QUICK_MS) as cluster:
            await made(cluster, *QUEUES)
            await cluster["a"].done("config/set", {"values": API})
            await until(lambda: is_all(cluster, 100, 30), "all of it is shared out")
            for place, queue in ((0, "orders"), (2, "jobs")):
                consuming = asyncio.create_task(consume_all(cluster["b"], queue))
                await until(partial(has_most, cluster, place), "it is where it is needed")
                assert sum(rate for rate, _ in shares(cluster)) <= 100
                consuming.cancel()
                await asyncio.gather(consuming, return_exceptions=True)

    run(main())


def test_groups_share_a_throttle_by_the_weights_of_their_queues() -> None:
    """A queue with weight 3 gets three times as much as one of another group, though that one's backlog is longer."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=QUICK_MS) as cluster:
            await made(cluster, *QUEUES)
            await cluster["a"].done("config/set", {"values": API | {"throttle_weight:orders:api": "3"}})
            await until(lambda: is_all(cluster, 100, 30), "all of it is shared out")
            consuming = [asyncio.create_task(consume_all(cluster["b"], queue)) for queue in ("orders", "jobs", "jobs")]
            await until(lambda: [rate for rate, _ in shares(cluster)] == [71.25, 5, 23.75], "it is divided by weight")
            for task in consuming:
                task.cancel()
            await asyncio.gather(*consuming, return_exceptions=True)

    run(main())


def test_what_moves_keeps_within_the_throttle() -> None:
    """After a move, and after a node has died, the shares still add up to the whole, and a new group has its part."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=SOON_MS) as cluster:
            await made(cluster, *QUEUES[:2])
            await cluster["a"].done("config/set", {"values": API})
            await made(cluster, QUEUES[2])
            await until(lambda: is_all(cluster, 100, 30), "all of it is shared out")
            before, (to,) = cluster.owner("orders"), cluster.others("orders")
            await before.done("cluster/move", {"queue": "orders", "node": to.name})
            await until(lambda: to.groups.has("orders"), "it has moved")
            await until(lambda: is_all(cluster, 100, 30), "all of it is shared out again")
            dead = cluster.owner("orders")
            heir = next(member for member in cluster.members.values() if member is not dead)
            await dead.freeze()
            await until(lambda: heir.groups.has("orders"), "it is taken over")
            cluster.members.pop(dead.name)
            await until(lambda: is_all(cluster, 100, 30), "the heir has all of it")
            await dead.stop()

    run(main())


def test_a_group_is_closed_to_a_throttle_before_it_has_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is made while nothing was granted to it uses nothing, rather than everything, when it begins."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await cluster["a"].done("config/set", {"values": API})
            groups, found = cluster["a"].groups, []
            add = groups.add

            def adding(group: str, broker: AsyncBroker) -> None:
                found.append(share_in(broker._engine.ledger.config, "api"))
                add(group, broker)

            monkeypatch.setattr(groups, "add", adding)
            await made(cluster, "orders")
            assert found == [Share(0, 0)]

    run(main())


PATTERN = {"throttle:tenant-*:rate": "12", "throttle:tenant-*:burst": "12"}


async def leased(member: Member, queue: str) -> int:
    """Return how many messages are handed out now."""
    return len((await member.done("queue/dequeue", {"queue": queue, "count": 100}))["deliveries"])


def test_a_pattern_of_throttles_limits_each_name_in_the_cluster() -> None:
    """Each group has a part of the pattern for every tenant, who gets no more than the whole over all."""

    async def main() -> None:
        async with cluster_of("ab", heartbeat_timeout_ms=QUICK_MS) as cluster:
            await made(cluster, *QUEUES)
            await cluster["a"].done("config/set", {"values": PATTERN})
            await until(lambda: shares(cluster, "tenant-*") == [(4, 4)] * 3, "it is shared out")
            begun = asyncio.get_running_loop().time()
            news = [
                {"payload": "eA==", "throttles": [tenant]} for tenant in ("tenant-a", "tenant-b") for _ in range(99)
            ]
            for queue in QUEUES:
                await cluster["b"].done("queue/enqueue", {"queue": queue, "messages": news})
            counts = dict.fromkeys(QUEUES, 0)
            while min(counts.values()) < 4:  # two of each tenant
                for queue in QUEUES:
                    counts[queue] += await leased(cluster["a"], queue)
                await asyncio.sleep(0)
            passed = asyncio.get_running_loop().time() - begun
            assert sum(counts.values()) <= 2 * (12 + 12 * passed)

    run(main())


def test_a_pattern_is_listed_lifted_and_overridden_by_names() -> None:
    """The cluster lists one row for a pattern; a name of its own is divided by itself, with settings of the pattern."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await made(cluster, *QUEUES)
            values = PATTERN | {"throttle:tenant-a:rate": "90", "throttle:tenant-*:charge": "cost"}
            await cluster["a"].done("config/set", {"values": values})

            def is_divided() -> bool:
                found = (shares(cluster, "tenant-*"), shares(cluster, "tenant-a"))
                return [sum(rate for rate, _ in each) for each in found] == [12, 90]

            await until(is_divided, "both are shared out")
            assert sum(burst for _, burst in shares(cluster, "tenant-a")) == 12, "the burst is that of the pattern"
            listed = (await cluster["b"].done("config/throttles"))["throttles"]
            assert [(view["name"], view["rate"], view["burst"], view.get("buckets")) for view in listed] == [
                ("tenant-*", 12, 12, 0),
                ("tenant-a", 90, 12, None),
            ]
            assert all(view["charges_cost"] for view in listed)
            await cluster["b"].done("config/set", {"values": dict.fromkeys(values)})
            await until(lambda: shares(cluster, "tenant-*") == [(float("inf"), 1 << 60)] * 3, "it is lifted")

    run(main())
