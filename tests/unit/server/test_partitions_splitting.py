"""Splitting on bad days: what fails half way is finished by asking again, and nothing is lost meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.model.partitions import Split, partition_of_key
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import SOON_MS, Cluster, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, body, everybody_knows, message, receipts, split, taken


async def asked_to_split(cluster: Cluster, name: str, partitions: int) -> dict[str, Any]:
    """Split ``orders``, and return the answer."""
    answer: dict[str, Any] = await cluster[name].done("cluster/split", {"queue": "orders", "partitions": partitions})
    return answer


def test_two_splits_at_once_end_with_all_partitions_that_either_made() -> None:
    """Nodes that split the same queue at the same time leave one split, in which nothing is forgotten."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            wanted = (("a", 2), ("b", 5), ("c", 3), ("a", 4))
            await asyncio.gather(*(asked_to_split(cluster, name, partitions) for name, partitions in wanted))
            seen = (await cluster["a"].done("cluster"))["splits"]["orders"]
            assert seen["partitions"] in {partitions for _, partitions in wanted}
            assert (await asked_to_split(cluster, "b", 5))["made"] == 5
            await everybody_knows(cluster, "orders", 5)
            await cluster["c"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            assert len(await taken(cluster["a"], "orders")) == 12

    run(main())


def test_growing_and_shrinking_at_once_loses_nothing() -> None:
    """While nodes let partitions go and make them anew, every message that was taken in is handed out."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await split(cluster, "orders", 3)
            sent: set[str] = set()

            async def produce(name: str) -> None:
                for _ in range(20):
                    answer = await cluster[name].done(
                        "queue/enqueue", body("orders", [message(key) for key in TENANTS])
                    )
                    sent.update(row["id"] for row in answer["results"] if row.get("id"))

            async def resplit() -> None:
                for partitions in (1, 4, 2, 1, 3):
                    await asked_to_split(cluster, "b", partitions)

            got: set[str] = set()

            async def consume(name: str) -> None:
                while not produced.done() or len(got) < len(sent):
                    request = {"queue": "orders", "count": 50, "wait_ms": 200}
                    deliveries = (await cluster[name].done("queue/dequeue", request))["deliveries"]
                    acking = {"queue": "orders", "receipts": receipts(deliveries)}
                    await cluster[name].done("queue/ack", acking)
                    got.update(delivery["id"] for delivery in deliveries)

            produced = asyncio.gather(produce("a"), produce("c"), resplit())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(produced, consume("a"), consume("b"))
            assert len(sent) == 2 * 20 * 12
            assert got == sent

    run(main())


def test_a_split_that_fails_half_way_is_finished_by_another() -> None:
    """Until all partitions are there the queue is whole; once the store answers, the same request finishes it."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            cluster.shelves.failing.add("orders~2")
            splitting = asyncio.create_task(cluster["a"].post("cluster/split", {"queue": "orders", "partitions": 4}))
            await until(
                lambda: any(member.serves("orders~3") for member in cluster.members.values()), "others are there"
            )
            await cluster["b"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            assert (await cluster["b"].done("queue/stats", {"queue": "orders"}))["partitions"] == 1
            splitting.cancel()
            cluster.shelves.failing.clear()
            answer = await asked_to_split(cluster, "b", 4)
            assert (answer["partitions"], answer["made"]) == (4, 4)
            await everybody_knows(cluster, "orders", 4)
            assert len(await taken(cluster["a"], "orders")) == 12

    run(main())


def test_a_node_that_dies_leaves_its_partitions_to_others() -> None:
    """Messages of the dead node's partitions are handed out under the plain name once others have taken over."""

    async def main() -> None:
        async with cluster_of("abc", heartbeat_timeout_ms=SOON_MS) as cluster:
            await split(cluster, "orders", 6)
            await everybody_knows(cluster, "orders", 6)
            await cluster["a"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            await cluster["c"].freeze()
            left = {name: member for name, member in cluster.members.items() if name != "c"}
            found: list[dict[str, Any]] = []

            async def take() -> None:
                while len(found) < 12:
                    answer = await left["a"].post("queue/dequeue", {"queue": "orders", "count": 12, "wait_ms": 500})
                    found.extend(answer.json().get("deliveries", []))

            await asyncio.wait_for(take(), PATIENCE_S)
            assert {delivery["fairness_key"] for delivery in found} == set(TENANTS)

    run(main())


def test_of_a_batch_only_what_a_missing_partition_has_is_refused() -> None:
    """While one partition can't be reached, the messages of the others are enqueued, and acked."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 4)
            await everybody_knows(cluster, "orders", 4)
            lost = next(key for key in TENANTS if partition_of_key(key, 4) == 2)
            cluster.shelves.failing.add("orders~2")
            answer = await cluster["a"].done(
                "queue/enqueue", body("orders", [message(key) for key in TENANTS]) | {"wait_ms": 0}
            )
            for key, row in zip(TENANTS, answer["results"], strict=True):
                assert (row.get("id") is None) == (partition_of_key(key, 4) == partition_of_key(lost, 4))
            refusals = [row["error"] for row in answer["results"] if row.get("error")]
            assert {error["code"] for error in refusals} <= {"store_failed", "queue_moving"}
            alone = await cluster["a"].post("queue/enqueue", body("orders", [message(lost)]) | {"wait_ms": 0})
            assert alone.status_code == 503
            deliveries = (await cluster["b"].done("queue/dequeue", {"queue": "orders", "count": 100}))["deliveries"]
            assert deliveries
            acked = await cluster["b"].done("queue/ack", {"queue": "orders", "receipts": receipts(deliveries)})
            assert acked["results"] == [{}] * len(deliveries)
            counted = await cluster["b"].post("queue/stats", {"queue": "orders"})
            assert counted.status_code == 503
            cluster.shelves.failing.clear()

    run(main())


def test_nodes_that_know_of_another_split_find_out() -> None:
    """A node that has not heard of a split, or of its end, looks at the board when it is contradicted."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await split(cluster, "orders", 3)
            await everybody_knows(cluster, "orders", 3)
            messages = [message(key) for key in TENANTS]
            for member in cluster.members.values():
                if member.serves("orders"):
                    continue
                member.groups._splits = {}
                answer = await member.done("queue/enqueue", body("orders", messages))
                assert all(row.get("id") for row in answer["results"])
                member.groups._splits = {"orders": Split(partitions=9, made=9)}
                answer = await member.done("queue/enqueue", body("orders", messages))
                assert all(row.get("id") for row in answer["results"])
                member.groups._splits = {"orders": Split(partitions=9, made=9)}
                assert len(await taken(member, "orders")) == 24
                member.groups._splits = {"orders": Split(partitions=9, made=9)}
                assert (await member.done("queue/stats", {"queue": "orders"}))["partitions"] == 3
                await member.done("queues/delete", {"queue": "orders"})
                await split(cluster, "orders", 3)
                await everybody_knows(cluster, "orders", 3)

    run(main())


@pytest.mark.parametrize(
    ("queue", "partitions"), [("orders", 0), ("orders", 65), ("orders.dlq", 2), ("orders~1", 2), ("q" * 122, 2)]
)
def test_what_can_not_be_split_is_refused(queue: str, partitions: int) -> None:
    """Numbers out of range, dead letters, partitions, and names that leave no room for a partition's."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            await cluster["a"].done("queues/create", {"queue": "q" * 122})
            refused = await cluster["a"].post("cluster/split", {"queue": queue, "partitions": partitions})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")

    run(main())


def test_the_longest_name_that_may_be_split_is_split() -> None:
    """Its last partition and the dead letters of it have names as long as names may be."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            queue = "q" * 121
            await split(cluster, queue, 2)
            await cluster["a"].done("queue/enqueue", body(queue, [message(key) for key in TENANTS]))
            assert len(await taken(cluster["a"], queue)) == 12
            missing = await cluster["a"].post("cluster/split", {"queue": "nothing", "partitions": 2})
            assert missing.json()["error"]["code"] == "queue_not_found"
            for name, group in (("a~1", None), ("b", "b~1")):
                refused = await cluster["a"].post("queues/create", {"queue": name, "group": group})
                assert refused.json()["error"]["code"] == "invalid_argument"

    run(main())
