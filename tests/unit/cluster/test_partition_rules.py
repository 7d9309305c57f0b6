"""What is said for a queue holds in all of its partitions: weights, caps, throttles, rights."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairlane.cluster.budgets import share_in
from fairlane.gateway.caller import Caller
from fairlane.model.partitions import partition_of_key
from fairlane.verbs.keys import CreateKey, Grant
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Cluster, Member, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import everybody_knows, message, split

TENANTS = [f"tenant-{number}" for number in range(8)]
"""Of two partitions, each has more than one of them."""


async def leased(member: Member, queue: str, count: int) -> Counter[str]:
    """Lease from one queue or partition, and return how many were of each key."""
    answer = await member.done("queue/dequeue", {"queue": queue, "count": count})
    return Counter(delivery["fairness_key"] for delivery in answer["deliveries"])


async def filled(cluster: Cluster, each: int, **terms: Any) -> None:
    """Create a queue with two partitions, and enqueue a number of messages for every tenant."""
    await everybody_knows(cluster, "orders", 2)
    messages = [message(key) | terms for key in TENANTS for _ in range(each)]
    answer = await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": messages})
    assert all("id" in row for row in answer["results"])


def test_weights_and_caps_of_the_config_hold_in_every_partition() -> None:
    """Set once under the name of the queue, they act on what waits, whichever partition and node it waits at."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await filled(cluster, 30)
            for at in range(2):
                name, owner = f"orders~{at}", cluster.owner(f"orders~{at}")
                heavy, held, *others = [key for key in TENANTS if partition_of_key(key, 2) == at]
                values = {f"weight:orders:{heavy}": "3", f"cap:orders:{held}": "2"}
                await cluster["a"].done("config/set", {"values": values})
                broker = owner.groups.of(name)
                await until(lambda broker=broker, key=held: _has_cap(broker, key), "the owner has it")  # type: ignore[misc] # a default
                found = await leased(cluster["b"], name, 2 * (3 + len(others)) + 2)
                assert found == {heavy: 6, held: 2} | dict.fromkeys(others, 2)

    run(main())


def _has_cap(broker: Any, key: str) -> bool:
    return f"cap:orders:{key}" in broker._engine.ledger.config


def test_a_throttle_of_the_queues_own_is_one_for_all_partitions() -> None:
    """Its rate and burst are shared out over the partitions under the name of the queue, and messages pass at it."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            values = {"throttle:orders/api:rate": "100", "throttle:orders/api:burst": "10"}
            await cluster["a"].done("config/set", {"values": values})
            await split(cluster, "orders", 2, throttle_scope="queue")
            await filled(cluster, 10, throttles=["api"])
            await until(lambda: shared_out(cluster) == (100.0, 10), "all of it is shared out, and no more")
            found: list[Any] = []
            while len(found) < 30:
                request = {"queue": "orders", "count": 100, "wait_ms": 1_000}
                found += (await cluster["b"].done("queue/dequeue", request))["deliveries"]
            assert shared_out(cluster)[0] <= 100.0
            assert {partition_of_key(delivery["fairness_key"], 2) for delivery in found} == {0, 1}

    run(main())


def shared_out(cluster: Cluster) -> tuple[float, int]:
    """Return what rate and burst the partitions have together of the throttle of their queue."""
    brokers = [cluster.owner(name).groups.of(name) for name in ("orders~0", "orders~1")]
    shares = [share_in(broker._engine.ledger.config, "orders/api") for broker in brokers]
    known = [share for share in shares if share is not None]
    assert all(throttle.name == "orders/api" for broker in brokers for throttle in broker._engine.schedule.throttles)
    return sum(share.rate for share in known) / 1e6, sum(share.burst for share in known)


def test_rights_on_a_queue_are_rights_on_its_partitions_at_every_node() -> None:
    """Who may rule a queue may split it; who may use it may go on, by its name and by those of partitions."""

    async def main() -> None:
        async with cluster_of("ab", requires_auth=True) as cluster:
            ruler = await key_for(cluster, "ruler", Grant(right="admin", queues="orders*"))
            user = await key_for(
                cluster, "user", Grant(right="produce", queues="orders"), Grant(right="consume", queues="orders")
            )
            other = await key_for(cluster, "other", Grant(right="admin", queues="others*"))
            await until(lambda: len(cluster["b"].server.api_keys) == 3, "both nodes know them")
            await cluster["a"].done("queues/create", {"queue": "orders"}, authorization=ruler)
            request = {"queue": "orders", "partitions": 2}
            assert (await cluster["b"].post("cluster/split", request, authorization=other)).status_code == 403
            assert (await cluster["b"].post("cluster/split", request, authorization=user)).status_code == 403
            await cluster["b"].done("cluster/split", request, authorization=ruler)
            await everybody_knows(cluster, "orders", 2)
            messages = [message(key) for key in TENANTS]
            for member in cluster.members.values():
                await member.done("queue/enqueue", {"queue": "orders", "messages": messages}, authorization=user)
                for name in ("orders", "orders~0", "orders~1"):
                    found = await member.done("queue/dequeue", {"queue": name}, authorization=user)
                    assert len(found["deliveries"]) == 1
                    refused = await member.post("queue/dequeue", {"queue": name}, authorization=other)
                    assert refused.status_code == 403

    run(main())


async def key_for(cluster: Cluster, name: str, *grants: Grant) -> str:
    """Make a key, and return the header that shows it."""
    made = await cluster["a"].server.api_keys.create(CreateKey(name=name, grants=grants), Caller())
    return f"Bearer {made.key}"
