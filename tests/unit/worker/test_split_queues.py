"""Tests of a worker on a split queue with an unreachable partition or a dead node."""

from __future__ import annotations

import asyncio

from fairlane.client import AsyncClient, NewMessage
from fairlane.core.ledger import Queue
from fairlane.model.partitions import partition_of_id, partition_of_key, served_name
from fairlane.worker import Worker, WorkMessage
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import SOON_MS, Cluster, cluster_of

AWAY, HERE = (next(key for key in map(str, range(100)) if partition_of_key(key, 3) == at) for at in (1, 2))
"""A fairness key of the second partition, and one of the third."""


async def prepared(cluster: Cluster, client: AsyncClient) -> None:
    """Split ``orders`` so that each of three nodes has a partition."""
    await client.create_queue("orders")
    await cluster["a"].done("cluster/split", {"queue": "orders", "partitions": 3})
    for at, name in enumerate("abc"):
        await cluster["a"].done("cluster/move", {"queue": f"orders~{at}", "node": name})
        await until(lambda at=at, name=name: cluster[name].serves(f"orders~{at}"), "it is there")  # type: ignore[misc]


def test_leases_in_other_partitions_are_kept_while_one_is_away() -> None:
    """A handler whose partition is unreachable for a whole lease is stopped; the others finish and acknowledge."""

    async def main() -> None:
        async with cluster_of("abc") as cluster, AsyncClient(cluster["a"].address) as client:
            await prepared(cluster, client)
            await client.enqueue_many("orders", [NewMessage(payload=b"x", fairness_key=key) for key in (AWAY, HERE)])
            worker = Worker(cluster["a"].address)
            begun, lost, finished, may_finish = set[int](), list[int](), list[int](), asyncio.Event()

            @worker.handler("orders", concurrency=4, visibility_ms=1_500)
            async def handle(message: WorkMessage) -> None:
                at = partition_of_id(message.id)
                begun.add(at)
                try:
                    await may_finish.wait()
                except asyncio.CancelledError:
                    lost.append(at)
                    raise
                finished.append(at)

            running = asyncio.ensure_future(worker.run())
            await until(lambda: begun == {1, 2}, "both have begun")
            cluster.shelves.failing.add("orders~1")
            await cluster["a"].done("cluster/move", {"queue": "orders~1", "node": "a"})
            await until(lambda: 1 in lost, "the lease of one has ended")
            assert lost == [1]
            may_finish.set()
            await until(lambda: 2 in finished, "the other has finished")
            cluster.shelves.failing.clear()
            await until(lambda: 1 in finished, "the one has come again")
            worker.stop()
            await running
            view = await client.queue("orders")
            assert (finished, lost, view.waiting, view.leased) == ([2, 1], [1], 0, 0)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_what_no_handler_has_seen_comes_again_when_a_node_dies() -> None:
    """Messages that waited in the worker are delivered again by the node that takes over."""

    async def main() -> None:
        async with (
            cluster_of("abc", heartbeat_timeout_ms=SOON_MS) as cluster,
            AsyncClient(cluster["a"].address) as client,
        ):
            await prepared(cluster, client)
            sent = [NewMessage(payload=b"%d" % number, fairness_key=(AWAY, HERE)[number % 2]) for number in range(20)]
            await client.enqueue_many("orders", sent)
            worker = Worker(cluster["a"].address)
            seen, may_go_on = list[bytes](), asyncio.Event()

            @worker.handler("orders", concurrency=1, credit=60, visibility_ms=600_000)
            async def handle(message: WorkMessage) -> None:
                seen.append(message.payload)
                await may_go_on.wait()

            running = asyncio.ensure_future(worker.run())
            await until(lambda: sum(queue.leased for queue in served(cluster)) == 20, "the worker has all of them")
            dead = cluster.members.pop("b")
            await dead.freeze()
            await until(lambda: any(member.serves("orders~1") for member in cluster.members.values()), "another has it")
            assert dead._server is not None
            for connection in list(dead._server.server_state.connections):
                connection.transport.abort()
            may_go_on.set()
            await until(lambda: [len(queue.messages) for queue in served(cluster)] == [0] * 3, "all have been handled")
            worker.stop()
            await running
            assert len(set(seen)) == 20
            await dead.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def served(cluster: Cluster) -> list[Queue]:
    """Return the partitions that a node serves now; one that is being taken over is missing."""
    names = [f"orders~{at}" for at in range(3)]
    found = [(name, member) for name in names for member in cluster.members.values() if member.serves(name)]
    return [member.groups.of(name)._engine.ledger.queues[served_name(name)] for name, member in found]
