"""A queue that is split is used by its plain name as before, at every node, and its partitions are on all of them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from fairlane.model.partitions import partition_of_id, partition_of_key
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Cluster, Member, cluster_of
from tests.unit.server.local_server import run

TENANTS = [f"tenant-{number}" for number in range(12)]


def message(key: str, text: str = "hello") -> dict[str, Any]:
    return {"payload": base64.b64encode(text.encode()).decode(), "fairness_key": key}


async def split(cluster: Cluster, queue: str, partitions: int, **policy: Any) -> None:
    """Make a queue, and split it."""
    await cluster["a"].done("queues/create", {"queue": queue, "policy": policy})
    answer = await cluster["a"].done("cluster/split", {"queue": queue, "partitions": partitions})
    assert (answer["partitions"], answer["made"]) == (partitions, partitions)


async def everybody_knows(cluster: Cluster, queue: str, made: int) -> None:
    """Wait until each node has read on the board how a queue is split."""

    def knows(member: Member) -> bool:
        found = member.groups.split_of(queue)
        return (1 if found is None else found.made) == made

    await until(lambda: all(knows(member) for member in cluster.members.values()), "all nodes know of the split")


async def taken(member: Member, queue: str, **more: Any) -> list[dict[str, Any]]:
    """Lease until nothing is left."""
    found: list[dict[str, Any]] = []
    while some := (await member.done("queue/dequeue", {"queue": queue, "count": 100, **more}))["deliveries"]:
        found += some
    return found


def receipts(deliveries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": delivery["id"], "token": delivery["token"]} for delivery in deliveries]


def test_a_split_queue_is_used_as_before() -> None:
    """Any node takes messages under the plain name, hands out all of them under it, and acks them."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await split(cluster, "orders", 4)
            await everybody_knows(cluster, "orders", 4)
            owners = {cluster.owner(f"orders~{at}").name for at in range(4)}
            assert owners == {"a", "b", "c"}
            sent = [message(key) for key in TENANTS]
            ids = [row["id"] for row in (await cluster["b"].done("queue/enqueue", body("orders", sent)))["results"]]
            for key, message_id in zip(TENANTS, ids, strict=True):
                assert partition_of_id(message_id) == partition_of_key(key, 4)
            deliveries = await taken(cluster["c"], "orders")
            assert {delivery["id"] for delivery in deliveries} == set(ids)
            assert {delivery["queue"] for delivery in deliveries} == {"orders"}
            acked = await cluster["a"].done("queue/ack", {"queue": "orders", "receipts": receipts(deliveries)})
            assert acked["results"] == [{}] * 12
            again = await cluster["b"].post("queue/ack", {"queue": "orders", "receipts": receipts(deliveries)})
            assert again.status_code == 404
            assert {row["error"]["code"] for row in again.json()["results"]} == {"message_not_found"}

    run(main())


def body(queue: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"queue": queue, "messages": messages}


def test_what_was_there_before_a_split_stays_and_is_handed_out() -> None:
    """Messages and leases of the queue as it was are those of its first partition."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            await cluster["a"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            (first,) = (await cluster["a"].done("queue/dequeue", {"queue": "orders"}))["deliveries"]
            await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 3})
            acked = await cluster["b"].done("queue/ack", {"queue": "orders", "receipts": receipts([first])})
            assert acked["results"] == [{}]
            assert len(await taken(cluster["b"], "orders")) == 11

    run(main())


def test_a_wait_ends_with_what_any_partition_gets() -> None:
    """A lease that waits is at all partitions, and gets what comes to one of them; nothing else is leased."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 4)
            await everybody_knows(cluster, "orders", 4)
            for key in TENANTS:
                waiting = asyncio.create_task(
                    cluster["a"].done("queue/dequeue", {"queue": "orders", "wait_ms": 10_000})
                )
                await until(lambda: waiters(cluster, "orders", 4) == 4, "it waits at each")
                await cluster["b"].done("queue/enqueue", body("orders", [message(key)]))
                (delivery,) = (await waiting)["deliveries"]
                assert (delivery["queue"], delivery["fairness_key"]) == ("orders", key)
                await until(lambda: waiters(cluster, "orders", 4) == 0, "nobody waits any more")
                await cluster["b"].done("queue/ack", {"queue": "orders", "receipts": receipts([delivery])})

    run(main())


def waiters(cluster: Cluster, queue: str, made: int) -> int:
    """Return how many wait at all partitions together."""
    found = 0
    for at in range(made):
        served = f"{queue}~{at}" if at else queue
        found += cluster.owner(served).groups.of(served)._engine.consumers.waiting(served)
    return found


def test_who_follows_is_told_how_the_queue_is_split() -> None:
    """A caller that follows is refused with the split, and asks partitions by name, each at its owner."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            for member in cluster.members.values():
                for path, request in (
                    ("queue/enqueue", body("orders", [message("x")])),
                    ("queue/dequeue", {"queue": "orders"}),
                    ("queue/ack", {"queue": "orders", "receipts": []}),
                    ("queue/nack", {"queue": "orders", "receipts": []}),
                    ("queue/extend", {"queue": "orders", "receipts": []}),
                    ("queue/subscribe", {"queue": "orders"}),
                ):
                    refusal = await member.post(path, request, x_fairlane_follows="1")
                    error = refusal.json()["error"]
                    assert (refusal.status_code, error["code"]) == (409, "queue_split"), path
                    assert error["split"] == {"partitions": 2, "made": 2, "by_message": True}
            for at in range(2):
                name = f"orders~{at}"
                owner = cluster.owner(name)
                await owner.done("queue/enqueue", body(name, [message("x")]), x_fairlane_follows="1")
                leased = await owner.done("queue/dequeue", {"queue": name}, x_fairlane_follows="1")
                (delivery,) = leased["deliveries"]
                assert partition_of_id(delivery["id"]) == at
                acking = {"queue": name, "receipts": receipts([delivery])}
                assert await owner.done("queue/ack", acking, x_fairlane_follows="1") == {"results": [{}]}

    run(main())


def test_large_payloads_go_to_the_partition_of_their_key() -> None:
    """Pieces and message are at the node that has the key, whichever node is asked, and are read from there."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "films", 3)
            await everybody_knows(cluster, "films", 3)
            payload = bytes(range(250)) * 4_400
            for at, tenant in enumerate(TENANTS[:4]):
                member = cluster["ab"[at % 2]]
                begun = await member.done("queue/upload/begin", {"queue": "films", "fairness_key": tenant})
                size = begun["piece_bytes"]
                for index in range(-(-len(payload) // size)):
                    data = base64.b64encode(payload[index * size : (index + 1) * size]).decode()
                    piece = {"queue": "films", "id": begun["id"], "index": index, "data": data}
                    await cluster["ba"[at % 2]].done("queue/upload/piece", piece)
                new = {"upload": begun["id"], "fairness_key": tenant}
                answer = await member.done("queue/enqueue", {"queue": "films", "messages": [new]})
                message_id = answer["results"][0]["id"]
                assert partition_of_id(message_id) == partition_of_key(tenant, 3)
                asked = {"queue": "films", "id": message_id, "offset": size + 1, "count": 9}
                found = await cluster["ba"[at % 2]].done("queue/payload", asked)
                assert base64.b64decode(found["data"]) == payload[size + 1 : size + 10]
            assert (await cluster["a"].done("queue/upload/list", {"queue": "films"}))["uploads"] == []

    run(main())
