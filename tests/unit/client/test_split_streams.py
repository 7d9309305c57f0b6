"""Streams and workers on a queue that is split, while it is being split, and while its partitions move or fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fairlane.client import AsyncClient, AsyncMessage, AsyncStream
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.errors import QueueNotFound, QueueSplit
from fairlane.model.partitions import partition_of_id, partition_of_key
from fairlane.server.interfaces.grpc_server import GrpcInterface
from fairlane.worker import Worker
from tests.kit.waiting import pass_loop, until
from tests.unit.cluster.in_process import SOON_MS, Cluster, Member

from .splitting import TENANTS, addresses, messages, numbers, of_partition, run, split


class Consumed:
    """What a task has taken from a stream, and acked."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.attempts: Counter[int] = Counter()

    async def run(self, stream: AsyncStream) -> None:
        async for message in stream:
            assert message.queue == "orders"
            self.payloads.append(message.payload)
            self.attempts[message.attempt] += 1
            message.ack_soon()


@asynccontextmanager
async def consuming(client: AsyncClient, credit: int = 16) -> AsyncIterator[Consumed]:
    """Start a task that consumes ``orders``."""
    consumed = Consumed()
    async with client.consume("orders", credit=credit) as stream:
        task = asyncio.ensure_future(consumed.run(stream))
        yield consumed
        task.cancel()
        await asyncio.wait([task])
        assert await client.flush() == []


def has(consumed: Consumed, count: int) -> Callable[[], bool]:
    """Return a condition that holds once a number of messages were consumed."""
    return lambda: len(consumed.payloads) >= count


async def emptied(client: AsyncClient) -> bool:
    """Return whether a queue is empty."""
    return all(view.waiting == view.leased == 0 for view in await client.queues())


def test_a_stream_brings_what_comes_to_all_partitions() -> None:
    """Messages of all partitions come on one stream, each once, even with less credit than there are partitions."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        async with consuming(client, credit=2) as consumed:
            await client.enqueue_many("orders", messages(200))
            await until(has(consumed, 200), "all have come")
        assert numbers(consumed.payloads) == list(range(200))
        assert set(consumed.attempts) == {1}

    run(scenario)


def test_credit_is_divided_among_partitions() -> None:
    """With credit for eight messages, four partitions have two each in flight."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(120))
        async with client.consume("orders", credit=8) as stream:
            taken: list[AsyncMessage] = []
            while len(taken) < 8:
                taken.append(await anext(stream))
            assert Counter(partition_of_id(message.id) for message in taken) == {0: 2, 1: 2, 2: 2, 3: 2}
            await taken[0].ack()
            assert partition_of_id((await anext(stream)).id) == partition_of_id(taken[0].id)

    run(scenario)


def test_leaving_a_stream_gives_back_what_nobody_has_seen() -> None:
    """What a stream holds when it is left waits again in its partition, as no failed attempt."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(48))
        async with client.consume("orders", credit=48) as stream:
            first = await anext(stream)
            await until(lambda: len(stream._ready) >= 30, "many are held")
            await first.ack()
        held: list[AsyncMessage] = []
        while some := await client.lease("orders", 100):
            held += some
        assert numbers([message.payload for message in (first, *held)]) == list(range(48))
        assert {message.failures for message in held} == {0}

    run(scenario)


@pytest.mark.parametrize("to", ["split", "moved"])
def test_what_came_before_a_change_is_given_back_after_it(to: str) -> None:
    """What a stream holds when its queue is split or moves, and still holds when it is left, waits again at once."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(20))
        async with client.consume("orders", credit=20, visibility_ms=600_000) as stream:
            await until(lambda: len(stream._ready) == 20, "all are held")
            if to == "split":
                await split(cluster, client, 3)
            else:
                other = next(member for member in cluster.members.values() if not member.serves("orders"))
                await client.move_queue("orders", other.name)
                await until(lambda: other.serves("orders"), "it has moved")
            await until(lambda: stream._is_moved and not stream.is_interrupted, "it is open again")
            assert len(stream._ready) == 20
        held: list[AsyncMessage] = []
        while some := await client.lease("orders", 100):
            held += some
        assert numbers([message.payload for message in held]) == list(range(20))
        assert {message.failures for message in held} == {0}

    run(scenario, partitions=1)


def test_a_stream_goes_on_while_its_queue_is_split_and_split_again() -> None:
    """From one partition to three and to two, while messages come and are acked, each is seen exactly once."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with consuming(client) as consumed, client.producer("orders", batch=7, linger_ms=1) as producer:
            for message in messages(900):
                await producer.send(message)
                if message.payload == b"200":
                    await split(cluster, client, 3)
                if message.payload == b"500":
                    await split(cluster, client, 2)
                if message.payload == b"700":
                    await split(cluster, client, 4)
            await producer.flush()
            await until(has(consumed, 900), "all have come")
        assert numbers(consumed.payloads) == list(range(900))
        assert set(consumed.attempts) == {1}
        assert await emptied(client)

    run(scenario, partitions=1)


def test_what_was_given_out_before_a_split_is_acked_after_it() -> None:
    """Messages out of a stream or held by it when its queue is split stay leased, and come once."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(20))
        async with client.consume("orders", credit=20) as stream:
            out = [await anext(stream) for _ in range(5)]
            await split(cluster, client, 3)
            await client.enqueue_many("orders", messages(20))
            while len(out) < 40:
                out.append(await anext(stream))
                await out[-1].ack()
            for message in out[:5]:
                await message.ack()
        assert numbers([message.payload for message in out]) == sorted([*range(20), *range(20)])
        assert {message.attempt for message in out} == {1}
        assert await emptied(client)

    run(scenario, partitions=1)


def test_a_stream_follows_a_partition_that_moves() -> None:
    """A partition that goes to another node is consumed there, and what came from it before is acked there."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with client.consume("orders", credit=16) as stream:
            await client.enqueue("orders", b"1", fairness_key=of_partition(1))
            before = await anext(stream)
            to = next(member for member in cluster.members.values() if not member.serves("orders~1"))
            await to.done("cluster/move", {"queue": "orders~1", "node": to.name})
            await until(lambda: to.serves("orders~1"), "it has moved")
            await client.enqueue("orders", b"2", fairness_key=of_partition(1))
            after = await anext(stream)
            await before.ack()
            await after.ack()
        assert (before.payload, after.payload) == (b"1", b"2")
        assert await emptied(client)

    run(scenario)


async def die(member: Member) -> None:
    """Kill a node with all its connections; other nodes take over."""
    await member.freeze()
    cut_off(member)


def cut_off(member: Member) -> None:
    """End all connections of a node."""
    assert member._server is not None
    for connection in list(member._server.server_state.connections):
        if (transport := getattr(connection, "transport", None)) is not None:
            transport.abort()


def test_when_the_node_of_one_partition_dies_the_others_go_on() -> None:
    """Messages of other partitions come at once, and those of the dead node's when another has taken over."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        async with consuming(client) as consumed:
            await client.enqueue_many("orders", messages(48))
            await until(has(consumed, 48), "all have come")
            assert await client.flush() == []
            dead = cluster.owner("orders~1")
            alive = [at for at in range(4) if not dead.serves(f"orders~{at}")]
            await die(dead)
            for at in alive:
                await client.enqueue("orders", b"100", fairness_key=of_partition(at))
            await until(has(consumed, 48 + len(alive)), "others continue")
            await client.enqueue("orders", b"101", fairness_key=of_partition(1))
            await until(lambda: b"101" in consumed.payloads, "it has been taken over")
        assert set(numbers(consumed.payloads)) == {*range(48), 100, 101}
        await cluster.members.pop(dead.name).stop()

    run(scenario, heartbeat_timeout_ms=SOON_MS)


def test_what_a_stream_held_of_a_lost_connection_comes_again_at_once() -> None:
    """Unseen messages of a dead node are delivered again by the next owner, before their leases end."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        await client.enqueue_many("orders", messages(48))
        async with client.consume("orders", credit=400, visibility_ms=600_000) as stream:
            await until(lambda: len(stream._ready) == 48, "all are held")
            dead = cluster.members.pop(cluster.owner("orders~1").name)
            await dead.freeze()
            await until(lambda: any(heir.serves("orders~1") for heir in cluster.members.values()), "another has it")
            cut_off(dead)  # it no longer owns the messages that it would return
            payloads: list[bytes] = []
            while len(set(payloads)) < 48:
                message = await anext(stream)
                payloads.append(message.payload)
                await message.ack()
        assert numbers(payloads) == list(range(48))
        await dead.stop()

    run(scenario, heartbeat_timeout_ms=SOON_MS)


def test_a_stream_of_a_queue_that_is_deleted_ends() -> None:
    """A consumer that waits at a split queue learns that the queue was deleted."""

    async def scenario(_: Cluster, client: AsyncClient) -> None:
        async with client.consume("orders") as stream:
            waiting = asyncio.ensure_future(anext(stream))
            await client.delete_queue("orders")
            with pytest.raises(QueueNotFound):
                await waiting

    run(scenario)


def test_a_worker_knows_nothing_of_partitions() -> None:
    """A worker handles what comes to all partitions of a queue, before, while and after it is split, each once."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        worker, handled = Worker(addresses(cluster)), list[bytes]()

        @worker.handler("orders", concurrency=8)
        async def handle(message: AsyncMessage) -> None:
            assert message.queue == "orders"
            handled.append(message.payload)

        running = asyncio.ensure_future(worker.run())
        await client.enqueue_many("orders", messages(100))
        await split(cluster, client, 3)
        await client.enqueue_many("orders", messages(100))
        await until(lambda: len(handled) >= 200, "all are handled")
        worker.stop()
        await running
        assert numbers(handled) == sorted([*range(100), *range(100)])
        assert await emptied(client)

    run(scenario, partitions=1)


def test_a_stream_that_is_left_while_it_opens_takes_nothing() -> None:
    """However far the opening of a stream has come when it is cancelled, no message goes to it."""

    async def scenario(cluster: Cluster, client: AsyncClient) -> None:
        for steps in range(10):
            stream = client.consume("orders")
            opening = asyncio.ensure_future(stream.open())
            await pass_loop(8 * steps)
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():  # it was quicker
                await stream.close()
            await client.enqueue("orders", b"x", fairness_key=TENANTS[steps])
            [held] = await client.lease("orders", 1, wait_ms=10_000)  # a node may have to give it back first
            assert held.failures == 0
            await held.ack()
        assert not any(channels(member) for member in cluster.members.values())

    run(scenario, names="ab")


def channels(member: Member) -> list[object]:
    """Return the consumers that are at the brokers of a node."""
    lines = [line for broker in member.groups.brokers() for line in broker._engine.consumers.attached.values()]
    return [consumer for line in lines for consumer in line]


def test_a_stream_over_grpc_is_of_one_partition() -> None:
    """Over gRPC a node spreads calls; a stream of the whole queue says what to do, and those of partitions work."""

    async def scenario(cluster: Cluster, _: AsyncClient) -> None:
        door = GrpcInterface(cluster["a"].server)
        port = door.listen("127.0.0.1:0")
        await door.start()
        try:
            async with AsyncClient(GrpcTransport(f"grpc://127.0.0.1:{port}")) as client:
                await client.enqueue_many("orders", messages(24))
                with pytest.raises(QueueSplit, match="'orders~0'"):
                    await client.consume("orders").open()
                payloads: list[bytes] = []
                for at in range(4):
                    async with client.consume(f"orders~{at}", credit=24) as stream:
                        while len(payloads) < 2 * sum(partition_of_key(tenant, 4) <= at for tenant in TENANTS):
                            message = await anext(stream)
                            await message.ack()
                            payloads.append(message.payload)
                assert numbers(payloads) == list(range(24))
        finally:
            cluster["a"].server.closing.set()
            await door.stop()

    run(scenario, names="a")
