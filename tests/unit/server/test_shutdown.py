"""Shutdown: how long the server waits, and for which clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fairlane.model.message import NewMessage, Receipt
from fairlane.server.shutdown import drain, is_attended, settled
from fairlane.verbs.leases import Ack, LeasedMessages
from fairlane.verbs.messages import EnqueueResults, Results
from fairlane.wire.frames import Consume, Ended
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.local_server import LocalServer, connected, opened, run

if TYPE_CHECKING:
    import pytest

LONG_S = 3_600.0
"""Longer than any test may take, so a server that waited this long would fail it."""
LEASE = {"queue": "orders", "visibility_ms": 3_600_000}


@asynccontextmanager
async def draining(
    server: LocalServer, *, grace_s: float = LONG_S, quiet_s: float = LONG_S
) -> AsyncIterator[asyncio.Task[None]]:
    """Drain in the background; it must finish before the context ends."""
    async with asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(drain(server.context, grace_s=grace_s, quiet_s=quiet_s))
        await server.context.draining.wait()
        yield task
        await task
    assert server.context.closing.is_set()


def test_with_nothing_in_flight_it_ends_at_once() -> None:
    """The server does not wait for a backlog."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            async with draining(server):
                pass

    run(main())


def test_a_lease_without_a_client_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A client that leased and made no call since counts as gone; the lease stays."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            await server.post("queue/dequeue", LEASE)
            async with draining(server, quiet_s=0):
                pass
            assert (await server.broker.queue("orders")).leased == 1

    with caplog.at_level(logging.INFO):
        run(main())
    assert "No client is left to settle 1 messages in flight." in caplog.text


def test_a_consumer_with_messages_in_flight_is_waited_for() -> None:
    """Its last ack ends the wait, however long there was no call before."""

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            await server.broker.enqueue_many("orders", [NewMessage()] * 2)
            socket.call("consume", Consume(queue="orders"))
            receipts = [Receipt(id=each.id, token=each.token) for each in await socket.deliveries(2)]
            async with draining(server, quiet_s=0) as task:
                await socket.next(Ended)
                for receipt in receipts:
                    assert is_attended(server.context)
                    assert not task.done()
                    await socket.answer("ack", Ack(queue="orders", receipts=[receipt]), Results)

    run(main())


def test_a_connection_that_has_leased_is_waited_for_until_it_closes() -> None:
    """It may have messages in flight while it is open."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            async with connected(server) as socket:
                await socket.answer("lease", LEASE, LeasedMessages)
                assert is_attended(server.context)
            assert not is_attended(server.context)
            async with draining(server, quiet_s=0):
                pass

    run(main())


def test_a_connection_that_only_produces_is_not_waited_for() -> None:
    """Connected producers do not make the server wait for a lease of another client."""

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            await socket.answer("enqueue", {"queue": "orders", "messages": [{}]}, EnqueueResults)
            await server.post("queue/dequeue", LEASE)
            async with draining(server, quiet_s=0):
                pass

    run(main())


def test_a_call_shows_that_a_client_is_left() -> None:
    """It restarts the quiet period, and the last ack ends the wait."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            delivery = (await server.post("queue/dequeue", LEASE)).json()["deliveries"][0]
            receipt = {"id": delivery["id"], "token": delivery["token"]}
            async with draining(server):
                body = {"queue": "orders", "receipts": [receipt], "visibility_ms": 60_000}
                assert (await server.post("queue/extend", body)).status_code == 200
                await server.post("queue/ack", {"queue": "orders", "receipts": [receipt]})

    run(main())


def test_the_grace_period_ends_the_wait() -> None:
    """The server waits no longer for a consumer that never acks; its messages return."""

    async def main() -> None:
        async with opened() as server:
            async with connected(server) as socket:
                await server.broker.enqueue_many("orders", [NewMessage()])
                socket.call("consume", Consume(queue="orders"))
                await socket.deliveries(1)
                async with draining(server, grace_s=0.2, quiet_s=0):
                    pass
            assert (await server.broker.queue("orders")).leased == 0

    run(main())


def test_a_second_signal_ends_the_wait() -> None:
    """It sets the event that closes connections."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            await server.post("queue/dequeue", LEASE)
            async with asyncio.timeout(PATIENCE_S):
                waiting = asyncio.create_task(settled(server.context, quiet_s=LONG_S))
                await asyncio.sleep(0)
                server.context.closing.set()
                await waiting

    run(main())
