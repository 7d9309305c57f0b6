"""Waits at several partitions: whatever comes is handed out once, and whoever goes away leaves nothing leased."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import msgspec

from fairlane.gateway.caller import ANYBODY
from fairlane.gateway.context import PLAIN
from fairlane.model.partitions import partition_of_key
from fairlane.verbs.leases import Lease, LeasedMessages
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Cluster, cluster_of
from tests.unit.server.local_server import run
from tests.unit.server.test_partitions import TENANTS, body, everybody_knows, message, receipts, split, taken, waiters


def keys_of_all(partitions: int) -> list[str]:
    """Return a key for each partition."""
    return [next(key for key in TENANTS if partition_of_key(key, partitions) == at) for at in range(partitions)]


def counts(cluster: Cluster, made: int) -> tuple[int, int]:
    """Return how many messages are in all partitions, and how many of them are leased."""
    messages = leased = 0
    for at in range(made):
        served = f"orders~{at}" if at else "orders"
        queue = cluster.owner(served).groups.of(served)._engine.ledger.queues[served]
        messages += len(queue.messages)
        leased += sum(1 for each in queue.messages.values() if each.token)
    return messages, leased


def test_of_several_that_come_at_once_only_what_was_asked_for_stays_leased() -> None:
    """Messages come to all partitions while one consumer waits for one: it gets one, the others wait in the queue."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await split(cluster, "orders", 4)
            await everybody_knows(cluster, "orders", 4)
            keys = keys_of_all(4)
            for _ in range(10):
                asking = cluster["a"].done("queue/dequeue", {"queue": "orders", "wait_ms": 10_000})
                waiting = asyncio.create_task(asking)
                await until(lambda: waiters(cluster, "orders", 4) == 4, "it waits at each")
                sending = [cluster["b"].done("queue/enqueue", body("orders", [message(key)])) for key in keys]
                await asyncio.gather(*sending)
                (delivery,) = (await waiting)["deliveries"]
                await until(lambda: counts(cluster, 4) == (4, 1), "the others are not leased")
                rest = await taken(cluster["c"], "orders")
                assert all(each["attempt"] <= 2 and each.get("failures", 0) == 0 for each in rest)
                acking = {"queue": "orders", "receipts": receipts([delivery, *rest])}
                assert (await cluster["b"].done("queue/ack", acking))["results"] == [{}] * 4

    run(main())


def test_who_is_cancelled_at_any_moment_leaves_nothing_leased() -> None:
    """The caller goes while messages come to partitions here and elsewhere: all of them are there for others."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            await split(cluster, "orders", 3)
            await everybody_knows(cluster, "orders", 3)
            keys = keys_of_all(3)
            for passes in range(0, 120, 4):
                request = Lease(queue="orders", wait_ms=10_000, count=2)
                waiting = asyncio.create_task(cluster["a"].server.call(request, ANYBODY, PLAIN))
                await until(lambda: waiters(cluster, "orders", 3) == 3, "it waits at each")
                sending = [
                    asyncio.create_task(cluster["b"].done("queue/enqueue", body("orders", [message(key)])))
                    for key in keys
                ]
                for _ in range(passes):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(*sending)
                got: list[dict[str, Any]] = []
                with suppress(asyncio.CancelledError):
                    got = msgspec.to_builtins(cast("LeasedMessages", await waiting).deliveries)
                await until(lambda: counts(cluster, 3) == (3, len(got)), f"nothing is leased, {passes}")  # noqa: B023 - now
                acking = {"queue": "orders", "receipts": receipts([*got, *await taken(cluster["c"], "orders")])}
                assert (await cluster["b"].done("queue/ack", acking))["results"] == [{}] * 3

    run(main())
