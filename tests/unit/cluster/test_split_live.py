"""What the live feed shows of queues that are split: each partition by its own name, at every node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from fairlane.model.partitions import partition_of_key
from tests.kit.waiting import PATIENCE_S
from tests.unit.cluster.in_process import Member, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, everybody_knows, message, split


async def pictures(member: Member, query: str) -> AsyncIterator[dict[str, Any]]:
    """Look at the feed of a node until nobody wants to see more."""
    async with asyncio.timeout(PATIENCE_S), member.http.stream("GET", f"/v1/live?{query}") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield msgspec.json.decode(line.removeprefix("data: "))


def test_partitions_are_watched_by_name_at_every_node() -> None:
    """Partitions are listed, but no empty dead-letter queues; a watched one has its keys and its own name."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await split(cluster, "orders", 2)
            await everybody_knows(cluster, "orders", 2)
            messages = [message(key) for key in TENANTS]
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": messages})
            names = ["orders~0", "orders~1"]
            for at, name in enumerate(("orders~0", "orders~1")):
                keys = sorted(key for key in TENANTS if partition_of_key(key, 2) == at)
                for member in cluster.members.values():
                    listed = shown = None
                    async for picture in pictures(member, f"queue={name}"):
                        listed = sorted(queue["name"] for queue in picture["queues"])
                        shown = picture.get("queue") or shown
                        if listed == names and shown is not None:
                            break
                    assert shown is not None
                    assert shown["name"] == name
                    assert sorted(key["key"] for key in shown["keys"]) == keys

    run(main())


def test_a_split_queue_is_not_watched_as_a_whole() -> None:
    """Who asks for it is told that it is split, and who watched it before is shown no more of it."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            node = cluster["a"]
            await node.done("queues/create", {"queue": "orders"})
            feed = pictures(node, "queue=orders")
            assert (await anext(feed))["queue"]["name"] == "orders"
            await node.done("cluster/split", {"queue": "orders", "partitions": 2})
            async with asyncio.timeout(PATIENCE_S):
                assert [picture["queue"]["name"] async for picture in feed if "queue" in picture] in ([], ["orders"])
            refused = await node.http.get("/v1/live?queue=orders")
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "queue_split")

    run(main())
