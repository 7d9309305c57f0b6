"""Asking another node: answers, refusals, and nodes that are not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fairlane.cluster.forwarding import Forwarder
from fairlane.errors import Disconnected, InternalError, QueueMoving, QueueNotFound
from fairlane.model.views import QueueView
from fairlane.verbs.queues import GetStats, InspectQueue
from tests.unit.cluster.in_process import cluster_of
from tests.unit.cluster.test_serving import made
from tests.unit.server.house import run

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def asked(serve: Serve) -> None:
    """Ask a node that serves like this."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    forwarder = Forwarder("z")
    port = server.sockets[0].getsockname()[1]
    try:
        async with server:
            await forwarder.ask(f"http://127.0.0.1:{port}", "stats", GetStats(queue="orders"), {})
    finally:
        await forwarder.close()


def test_answers_and_refusals_are_those_of_the_node() -> None:
    """The answer comes back as it is, over one connection again and again, and so does an error."""

    async def main() -> None:
        async with cluster_of("a") as cluster:
            await made(cluster, "orders")
            forwarder, at = Forwarder("z"), cluster["a"].address
            for _ in range(3):
                view = await forwarder.ask(at, "stats", GetStats(queue="orders"), {})
                assert isinstance(view, QueueView)
                assert view.name == "orders"
                with pytest.raises(QueueNotFound):
                    await forwarder.ask(at, "inspect", InspectQueue(queue="nothing"), {})
            assert len(forwarder._idle[at]) == 1
            await forwarder.close()

    run(main())


def test_a_node_that_nobody_reaches_has_done_nothing() -> None:
    """Where nobody listens, the queue is on its way: whoever asks may come back."""

    async def main() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(QueueMoving):
            await Forwarder("z").ask(f"http://127.0.0.1:{port}", "stats", GetStats(queue="orders"), {})

    run(main())


def test_a_node_that_hangs_up_may_have_done_it() -> None:
    """A connection that ends before the answer leaves open whether it was done."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    with pytest.raises(Disconnected):
        run(asked(hang_up))


def test_what_is_no_answer_is_a_fault() -> None:
    """Something that can't be read is told as such."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nxyz")
        await writer.drain()
        writer.close()

    with pytest.raises(InternalError):
        run(asked(babble))
