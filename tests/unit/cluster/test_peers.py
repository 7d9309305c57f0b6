"""Requests to another node: answers, refusals, withdrawn leases, and nodes that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from fairlane.cluster.peers import Peers
from fairlane.errors import Disconnected, QueueMoving, QueueNotFound
from fairlane.gateway.caller import ANYBODY
from fairlane.gateway.context import PLAIN
from fairlane.model.views import QueueView
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.queues import GetStats, InspectQueue
from fairlane.wire.frames import SUBPROTOCOL
from tests.kit.waiting import until
from tests.unit.cluster.in_process import cluster_of
from tests.unit.cluster.test_serving import HELLO, made
from tests.unit.server.local_server import run

Handle = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def closing(peers: Peers) -> AsyncIterator[Peers]:
    """Close connections at the end."""
    try:
        yield peers
    finally:
        await peers.close()


async def asked(handle: Handle) -> None:
    """Ask a node that handles its connections like this."""
    peers = Peers(lambda _address: "z")
    async with serve(handle, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL]) as server:  # type: ignore[list-item]  # a name
        port = server.sockets[0].getsockname()[1]
        try:
            await peers.ask(f"http://127.0.0.1:{port}", GetStats(queue="orders"), ANYBODY, PLAIN)
        finally:
            await peers.close()


def test_answers_and_refusals_are_those_of_the_node() -> None:
    """Both come back as they are, over one connection."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            peers, at = Peers(cluster["a"].node.proofs().for_node_at), cluster["a"].address
            for _ in range(3):
                view = await peers.ask(at, GetStats(queue="orders"), ANYBODY, PLAIN)
                assert isinstance(view, QueueView)
                assert view.name == "orders"
                with pytest.raises(QueueNotFound):
                    await peers.ask(at, InspectQueue(queue="nothing"), ANYBODY, PLAIN)
            assert cluster["a"].server.tally.streams == 1
            await peers.close()

    run(main())


def test_requests_that_wait_do_not_fill_a_connection() -> None:
    """Where many wait at once, they get further connections."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            peers, at = Peers(cluster["a"].node.proofs().for_node_at), cluster["a"].address
            lease = Lease(queue="orders", wait_ms=20_000)
            waiting = [asyncio.create_task(peers.ask(at, lease, ANYBODY, PLAIN)) for _ in range(200)]
            engine = cluster["a"].groups.of("orders")._engine
            await until(lambda: engine.consumers.waiting("orders") == 200, "all of them wait")
            assert cluster["a"].server.tally.streams == 2
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await peers.close()

    run(main())


@pytest.mark.parametrize("passes", range(0, 40, 4))
def test_a_lease_that_is_withdrawn_at_any_moment_leaves_nothing_leased(passes: int) -> None:
    """The caller leaves while a message comes: it is in the queue again, without a failed attempt."""

    async def main() -> None:
        async with cluster_of("a") as cluster, closing(Peers(cluster["a"].node.proofs().for_node_at)) as peers:
            await made(cluster, "orders")
            member = cluster["a"]
            peers.on_late = member.server.gateway.give_back
            lease = Lease(queue="orders", wait_ms=20_000)
            waiting = asyncio.create_task(peers.ask(member.address, lease, ANYBODY, PLAIN))
            engine = member.groups.of("orders")._engine
            await until(lambda: engine.consumers.waiting("orders") == 1, "it waits")
            sending = asyncio.create_task(member.done("queue/enqueue", {"queue": "orders", "messages": [HELLO]}))
            for _ in range(passes):
                await asyncio.sleep(0)
            waiting.cancel()
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
            await sending
            if isinstance(outcome, LeasedMessages):  # it was answered before
                assert len(outcome.deliveries) == 1
                return
            (delivery,) = (await member.done("queue/lease", {"queue": "orders", "wait_ms": 5_000}))["deliveries"]
            assert delivery.get("failures", 0) == 0

    run(main())


def test_a_node_that_can_not_be_reached_has_done_nothing() -> None:
    """Where no node listens, the queue is about to move: the caller may ask again."""

    async def main() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(QueueMoving):
            await Peers(lambda _address: "z").ask(f"http://127.0.0.1:{port}", GetStats(queue="orders"), ANYBODY, PLAIN)

    run(main())


def test_a_node_that_hangs_up_may_have_done_it() -> None:
    """A connection that ends before the answer leaves open whether the request was carried out."""

    async def hang_up(connection: ServerConnection) -> None:
        await connection.recv()

    with pytest.raises(Disconnected):
        run(asked(hang_up))


def test_what_is_no_answer_ends_the_connection() -> None:
    """A node that sends what can't be read may have carried out the request."""

    async def babble(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(b"\xc1")
        await connection.wait_closed()

    with pytest.raises(Disconnected):
        run(asked(babble))
