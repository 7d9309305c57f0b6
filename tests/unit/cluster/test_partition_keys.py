"""The partitions of new messages are found bit by bit where the queue's script takes long, and in order."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from fairlane.cluster.entries import SplitEntry
from fairlane.cluster.partitions.keys import PartitionKeys
from fairlane.model.message import NewMessage
from fairlane.model.partitions import partition_of_key
from tests.kit.simulation.hooks import ON_ENQUEUE, SimulatedHooks

ENTRY = SplitEntry(partitions=8, made=8, on_enqueue=ON_ENQUEUE)


def of_tenant(tenant: str) -> NewMessage:
    return NewMessage(payload=b"", headers={"device": "app", "tenant": tenant})


def test_other_work_goes_on_while_a_script_takes_long() -> None:
    """A script that takes 2 ms per message runs for about 5 ms at a time, and other callbacks run in between."""

    async def run() -> tuple[list[int], list[int]]:
        hooks = SimulatedHooks()
        keys = PartitionKeys(hooks, splits=lambda: {"q": ENTRY}, now_ms=lambda: 0)
        seen: list[int] = []
        finding = asyncio.ensure_future(keys.places("q", [of_tenant(f"t{n}") for n in range(30)], 8))
        while not finding.done():
            seen.append(hooks.spent_ns)
            await asyncio.sleep(0)
        return finding.result(), seen

    places, seen = asyncio.run(run())
    assert places == [partition_of_key(("apps", f"t{n}"), 8) for n in range(30)]
    assert max(after - before for before, after in pairwise(seen)) <= 6_000_000


def test_requests_for_a_queue_do_not_overtake_each_other() -> None:
    """A short request behind a long one is placed after it."""

    async def run() -> list[str]:
        keys = PartitionKeys(SimulatedHooks(), splits=lambda: {"q": ENTRY}, now_ms=lambda: 0)
        done: list[str] = []

        async def place(name: str, count: int) -> None:
            await keys.places("q", [of_tenant("t")] * count, 8)
            done.append(name)

        await asyncio.gather(place("long", 30), place("short", 1))
        return done

    assert asyncio.run(run()) == ["long", "short"]
