"""Bad days: stores that fail, calls that are interrupted, bodies that are too much; the broker stays usable."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import cast

import pytest

from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.requests import Call
from fairlane.errors import FairlaneError, StoreFailed
from fairlane.model.message import NewMessage
from fairlane.testing.faulty_store import FaultyStore
from tests.kit.waiting import PATIENCE_S
from tests.unit.broker.brokers import Background, MoodyStore, engine_on, run
from tests.unit.broker.stepping import broker_with, payloads


class Interrupted(BaseException):
    """What a signal handler may raise anywhere, like KeyboardInterrupt."""


@pytest.mark.parametrize("place", ["at_write", "at_sync"])
@pytest.mark.parametrize(
    "error", [StoreFailed("No."), OSError("disk"), UnicodeError("odd")], ids=lambda e: type(e).__name__
)
def test_threads_survive_a_store_that_fails_once(place: str, error: Exception) -> None:
    """The call is refused as a failure of the store, nothing is half done, waiters are served, and all goes on."""
    store = MoodyStore()
    with Broker(engine_on(store)) as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"before")
        (held,) = broker.lease("q")
        setattr(store, place, error)
        with pytest.raises((FairlaneError, type(error))):
            broker.enqueue("q", b"lost", dedup_id="d")
        waiting = Background(lambda: broker.lease("q", wait_ms=60_000))
        again = broker.enqueue("q", b"again", dedup_id="d")
        assert [delivery.id for delivery in waiting.get()] == [again]
        broker.ack(held)
        assert broker.queue("q").waiting == 0


@pytest.mark.parametrize("slow_sync_s", [0.0, 60.0])
@pytest.mark.parametrize("place", ["at_write", "at_sync"])
@pytest.mark.parametrize(
    "error", [StoreFailed("No."), OSError("disk"), UnicodeError("odd")], ids=lambda e: type(e).__name__
)
def test_a_loop_survives_a_store_that_fails_once(place: str, slow_sync_s: float, error: Exception) -> None:
    """The same in a loop, syncing inside it or in a thread; nobody waits for ever."""

    async def main() -> None:
        store = MoodyStore()
        async with AsyncBroker(engine_on(store), slow_sync_s=slow_sync_s) as broker:
            await broker.create_queue("q")
            await broker.enqueue("q", b"before")
            (held,) = await broker.lease("q")
            setattr(store, place, error)
            with pytest.raises(StoreFailed):
                async with asyncio.timeout(PATIENCE_S):
                    await broker.enqueue("q", b"lost", dedup_id="d")
            waiting = asyncio.create_task(broker.lease("q", wait_ms=60_000))
            again = await broker.enqueue("q", b"again", dedup_id="d")
            assert [delivery.id for delivery in await waiting] == [again]
            await broker.ack(held)

    run(main())


@pytest.mark.parametrize("place", ["at_write", "at_sync"])
@pytest.mark.parametrize("error", [Interrupted(), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_an_interrupt_inside_a_turn_leaves_a_usable_broker(place: str, error: BaseException) -> None:
    """Whoever ran the turn gets the interrupt; leases, messages and waiters of others are as the store has them."""
    store = MoodyStore()
    with Broker(engine_on(store)) as broker:
        broker.create_queue("q")
        broker.enqueue_many("q", [NewMessage(payload=b"%d" % n) for n in range(3)])
        (held,) = broker.lease("q")
        setattr(store, place, error)
        with pytest.raises(type(error)):
            broker.enqueue("q", b"interrupted")
        broker.ack(held)
        left = [delivery.payload for delivery in broker.lease("q", 9)]
        assert left[:2] == [b"1", b"2"]
        assert left[2:] in ([], [b"interrupted"])


@pytest.mark.parametrize("error", [StoreFailed("No."), OSError("disk")], ids=lambda e: type(e).__name__)
def test_a_turn_that_time_asked_for_and_that_fails_is_not_the_last(error: Exception) -> None:
    """When the store fails while a lease is being taken back, the next attempts of the pacer still come."""
    store = MoodyStore()
    with Broker(engine_on(store)) as broker:
        broker.create_queue("q", {"visibility_timeout_ms": 30, "backoff_ms": 0})
        broker.enqueue("q", b"x")
        broker.lease("q")
        store.at_write = error
        with contextlib.suppress(StoreFailed):  # if it was to be handed out in that very turn
            broker.lease("q", wait_ms=60_000)
        assert broker.lease("q", wait_ms=60_000)
        assert broker.lease("q", wait_ms=60_000)


@pytest.mark.parametrize("times", [1, 3])
def test_a_store_that_can_not_be_opened_for_a_while(times: int) -> None:
    """Requests are refused until the store opens again; then all that was durable is there."""
    store = FaultyStore(random.Random(5))
    broker = broker_with(store=store)
    broker.enqueue("q", b"before")
    store.faults.arm("sync")
    store.faults.arm("recover", times=times)
    refused = 0
    while refused < 20:
        try:
            broker.enqueue("q", b"again", dedup_id="d")
        except FairlaneError:
            refused += 1
            broker.advance(5_000)
        else:
            break
    assert 1 <= refused <= times + 1
    assert payloads(broker.lease("q", 9)) == [b"before", b"again"]


def test_a_full_disk_refuses_and_heals() -> None:
    """While it is full every write is refused and reads go on; freed, everything goes on with what was durable."""
    store = FaultyStore(random.Random(5))
    broker = broker_with(store=store)
    message_id = broker.enqueue("q", b"before")
    store.faults.arm("full")
    for _ in range(5):
        with pytest.raises(StoreFailed):
            broker.enqueue("q", b"no")
        broker.advance(2_000)
    store.free()
    broker.advance(2_000)
    assert broker.get("q", message_id).payload == b"before"
    broker.enqueue("q", b"after")
    assert payloads(broker.lease("q", 9)) == [b"before", b"after"]


class Watched:
    """A request, like ``Call``. Whenever the engine looks at it, another comes in, as from another thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def reply(self) -> None:
        """Nobody waits for it."""
        self._engine.submit(cast("Call", Watched(self._engine)))


def test_requests_may_come_while_the_engine_looks_at_others() -> None:
    """Threads that ask while a store is away, or while the broker closes, never disturb the one that runs a cycle."""
    engine = engine_on(MoodyStore())
    for _ in range(3):
        engine.submit(cast("Call", Watched(engine)))
    engine._failures = 1
    assert not engine.has_requests()
    engine._refuse_inbox(StoreFailed("No."))
    assert len(engine.inbox) > 3
    engine.let_go()
    assert not engine.inbox


def test_a_group_of_callers_is_refused_together_and_can_repeat() -> None:
    """Eight threads in one failed commit each get their error; repeated by dedup id, each message is there once."""
    store = MoodyStore()
    with Broker(engine_on(store)) as broker:
        broker.create_queue("q")

        def send(name: str) -> str:
            for _ in range(50):
                try:
                    return broker.enqueue("q", name.encode(), dedup_id=name)
                except StoreFailed:
                    continue
            raise AssertionError("It never got through.")

        for round_ in range(10):
            store.at_sync = StoreFailed("No.")
            calls = [Background(lambda n=n, r=round_: send(f"{r}-{n}")) for n in range(8)]  # type: ignore[misc] # bound
            ids = {call.get() for call in calls}
            assert len(ids) == 8
        assert len({delivery.payload for delivery in broker.lease("q", 999)}) == 80


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_that_can_not_be_written_stops_nobody(text: str) -> None:
    """In a loop a key, an error, a header and a config value of lone surrogates are refused, and calls beside go on."""

    async def main() -> None:
        async with AsyncBroker(engine_on(MoodyStore())) as broker:
            await broker.create_queue("q")
            await broker.enqueue("q", b"x")
            (held,) = await broker.lease("q")
            calls = [
                broker.enqueue("q", b"", fairness_key=text),
                broker.enqueue("q", b"", headers={"a": text}),
                broker.nack(held, error=text),
                broker.set_config("a", text),
                broker.create_queue("r", {"fairness_key_from": text}),
                broker.pause("q", key=text),
                broker.set_reader(text, 0),
            ]
            async with asyncio.timeout(PATIENCE_S):
                results = await asyncio.gather(broker.enqueue("q", b"good"), *calls, return_exceptions=True)
            assert isinstance(results[0], str)
            codes = {getattr(result, "code", None) for result in results[1:] if isinstance(result, BaseException)}
            assert codes <= {"invalid_argument"}
            assert (await broker.queue("q")).waiting >= 1

    run(main())
