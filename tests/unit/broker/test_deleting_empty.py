"""Deleting a queue only if nothing is in it, in one step with finding out."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.assembly import open_async_broker
from fairlane.errors import QueueNotFound
from fairlane.model.message import NewMessage
from tests.kit.waiting import PATIENCE_S


def test_only_an_empty_queue_is_deleted() -> None:
    """What waits, is leased, staged or dead keeps it; else it goes with its dead-letter queue, and waiters are told."""

    async def main() -> None:
        async with await open_async_broker() as broker:
            await broker.create_queue("orders")
            await broker.enqueue("orders", NewMessage())
            assert not await broker.delete_empty("orders")
            (leased,) = await broker.lease("orders")
            assert not await broker.delete_empty("orders")
            await broker.nack(leased, intent="dead")
            assert not await broker.delete_empty("orders")
            assert await broker.purge("orders.dlq") == 1
            await broker.stage("orders", "sink", batch=0, part="p", at=0, messages=[NewMessage()])
            assert not await broker.delete_empty("orders")
            await broker.drop_sink("orders", "sink")
            waiting = asyncio.create_task(broker.lease("orders", wait_ms=3_600_000))
            while not (await broker.queue("orders")).waiters:
                pass
            assert await broker.delete_empty("orders", by="somebody")
            with pytest.raises(QueueNotFound):
                await waiting
            for name in ("orders", "orders.dlq"):
                with pytest.raises(QueueNotFound):
                    await broker.queue(name)
            with pytest.raises(QueueNotFound):
                await broker.delete_empty("orders")

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
