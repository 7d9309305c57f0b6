"""Every transport of the SDK at a node that does not own the queue it asks about, and while the queue moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.client import AsyncClient, Transport
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.client.transport.http import HttpTransport
from tests.kit.servers.nodes import Cluster, Node
from tests.kit.servers.stores import PostgresServer
from tests.kit.waiting import PATIENCE_S

KINDS = ("websocket", "http", "grpc")
FLAGS = ("--heartbeat-timeout-ms", "3000", "--grpc-port", "0")


@pytest.fixture(scope="module")
def cluster(durable_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes."""
    folder: Path = tmp_path_factory.mktemp("transports")
    with Cluster.of(2, f"{durable_postgres.url}&namespace={folder.name}", folder, flags=FLAGS) as cluster:
        yield cluster


def transport_to(node: Node, kind: str) -> Transport | str:
    """Return what carries calls to one node; over the WebSocket a client goes on from there by itself."""
    if kind == "websocket":
        return node.url
    if kind == "http":
        return HttpTransport(node.url, poll_ms=200)
    address = re.search(r"gRPC\s+(\S+)", node.log)
    assert address is not None
    return GrpcTransport(f"grpc://{address.group(1)}")


@pytest.mark.parametrize("kind", KINDS)
def test_any_node_will_do(cluster: Cluster, kind: str) -> None:
    """Messages are enqueued, leased, streamed and acked through a node that does not own their queue."""
    asked, owner = cluster.nodes

    async def main() -> None:
        async with AsyncClient(transport_to(asked, kind)) as client:
            await client.create_queue(kind)
            await client.move_queue(kind, owner.name)
            await asyncio.to_thread(cluster.wait_for, kind, owner)
            for number in range(4):
                await client.enqueue(kind, b"%d" % number)
            for message in await client.lease(kind, 2, wait_ms=5_000):
                await message.ack()
            async with client.consume(kind, credit=2) as stream:
                for _ in range(2):
                    await (await anext(stream)).ack()
            view = await client.queue(kind)
            assert (view.waiting, view.leased) == (0, 0)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_when_its_queue_moves(cluster: Cluster, kind: str) -> None:
    """What a stream has given out is acked after its queue has moved, and what comes then comes, too."""
    first, second = cluster.nodes
    queue = f"{kind}-moves"

    async def main() -> None:
        async with AsyncClient(transport_to(first, kind)) as client:
            await client.create_queue(queue)
            await client.move_queue(queue, first.name)
            await asyncio.to_thread(cluster.wait_for, queue, first)
            async with client.consume(queue, credit=5) as stream:
                await client.enqueue(queue, b"before")
                before = await anext(stream)
                await client.move_queue(queue, second.name)
                await asyncio.to_thread(cluster.wait_for, queue, second)
                await client.enqueue(queue, b"after")
                after = await anext(stream)
                assert (before.payload, after.payload) == (b"before", b"after")
                await before.ack()
                await after.ack()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
