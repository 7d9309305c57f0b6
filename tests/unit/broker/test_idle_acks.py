"""Acknowledgements that nothing depends on share the commit of the next request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.system import SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.requests import AttachedConsumer
from fairlane.broker.waiting.room import Room
from fairlane.journal.records import AnyRecord
from fairlane.model.message import Delivery, Receipt
from fairlane.model.policy import QueuePolicy
from fairlane.testing.clock import FakeClock
from fairlane.testing.virtual_loop import VirtualLoop
from fairlane.verbs.leases import Ack
from fairlane.verbs.status import GetStatus
from fairlane.verbs.verb import Reply


class Worker:
    """A broker on virtual time with a consumer elsewhere that gets what is enqueued, and the commits of the broker."""

    def __init__(self, engine: Engine, broker: AsyncBroker, clock: FakeClock) -> None:
        self.broker, self.clock = broker, clock
        self.held: list[Delivery] = []
        self.commits: list[list[str]] = []
        engine.taps.append(self._note)

    def _note(self, records: Any, _now_ms: int) -> None:
        kinds: list[AnyRecord] = list(records)
        self.commits.append([type(record).__name__ for record in kinds])

    async def attach(self, **terms: Any) -> None:
        """Attach a consumer."""
        given: dict[str, Any] = {"credit": 4, "handlers": 2, "room": Room(1 << 20)} | terms
        await self.broker.attach(AttachedConsumer(queue="q", deliver=self.held.extend, **given))

    def ack(self) -> asyncio.Future[Any]:
        """Acknowledge the oldest message without waiting for the answer."""
        message = self.held.pop(0)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answered: Reply = reply
        self.broker.ask(Ack(queue="q", receipts=[Receipt(message.id, message.token)]), answered)
        return reply


@asynccontextmanager
async def working(clock: FakeClock, *, key_cap: int | None = None, **terms: Any) -> AsyncIterator[Worker]:
    hooks = LuaHooks(lambda _queue, _key: None)
    engine = Engine(MemoryStore(), hooks=hooks, clock=clock, entropy=SystemEntropy())
    engine.open()
    async with AsyncBroker(engine) as broker:
        worker = Worker(engine, broker, clock)
        await broker.create_queue("q", QueuePolicy(key_cap=key_cap))
        await worker.attach(**terms)
        yield worker


def on_virtual_time(scenario: Callable[[FakeClock], Awaitable[None]]) -> None:
    """Run a scenario on a loop whose time moves only when nothing else is to be done."""
    clock = FakeClock()
    loop = VirtualLoop(clock)
    loop.virtual.is_skipping = lambda: True
    try:
        loop.run_until_complete(scenario(clock))
    finally:
        loop.close()


def test_an_ack_shares_the_commit_of_the_next_enqueue() -> None:
    """An acknowledgement that comes between two enqueues is in the commit of the second, with its lease."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock) as worker:
            await worker.broker.enqueue("q", b"first")
            acked = worker.ack()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not acked.done()
            begun_ms = clock.now_ms()
            await worker.broker.enqueue("q", b"second")
            assert worker.commits[-1] == ["Acked", "Enqueued", "Leased"]
            assert acked.done()
            assert clock.now_ms() == begun_ms

    on_virtual_time(scenario)


def test_an_ack_without_company_waits_a_millisecond() -> None:
    """If nothing else comes, an acknowledgement is committed and answered after a millisecond."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock) as worker:
            await worker.broker.enqueue("q", b"")
            begun_ms = clock.now_ms()
            assert [result.error for result in (await worker.ack()).results] == [None]
            assert clock.now_ms() == begun_ms + 1
            assert worker.commits[-1] == ["Acked"]

    on_virtual_time(scenario)


def test_a_closing_broker_waits_for_no_company() -> None:
    """An acknowledgement that waits is committed when the broker closes."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock) as worker:
            await worker.broker.enqueue("q", b"")
            acked = worker.ack()
            await asyncio.sleep(0)
            await worker.broker.close()
            assert [result.error for result in (await acked).results] == [None]

    on_virtual_time(scenario)


@pytest.mark.parametrize(
    "terms",
    [{"handlers": 1}, {"handlers": None}, {"credit": 1}, {"room": None}],
    ids=["busy handlers", "unknown handlers", "no credit", "in this process"],
)
def test_an_ack_that_its_consumer_may_need_does_not_wait(terms: dict[str, Any]) -> None:
    """A consumer without a free handler or credit, or in the process of the broker, is answered at once."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock, **terms) as worker:
            await worker.broker.enqueue("q", b"")
            begun_ms = clock.now_ms()
            await worker.ack()
            assert clock.now_ms() == begun_ms

    on_virtual_time(scenario)


def test_an_ack_does_not_wait_while_a_message_is_held_back() -> None:
    """A message that a cap holds back is leased as soon as the one before it is acknowledged."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock, key_cap=1) as worker:
            await worker.broker.enqueue("q", b"first")
            await worker.broker.enqueue("q", b"second")
            assert len(worker.held) == 1
            begun_ms = clock.now_ms()
            await worker.ack()
            assert len(worker.held) == 1
            assert clock.now_ms() == begun_ms

    on_virtual_time(scenario)


def test_an_ack_does_not_wait_while_a_caller_waits_for_its_message() -> None:
    """A caller that waits for the end of a message learns of it at once."""

    async def scenario(clock: FakeClock) -> None:
        async with working(clock) as worker:
            message_id = await worker.broker.enqueue("q", b"")
            watching = asyncio.create_task(worker.broker.call(GetStatus(id=message_id, wait_ms=60_000)))
            for _ in range(5):
                await asyncio.sleep(0)
            begun_ms = clock.now_ms()
            await worker.ack()
            await watching
            assert clock.now_ms() == begun_ms

    on_virtual_time(scenario)
