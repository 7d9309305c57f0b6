"""Streams and waits at a queue that is split: each partition has its own, and whoever was there before asks anew."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc

from fairlane.model.partitions import partition_of_id, partition_of_key
from fairlane.server.interfaces.grpc_server import GrpcInterface
from fairlane.verbs.keys import Grant
from fairlane.wire.frames import Answer, Deliver, Ended, Refused, frames_of
from fairlane.wire.grpc import broker_pb2, broker_pb2_grpc
from tests.kit.waiting import PATIENCE_S, until
from tests.unit.cluster.in_process import Member, cluster_of
from tests.unit.cluster.test_moving import call, next_frame, stream_to
from tests.unit.cluster.test_partition_rules import key_for
from tests.unit.server.grpc_client import refused, stub, trailing
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, body, everybody_knows, message, receipts, split, waiters

HERE = {"x-fairlane-follows": "1"}


def elsewhere_than_first(partitions: int) -> str:
    """Return a key of another partition than the first."""
    return next(key for key in TENANTS if partition_of_key(key, partitions) > 0)


async def frames_until(socket: Any, kinds: Any, count: int) -> list[Any]:
    """Return so many frames of some kinds, which may come together."""
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += [frame for frame in frames_of(await socket.recv()) if isinstance(frame, kinds)]
    return found


def test_a_lease_that_waits_while_its_queue_is_split_gets_what_comes_to_any_partition() -> None:
    """It began at the whole queue, at its owner and at another node, over HTTP, and ends at a new partition."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            for member in cluster.members.values():
                asking = member.done("queue/dequeue", {"queue": "orders", "wait_ms": 20_000})
                waiting = asyncio.create_task(asking)
                await until(lambda: waiters(cluster, "orders", 1) == 1, "it waits")
                await cluster["b"].done("cluster/split", {"queue": "orders", "partitions": 3})
                await until(lambda: waiters(cluster, "orders", 3) == 3, "it waits at all partitions")
                await cluster["b"].done("queue/enqueue", body("orders", [message(elsewhere_than_first(3))]))
                (delivery,) = (await waiting)["deliveries"]
                assert partition_of_id(delivery["id"]) > 0
                acking = {"queue": "orders", "receipts": receipts([delivery])}
                assert (await member.done("queue/ack", acking))["results"] == [{}]
                whole = await cluster["a"].done("cluster/split", {"queue": "orders", "partitions": 1})
                assert whole["made"] == 1
                await everybody_knows(cluster, "orders", 1)

    run(main())


def test_a_channel_ends_with_the_split_and_is_opened_at_each_partition() -> None:
    """What it has stays leased, and is acked by the plain name; partitions have channels, which a split ends too."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            node = cluster["a"]
            await node.done("queues/create", {"queue": "orders"})
            await node.done("queue/enqueue", body("orders", [message("x")]))
            async with stream_to(node, HERE) as socket:
                await socket.send(call(1, "consume", {"queue": "orders", "credit": 10}))
                (before,) = (await next_frame(socket, Deliver)).deliveries
                await socket.send(call(9, "lease", {"queue": "orders", "wait_ms": 20_000}))
                await until(lambda: waiters(cluster, "orders", 1) == 2, "the lease waits too")
                await node.done("cluster/split", {"queue": "orders", "partitions": 2})
                frames = await frames_until(socket, (Ended, Refused), 2)
                assert {frame.error.code for frame in frames} == {"queue_split"}
                assert {frame.error.split.made for frame in frames} == {2}
                await socket.send(call(2, "consume", {"queue": "orders", "credit": 10}))
                assert (await next_frame(socket, Refused)).error.code == "queue_split"
                for at in range(2):
                    await socket.send(call(3 + at, "consume", {"queue": f"orders~{at}", "credit": 10}))
                    await next_frame(socket, Answer, number=3 + at)
                await node.done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
                delivered = await frames_until(socket, Deliver, 2)
                got = {delivery.id: frame.channel for frame in delivered for delivery in frame.deliveries}
                assert len(got) == 12
                assert all(channel == 3 + partition_of_id(message_id) for message_id, channel in got.items())
                await node.done("cluster/split", {"queue": "orders", "partitions": 3})
                assert {frame.channel for frame in await frames_until(socket, Ended, 2)} == {3, 4}
                acking = {"queue": "orders", "receipts": receipts([{"id": before.id, "token": before.token}])}
                assert (await node.done("queue/ack", acking))["results"] == [{}]
            assert (await node.done("queue/stats", {"queue": "orders"}))["leased"] == 12

    run(main())


def test_http_streams_are_those_of_partitions() -> None:
    """A subscription and a watch are refused by the plain name, go by a partition's, and end when it is split anew."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            node = cluster["a"]
            await split(cluster, "orders", 2)
            for request in (
                node.http.post("/v1/queue/subscribe", json={"queue": "orders"}),
                node.http.get("/v1/queue/watch?queue=orders"),
                node.http.get("/v1/journal?queue=orders"),
            ):
                assert (await request).json()["error"]["code"] == "queue_split"
            await node.done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            for at in range(2):
                subscribing = node.http.stream(
                    "POST", "/v1/queue/subscribe", json={"queue": f"orders~{at}", "credit": 1}
                )
                watching = node.http.stream("GET", f"/v1/queue/watch?queue=orders~{at}")
                async with subscribing as subscription, watching as watch:
                    lines = subscription.aiter_lines()
                    assert partition_of_id(json.loads(await anext(lines))["id"]) == at
                    assert "available" in await anext(watch.aiter_lines())
                    await node.done("cluster/split", {"queue": "orders", "partitions": 3 + at})
                    async for _ in lines:
                        pass

    run(main())


def test_grpc_tells_of_the_split() -> None:
    """Consuming by the plain name is refused with the split; leasing by it, and consuming a partition, are not."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await split(cluster, "orders", 2)
            await cluster["a"].done("queue/enqueue", body("orders", [message(key) for key in TENANTS]))
            async with calling(cluster["a"]) as broker:
                for queue in ("orders", "orders~1"):
                    consuming = broker.Consume()
                    opening = broker_pb2.ConsumeRequest()
                    opening.open.queue = queue
                    await consuming.write(opening)
                    if queue == "orders":
                        error = await refused(consuming.read())
                        assert trailing(error)["fairlane-code"] == "queue_split"
                    else:
                        response = await consuming.read()
                        assert partition_of_id(response.deliveries[0].id) == 1
                    consuming.cancel()
                leased = await broker.Lease(broker_pb2.LeaseRequest(queue="orders", count=1))
                assert leased.deliveries[0].queue == "orders"

    run(main())


class calling:  # noqa: N801 - used as a function
    """Serve gRPC at a node, and call it."""

    def __init__(self, member: Member) -> None:
        self._interface = GrpcInterface(member.server)

    async def __aenter__(self) -> Any:
        port = self._interface.listen("127.0.0.1:0")
        await self._interface.start()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        return stub(broker_pb2_grpc.BrokerStub, self._channel)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
        await self._interface.stop()


def test_who_rules_a_queue_but_not_its_dead_letters_may_split_it() -> None:
    """A right on exactly the queue is enough, also where partitions are at other nodes; users go on with theirs."""

    async def main() -> None:
        async with cluster_of("abc", requires_auth=True) as cluster:
            ruler = await key_for(cluster, "ruler", Grant(right="admin", queues="orders"))
            rights = [
                Grant(right="produce", queues="orders", keys=("tenant-*",)),
                Grant(right="consume", queues="orders"),
            ]
            user = await key_for(cluster, "user", *rights)
            await until(
                lambda: all(len(each.server.api_keys) == 2 for each in cluster.members.values()), "all know them"
            )
            await cluster["a"].done("queues/create", {"queue": "orders"}, authorization=ruler)
            request = {"queue": "orders", "partitions": 4}
            await cluster["a"].done("cluster/split", request, authorization=ruler)
            await everybody_knows(cluster, "orders", 4)
            sending = body("orders", [message(key) for key in TENANTS])
            for member in cluster.members.values():
                await member.done("queue/enqueue", sending, authorization=user)
                strange = await member.post("queue/enqueue", body("orders", [message("x")]), authorization=user)
                assert strange.status_code == 403
                found = await member.done(
                    "queue/dequeue", {"queue": "orders", "wait_ms": 5_000, "count": 3}, authorization=user
                )
                acking = {"queue": "orders", "receipts": receipts(found["deliveries"])}
                assert {
                    str(row) for row in (await member.done("queue/ack", acking, authorization=user))["results"]
                } == {"{}"}
            await cluster["b"].done("queues/delete", {"queue": "orders"}, authorization=ruler)

    run(main())
