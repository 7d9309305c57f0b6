"""Leasing for somebody who may be gone when the messages come: nothing is lost between the two."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from fairlane.gateway.caller import ANYBODY
from fairlane.gateway.leases import leased_unless
from fairlane.model.message import NewMessage
from fairlane.verbs.leases import Lease
from tests.kit.waiting import PATIENCE_S
from tests.unit.server.local_server import opened, run

WAIT = Lease(queue="orders", wait_ms=60_000)


async def never() -> None:
    """End never."""
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("passes", range(1, 16))
def test_whoever_is_cancelled_at_any_moment_leaves_nothing_leased(passes: int) -> None:
    """After so many passes of the loop the caller is cancelled: it has the message, or the queue has."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])
            racing = asyncio.create_task(
                leased_unless(partial(server.context.give_back, ANYBODY), server.broker.call(WAIT), never())
            )
            for _ in range(passes):
                await asyncio.sleep(0)
            racing.cancel()
            with suppress(asyncio.CancelledError):
                leased = await racing
                assert leased is not None
                assert len(leased.deliveries) == 1
                return
            while (await server.broker.queue("orders")).leased:
                pass

    run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("passes", range(1, 16))
def test_an_ending_at_any_moment_leaves_nothing_leased(passes: int) -> None:
    """If the ending is noticed nothing is answered, and the message is in its queue."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()])

            async def ending() -> None:
                for _ in range(passes):
                    await asyncio.sleep(0)

            leased = await leased_unless(partial(server.context.give_back, ANYBODY), server.broker.call(WAIT), ending())
            if leased is None:
                while (await server.broker.queue("orders")).leased:
                    pass
            else:
                assert len(leased.deliveries) == 1

    run(asyncio.wait_for(main(), PATIENCE_S))
