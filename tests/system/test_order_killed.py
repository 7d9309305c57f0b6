"""A queue with strict order whose server is killed while workers and batch consumers fail at random."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlane.client import AsyncClient, NewMessage
from fairlane.errors import FairlaneError
from fairlane.worker import Worker, WorkMessage
from tests.kit.waiting import PATIENCE_S
from tests.unit.client.serving import ServerProcess

KILLS = 5
KEYS = 12
EACH = 40
FAILING = 0.15
POLICY = {
    "order": "strict",
    "order_batch_max": 3,
    "visibility_timeout_ms": 1_000,
    "max_attempts": 0,
    "backoff_ms": 20,
    "backoff_max_ms": 50,
}


class Load:
    """Consumers of both kinds, which fail now and then, and what they have done."""

    def __init__(self, url: str) -> None:
        self._chance = random.Random(5)
        self.url = url
        self.done: set[str] = set()
        self.progress = asyncio.Event()
        self.app = Worker(url, grace_s=5)
        self.app.handler("accounts", concurrency=4, visibility_ms=1_000)(self.handle)

    async def handle(self, message: WorkMessage) -> None:
        """Fail, or note a message as done."""
        if self._chance.random() < FAILING:
            raise ValueError("not today")
        self._note(message.id)

    def _note(self, message_id: str) -> None:
        self.done.add(message_id)
        self.progress.set()

    async def lease_batches(self) -> None:
        """Lease batches and work through them in order, whatever happens to the server."""
        async with AsyncClient(self.url) as client:
            while True:
                with suppress(FairlaneError):
                    for message in await client.lease("accounts", 6, wait_ms=200):
                        with suppress(FairlaneError):  # behind one that failed, or the server was killed meanwhile
                            if self._chance.random() < FAILING:
                                await message.nack(error="not today")
                            else:
                                await message.ack()
                                self._note(message.id)

    async def until_done(self, count: int) -> None:
        """Wait until a number of different messages are done."""
        while len(self.done) < count:
            self.progress.clear()
            await self.progress.wait()


async def under_load(server: ServerProcess) -> list[dict[str, Any]]:
    """Kill the server again and again while messages are processed; return the events of the journal."""
    async with AsyncClient(server.url) as client:
        await client.create_queue("accounts", POLICY)
        news = [NewMessage(payload=b"%d" % at, fairness_key=f"k{at % KEYS}") for at in range(KEYS * EACH)]
        ids = await client.enqueue_many("accounts", news)
    load = Load(server.url)
    async with asyncio.timeout(PATIENCE_S), load.app:
        batches = asyncio.ensure_future(load.lease_batches())
        for kill in range(1, KILLS + 1):
            await load.until_done(kill * len(ids) // (KILLS + 1))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await _until_empty(server.url)
        batches.cancel()
    async with AsyncClient(server.url) as client:
        return await _journal(client)


async def _journal(client: AsyncClient) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    position = 0
    while (page := await client.read_journal(position)).position > position:
        events += page.events
        position = page.position
    return events


async def _until_empty(url: str) -> None:
    async with AsyncClient(url) as client:
        while (view := await client.queue("accounts")).waiting or view.leased:
            await client.lease("accounts.dlq", wait_ms=50)  # nothing dies, so this is a wait


def test_messages_are_acknowledged_in_order_though_the_server_is_killed(tmp_path: Path) -> None:
    """Over kills, failures and expiries every message is acknowledged once, each key's in the order of its enqueues,
    and the journal shows retries and several openings in between."""
    with ServerProcess(tmp_path / "data") as server:
        events = asyncio.run(under_load(server))
    keys = {event["message_id"]: event["fairness_key"][0] for event in events if event["kind"] == "enqueued"}
    acked: dict[str, list[str]] = {}
    for event in events:
        if event["kind"] == "acked":
            acked.setdefault(keys[event["message_id"]], []).append(event["message_id"])
    assert len(keys) == KEYS * EACH
    assert sorted(acked) == sorted(set(keys.values()))
    expected = {key: [each for each in keys if keys[each] == key] for key in acked}
    assert acked == expected
    kinds = [(event["kind"], event.get("reason")) for event in events]
    assert kinds.count(("opened", None)) == KILLS + 1
    assert ("returned", "failure") in kinds
