"""Leases of consumers whose server is killed: a tenant with a cap goes on as soon as the server is back.

The visibility timeout is far longer than the tests may take, so nothing here happens because a lease has expired.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from fairlane.client import AsyncClient, NewMessage
from fairlane.client.transport.http import HttpTransport
from fairlane.client.transport.websocket import WebSocketTransport
from fairlane.worker import Worker, WorkMessage
from tests.kit.waiting import PATIENCE_S, until_answered
from tests.unit.client.serving import ServerProcess

VISIBILITY_MS: Final = 60 * 60 * 1000
POLICY: Final = {"caps": {"museum": 1}, "visibility_timeout_ms": VISIBILITY_MS}
TWO: Final = [NewMessage(payload=text, fairness_key="museum") for text in (b"first", b"second")]


async def has(client: AsyncClient, *, leased: int, waiting: int = 1) -> bool:
    """Return whether the queue has so many messages."""
    view = await client.queue("mail")
    return (view.leased, view.waiting) == (leased, waiting)


@pytest.mark.parametrize("kind", [WebSocketTransport, HttpTransport])
def test_a_stream_returns_what_it_had_not_delivered_when_its_server_was_killed(
    tmp_path: Path, kind: type[WebSocketTransport | HttpTransport]
) -> None:
    """A message that had only arrived in the stream is delivered again by the new server, before its lease ends."""

    async def scenario(server: ServerProcess) -> None:
        async with AsyncClient(kind(server.url)) as client:
            await client.create_queue("mail", POLICY)
            async with client.consume("mail", credit=6) as stream:
                await client.enqueue_many("mail", TWO)
                await until_answered(lambda: has(client, leased=1), "one is leased, and the cap holds one back")
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                came: set[tuple[bytes, int]] = set()
                async with asyncio.timeout(PATIENCE_S):
                    while len(came) < len(TWO):
                        message = await anext(stream)
                        came.add((message.payload, message.failures))
                        await message.ack()
                assert came == {(message.payload, 0) for message in TWO}

    with ServerProcess(tmp_path / "data") as server:
        asyncio.run(scenario(server))


def test_a_worker_keeps_its_lease_over_a_killed_server_and_goes_on(tmp_path: Path) -> None:
    """The handler that runs while the server is killed acknowledges its message later, and the next one starts."""

    async def scenario(server: ServerProcess) -> None:
        handled: list[bytes] = []
        is_running, may_end = asyncio.Event(), asyncio.Event()
        worker = Worker(server.url)

        @worker.handler("mail", concurrency=4)
        async def handle(message: WorkMessage) -> None:
            is_running.set()
            await may_end.wait()
            handled.append(message.payload)

        async with AsyncClient(server.url) as client, asyncio.timeout(PATIENCE_S):
            await client.create_queue("mail", POLICY)
            await client.enqueue_many("mail", TWO)
            working = asyncio.create_task(worker.run())
            await is_running.wait()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            may_end.set()
            await until_answered(lambda: has(client, leased=0, waiting=0), "both are acknowledged")
            assert handled == [message.payload for message in TWO]
            worker.stop()
            await working

    with ServerProcess(tmp_path / "data") as server:
        asyncio.run(scenario(server))
