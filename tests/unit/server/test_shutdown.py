"""Going down: how long the server waits, for whom, and for whom not."""

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
from tests.unit.server.house import House, connected, opened, run

if TYPE_CHECKING:
    import pytest

LONG_S = 30.0
LEASE = {"queue": "orders", "visibility_ms": 3_600_000}


@asynccontextmanager
async def draining(
    house: House, *, grace_s: float = LONG_S, quiet_s: float = LONG_S
) -> AsyncIterator[asyncio.Task[None]]:
    """Go down beside what follows; it must end before the context does."""
    async with asyncio.timeout(LONG_S):
        task = asyncio.create_task(drain(house.server, grace_s=grace_s, quiet_s=quiet_s))
        await house.server.draining.wait()
        yield task
        await task
    assert house.server.closing.is_set()


def test_with_nothing_leased_it_ends_at_once() -> None:
    """What only waits is no reason to wait."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage()])
            async with draining(house):
                pass

    run(main())


def test_a_lease_of_nobody_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever leased and has not been heard of since is not there; the lease stays as it is."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage()])
            await house.post("queue/dequeue", LEASE)
            async with draining(house, quiet_s=0):
                pass
            assert (await house.broker.queue("orders")).leased == 1

    with caplog.at_level(logging.INFO):
        run(main())
    assert "Nobody is here who could ack what is still leased: 1." in caplog.text


def test_a_consumer_with_messages_in_flight_is_waited_for() -> None:
    """Its last ack ends the wait, however long nobody has called before."""

    async def main() -> None:
        async with opened() as house, connected(house) as socket:
            await house.broker.enqueue_many("orders", [NewMessage()] * 2)
            socket.call("consume", Consume(queue="orders"))
            receipts = [Receipt(id=each.id, token=each.token) for each in await socket.deliveries(2)]
            async with draining(house, quiet_s=0) as task:
                await socket.next(Ended)
                for receipt in receipts:
                    assert is_attended(house.server)
                    assert not task.done()
                    await socket.answer("ack", Ack(queue="orders", receipts=[receipt]), Results)

    run(main())


def test_a_connection_that_has_leased_is_waited_for_until_it_goes() -> None:
    """What it leased by the verb may be in its hands, as long as it is there and no longer."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage()])
            async with connected(house) as socket:
                await socket.answer("lease", LEASE, LeasedMessages)
                assert is_attended(house.server)
            assert not is_attended(house.server)
            async with draining(house, quiet_s=0):
                pass

    run(main())


def test_a_connection_that_only_produces_is_not_waited_for() -> None:
    """A lease that somebody else has forgotten does not hold up a server to which producers are connected."""

    async def main() -> None:
        async with opened() as house, connected(house) as socket:
            await socket.answer("enqueue", {"queue": "orders", "messages": [{}]}, EnqueueResults)
            await house.post("queue/dequeue", LEASE)
            async with draining(house, quiet_s=0):
                pass

    run(main())


def test_a_call_is_a_sign_that_somebody_is_there() -> None:
    """The quiet begins anew with it, and an ack that ends it all ends the wait."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage()])
            delivery = (await house.post("queue/dequeue", LEASE)).json()["deliveries"][0]
            receipt = {"id": delivery["id"], "token": delivery["token"]}
            async with draining(house):
                body = {"queue": "orders", "receipts": [receipt], "visibility_ms": 60_000}
                assert (await house.post("queue/extend", body)).status_code == 200
                await house.post("queue/ack", {"queue": "orders", "receipts": [receipt]})

    run(main())


def test_the_grace_ends_the_wait() -> None:
    """A consumer that never acks is waited for so long and no longer; what it had goes back."""

    async def main() -> None:
        async with opened() as house:
            async with connected(house) as socket:
                await house.broker.enqueue_many("orders", [NewMessage()])
                socket.call("consume", Consume(queue="orders"))
                await socket.deliveries(1)
                async with draining(house, grace_s=0.2, quiet_s=0):
                    pass
            assert (await house.broker.queue("orders")).leased == 0

    run(main())


def test_who_is_in_a_hurry_ends_the_wait() -> None:
    """A second signal sets the same event."""

    async def main() -> None:
        async with opened() as house:
            await house.broker.enqueue_many("orders", [NewMessage()])
            await house.post("queue/dequeue", LEASE)
            async with asyncio.timeout(LONG_S):
                waiting = asyncio.create_task(settled(house.server, quiet_s=LONG_S))
                await asyncio.sleep(0)
                house.server.closing.set()
                await waiting

    run(main())
