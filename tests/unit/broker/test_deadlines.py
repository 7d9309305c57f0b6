"""Deadlines after the lease: what a delivery says of its own, and that no stream gives out a late message."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.system import SystemEntropy
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.model.message import NewMessage
from fairlane.ports.store import Commit
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, payloads, start_lease


def test_a_delivery_carries_its_deadline_and_the_time_left() -> None:
    """The instant is the broker's; the time left needs no common clock, and shrinks while the message waits."""
    broker = broker_with()
    now_ms = broker.clock.now_ms()
    broker.enqueue("q", b"soon", deadline_ms=500)
    broker.enqueue("q", b"whenever")
    broker.advance(120)
    soon, whenever = broker.lease("q", 2)
    assert (soon.deadline_ms, soon.time_left_ms) == (now_ms + 500, 380)
    assert (whenever.deadline_ms, whenever.time_left_ms) == (None, None)


@pytest.mark.parametrize(("action", "dead"), [("drop", 0), ("dlq", 1)])
def test_a_message_returned_after_its_deadline_follows_the_policy_without_a_failure(action: str, dead: int) -> None:
    """A consumer defers what it got too late; the broker drops it or makes it a dead letter with no failed attempt."""
    broker = broker_with({"deadline_action": action})
    broker.enqueue("q", b"x", deadline_ms=100)
    delivery = lease_one(broker)
    broker.clock.advance(101)
    broker.nack(delivery, intent="defer")
    broker.step()
    view = broker.queue("q")
    assert (view.waiting, view.leased, view.dead) == (0, 0, dead)
    assert [(letter.failures, letter.dead.reason) for letter in broker.peek("q.dlq") if letter.dead] == (
        [(0, "deadline")] * dead
    )


class SlowStore(MemoryStore):
    """A store whose commits take time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.sync_ms = 0

    def write(self, commit: Commit) -> None:
        super().write(commit)
        self._clock.advance(self.sync_ms)


def _enqueue_while_slow(broker: SteppedBroker, store: SlowStore) -> None:
    """Enqueue a message that outlasts the next commit, and before it one that does not."""
    broker.enqueue("q", b"late", deadline_ms=100)
    broker.enqueue("q", b"in time", deadline_ms=5_000)
    store.sync_ms = 101


def test_a_deadline_that_passes_during_the_commit_keeps_the_message_from_its_consumers() -> None:
    """The lease is durable too late for one of two messages: waiters and streams get only the other one."""
    clock = FakeClock()
    store = SlowStore(clock)
    broker = broker_with(store=store, clock=clock)
    _enqueue_while_slow(broker, store)
    assert payloads(broker.lease("q", 2)) == [b"in time"]
    store.sync_ms = 0
    _enqueue_while_slow(broker, store)
    assert payloads(broker.attach("q")[1]) == [b"in time"]
    store.sync_ms = 0
    broker.step()
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (0, 2)


def test_a_waiter_whose_only_message_is_too_late_is_answered_with_none() -> None:
    """It asks again; nothing is left in its hands."""
    clock = FakeClock()
    store = SlowStore(clock)
    broker = broker_with(store=store, clock=clock)
    waiter = start_lease(broker)
    store.sync_ms = 101
    broker.enqueue("q", b"late", deadline_ms=100)
    assert waiter.get() == []
    store.sync_ms = 0
    broker.step()
    assert broker.queue("q").leased == 0


def _engine(clock: FakeClock) -> Engine:
    engine = Engine(MemoryStore(), hooks=LuaHooks(lambda _queue, _key: None), clock=clock, entropy=SystemEntropy())
    engine.open()
    return engine


THREE = [NewMessage(payload=b"1"), NewMessage(payload=b"2", deadline_ms=300), NewMessage(payload=b"3")]


def test_threads_a_stream_skips_what_has_expired_in_it() -> None:
    """Of three prefetched messages the second one's deadline passes while the first is handled: it never comes out."""
    clock = FakeClock()
    with Broker(_engine(clock)) as broker:
        broker.create_queue("q")
        broker.enqueue_many("q", THREE)
        with broker.consume("q", credit=3) as stream:
            assert next(stream).payload == b"1"
            clock.advance(301)
            assert next(stream).payload == b"3"
            assert broker.queue("q").leased == 2


def test_asyncio_a_stream_skips_what_has_expired_in_it() -> None:
    """The same in a loop."""

    async def main() -> None:
        clock = FakeClock()
        async with AsyncBroker(_engine(clock)) as broker:
            await broker.create_queue("q")
            await broker.enqueue_many("q", THREE)
            async with broker.consume("q", credit=3) as stream:
                assert (await anext(stream)).payload == b"1"
                clock.advance(301)
                assert (await anext(stream)).payload == b"3"
                assert (await broker.queue("q")).leased == 2

    asyncio.run(main())
