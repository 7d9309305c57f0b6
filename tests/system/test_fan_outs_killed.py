"""Fan-outs whose server is killed again and again, while they are enqueued and their members end."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from fairlane.client import AsyncClient, NewMessage
from fairlane.errors import UnavailableError
from fairlane.worker import DeadLetter, Worker, WorkMessage
from tests.kit.ids import numbered
from tests.kit.waiting import PATIENCE_S
from tests.unit.client.serving import ServerProcess

KILLS = 5
FAN_OUTS = 60
MEMBERS = 6
TOTAL = FAN_OUTS * MEMBERS
FAILING = 10
"""One fan-out in so many has a member that dies; half of those run all the same."""
POLICY = {"visibility_timeout_ms": 1_000, "max_attempts": 0, "backoff_ms": 20, "backoff_max_ms": 50}
Event = dict[str, Any]


class Load:
    """A producer of fan-outs, and a worker for their members and continuations."""

    def __init__(self, url: str) -> None:
        self.ids: list[str] = []
        self._url = url
        self._handled: set[str] = set()
        self._progress = asyncio.Event()
        self.app = Worker(url, grace_s=5)
        self.app.handler("photos", concurrency=8, visibility_ms=1_000)(self._handle)
        self.app.handler("albums", concurrency=4, visibility_ms=1_000)(self._handle)

    async def _handle(self, message: WorkMessage) -> DeadLetter | None:
        self._handled.add(message.id)
        self._progress.set()
        return DeadLetter("broken") if message.payload == b"broken" else None

    async def produce(self) -> None:
        """Fan out again and again, whatever happens to the server, and repeat each request under its name."""
        async with AsyncClient(self._url) as client:
            for at in range(FAN_OUTS):
                first = b"broken" if at % FAILING == 0 else b"photo"
                photos = [NewMessage(payload=payload) for payload in (first, *[b"photo"] * (MEMBERS - 1))]
                sent = [await self._fan_out(client, at, photos) for _ in range(2)]
                assert sent[0] == sent[1]
                self.ids.append(sent[0])

    async def _fan_out(self, client: AsyncClient, at: int, photos: list[NewMessage]) -> str:
        while True:
            try:
                sent = await client.fan_out(
                    "albums",
                    NewMessage(payload=b"album"),
                    {"photos": photos},
                    name=f"album-{at}",
                    on_failure="run" if at % (2 * FAILING) == 0 else "dead",
                )
            except UnavailableError:
                continue
            return sent.id

    async def until_handled(self, count: int) -> None:
        """Wait until a number of different messages were handled."""
        while len(self._handled) < count:
            self._progress.clear()
            await self._progress.wait()


async def under_load(server: ServerProcess) -> tuple[list[str], list[Event]]:
    """Kill the server while members end; return the ids of the continuations and the events of the journal."""
    async with AsyncClient(server.url) as client:
        for queue in ("photos", "albums"):
            await client.create_queue(queue, POLICY)
    load = Load(server.url)
    dead = len(range(FAILING, FAN_OUTS, 2 * FAILING))
    async with asyncio.timeout(PATIENCE_S), load.app, asyncio.TaskGroup() as tasks:
        tasks.create_task(load.produce())
        for kill in range(1, KILLS + 1):
            await load.until_handled(kill * TOTAL // (KILLS + 1))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await load.until_handled(TOTAL + FAN_OUTS - dead)
    async with AsyncClient(server.url) as client:
        return load.ids, await _journal(client)


async def _journal(client: AsyncClient) -> list[Event]:
    events: list[Event] = []
    position = 0
    while (page := await client.read_journal(position)).position > position:
        events += page.events
        position = page.position
    return events


def position_by_id(events: list[Event], *kinds: str) -> dict[str, int]:
    """Return where in the journal each message has its only event of these kinds."""
    found = [(event["message_id"], event["sequence"]) for event in events if event["kind"] in kinds]
    assert max(Counter(message_id for message_id, _ in found).values()) == 1
    return dict(found)


def test_each_continuation_comes_once_though_the_server_is_killed(tmp_path: Path) -> None:
    """Over kills while fan-outs are enqueued and members end, each continuation enters its queue once, in the commit
    that ends its last member, and is then acknowledged, or dead if it must not run after a member that died."""
    with ServerProcess(tmp_path / "data") as server:
        ids, events = asyncio.run(under_load(server))
    numbers = [f"{numbered(message_id):016x}" for message_id in ids]
    begun = [event for event in events if event["kind"] == "fanned_out"]
    assert [event["message_id"] for event in begun] == numbers
    assert len(set(numbers)) == FAN_OUTS
    published = position_by_id(events, "published")
    assert sorted(published) == sorted(numbers)
    ended = position_by_id(events, "acked", "dead")
    members = members_of(events)
    opened = [event["sequence"] for event in events if event["kind"] == "opened"]
    for number in numbers:
        last = max(ended[member] for member in members[number])
        assert len(members[number]) == MEMBERS
        assert last < published[number] < ended[number]
        assert not any(last < sequence < published[number] for sequence in opened)
    dead = {event["message_id"] for event in events if event["kind"] == "dead" and event["reason"] == "members"}
    assert dead == set(numbers[FAILING :: 2 * FAILING])
    assert len(ended) == TOTAL + FAN_OUTS
    assert len(opened) == KILLS + 1


def members_of(events: list[Event]) -> dict[str, list[str]]:
    """Return the members of each continuation: those that were enqueued in the same commit, right before it."""
    found: dict[str, list[str]] = {}
    before: list[str] = []
    for event in events:
        if event["kind"] == "enqueued":
            before.append(event["message_id"])
        elif event["kind"] == "fanned_out":
            found[event["message_id"]] = before
            before = []
    return found
