"""Payloads in a store whose reads take long: others are served meanwhile, and nothing is read for a lost lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.settings import Settings
from fairlane.errors import Closed, FairlaneError, LeaseMismatch, StoreCorrupt, StoreFailed
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.uploads import ReadPayload
from tests.kit.waiting import PATIENCE_S, until, wait_until
from tests.unit.broker.brokers import Background, engine_on, run
from tests.unit.broker.stepping import broker_with, lease_one
from tests.unit.broker.test_uploads import PAYLOAD, PIECE, SMALL, enqueue, streamed, uploaded

AHEAD = 3
LONG = PAYLOAD[:PIECE] * 8


class RemoteMemory(MemoryStore):
    """A store in memory whose fetches wait until they may go on, as those from a distant server do.

    Attributes:
        begun: the pieces whose fetches have begun.
        may_go: whether fetches go on.
        fault: what the next fetches raise.
        read: the numbers of the bodies that were read in a cycle.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.may_go = threading.Event()
        self.fault: Exception | None = None
        self.read: list[int] = []

    def fetch(self, numbers: Sequence[int]) -> list[bytes | None]:
        self.begun += numbers
        assert self.may_go.wait(PATIENCE_S)
        if self.fault is not None:
            raise self.fault
        return super().bodies(numbers)

    def bodies(self, numbers: Sequence[int]) -> list[bytes | None]:
        self.read += numbers
        return super().bodies(numbers)


class HeldFetches:
    """Stands for the threads of a front end: fetches that are run when a test says so."""

    def __init__(self, broker: SteppedBroker) -> None:
        self._broker = broker
        self._waiting: list[object] = []
        broker.engine.fetches.run = self._waiting.append

    def go(self) -> None:
        """Run all of them, and a cycle."""
        while self._waiting:
            load = self._waiting.pop(0)
            assert callable(load)
            load()
        self._broker.step()


def stepped(payload: bytes = LONG) -> tuple[SteppedBroker, RemoteMemory]:
    """Return a broker with a message, and its store, whose fetches take no time."""
    store = RemoteMemory()
    store.may_go.set()
    broker = broker_with(store=store, settings=SMALL)
    enqueue(broker, uploaded(broker, payload))
    store.read.clear()
    return broker, store


def request_of(delivery: Delivery, offset: int = 0) -> ReadPayload:
    return ReadPayload(queue="q", id=delivery.id, token=delivery.token, offset=offset)


# ------------------------------------------------------------------------------------------------------------- reading


def test_every_byte_is_fetched_once_and_none_in_a_cycle() -> None:
    """A payload is read as from any other store, each piece with one request, and the cycles read none of it."""
    broker, store = stepped()
    delivery = lease_one(broker)
    store.read.clear()
    assert streamed(broker, delivery) == LONG
    assert len(store.begun) == len(set(store.begun)) == 8
    assert store.read == []


def test_the_next_pieces_are_fetched_before_they_are_asked_for() -> None:
    """A reader of whole pieces finds the next three on their way; one that looks at a few bytes costs one request."""
    broker, store = stepped()
    delivery = lease_one(broker)
    broker.call(request_of(delivery))
    assert len(store.begun) == 1 + AHEAD
    broker.call(request_of(delivery, PIECE))
    assert len(store.begun) == 2 + AHEAD
    broker.read_payload("q", delivery.id, offset=6 * PIECE + 3, count=2)
    assert len(store.begun) == 3 + AHEAD


def test_ranges_are_cut_out_of_pieces() -> None:
    """Offsets and counts mean the same as in any other store."""
    broker, _ = stepped(PAYLOAD)
    delivery = lease_one(broker)
    for offset, count, found in ((7, 2, PAYLOAD[7:9]), (12, None, PAYLOAD[12:20]), (25, 9, b"Z"), (26, None, b"")):
        assert broker.read_payload("q", delivery.id, offset=offset, count=count).data == found


def test_two_that_read_the_same_piece_both_get_it() -> None:
    """A piece is given to one request; another that waits for it has it fetched again."""
    broker, store = stepped()
    held = HeldFetches(broker)
    delivery = lease_one(broker)
    both = [broker.start(request_of(delivery)) for _ in range(2)]
    broker.step()
    while not all(each.done() for each in both):
        held.go()
    assert [each.get().data for each in both] == [LONG[:PIECE]] * 2
    assert store.begun.count(store.begun[0]) == 2


def test_pieces_fetched_ahead_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that never come back leave no more than the limit, and those that do come back get every byte."""
    monkeypatch.setattr("fairlane.broker.waiting.fetches._AHEAD_BYTES_MAX", 6 * PIECE)
    broker, _ = stepped()
    for _ in range(9):
        enqueue(broker, uploaded(broker, LONG))
    deliveries = broker.lease("q", 10)
    for delivery in deliveries:
        broker.call(request_of(delivery))
        assert len(broker.engine.fetches.pieces) <= 6
    assert [streamed(broker, delivery) for delivery in deliveries] == [LONG] * 10


# --------------------------------------------------------------------------------------------------------- lost leases


def test_a_lease_that_ends_during_the_fetch_gets_no_bytes() -> None:
    """The token is checked again when the piece is there: the message may be another consumer's by then."""
    broker, _ = stepped()
    held = HeldFetches(broker)
    delivery = lease_one(broker)
    reading = broker.start(request_of(delivery))
    broker.step()
    broker.advance(31_000)
    assert lease_one(broker).attempt == 2
    held.go()
    with pytest.raises(LeaseMismatch):
        reading.get()


def test_a_message_that_ends_during_the_fetch_is_gone() -> None:
    """Its pieces may be deleted before they are fetched: that is no damage, and nothing is kept of them."""
    broker, store = stepped()
    held = HeldFetches(broker)
    delivery = lease_one(broker)
    reading = broker.start(request_of(delivery))
    broker.step()
    broker.ack(delivery)
    store.fault = StoreCorrupt("The object is missing.")
    held.go()
    with pytest.raises(FairlaneError, match=delivery.id) as refusal:
        reading.get()
    assert refusal.value.code == "message_not_found"
    assert not broker.engine.fetches.pieces


def test_a_piece_that_was_moved_during_the_fetch_is_read_again() -> None:
    """A store may merge its objects between looking up and reading: the cycle reads what the fetch did not find."""
    broker, store = stepped()
    delivery = lease_one(broker)
    store.fault = StoreCorrupt("The object is missing.")
    assert broker.call(request_of(delivery)).data == LONG[:PIECE]
    assert len(store.read) >= 1


def test_a_store_that_fails_refuses_the_read_and_nothing_else() -> None:
    """The reader gets the error, and may read again when the store is back."""
    broker, store = stepped()
    delivery = lease_one(broker)
    store.fault = StoreFailed("The server does not answer.")
    with pytest.raises(StoreFailed, match="does not answer"):
        broker.call(request_of(delivery))
    broker.enqueue("q", b"small")
    store.fault = None
    assert streamed(broker, delivery) == LONG


def test_a_broker_that_closes_refuses_those_who_wait() -> None:
    """A fetch that never ends holds up no caller for ever."""
    broker, _ = stepped()
    HeldFetches(broker)
    reading = broker.start(request_of(lease_one(broker)))
    broker.step()
    broker.close()
    with pytest.raises(Closed):
        reading.get()


# -------------------------------------------------------------------------------------------------- threads and loops


def test_a_loop_serves_others_while_a_store_is_read() -> None:
    """A whole life of another message takes place during one fetch, also through the view of a partition's store."""

    async def main() -> None:
        store = RemoteMemory()
        async with AsyncBroker(engine_on(NumberedStore(store, first=1 << 40), SMALL)) as broker:
            await broker.create_queue("q")
            upload = await broker.begin_upload("q")
            for index in range(3):
                await broker.upload_piece("q", upload.id, index, PAYLOAD[index * PIECE : (index + 1) * PIECE])
            await broker.enqueue("q", NewMessage(upload=upload.id))
            (large,) = await broker.lease("q")
            reading = asyncio.ensure_future(broker.call(request_of(large)))
            await until(lambda: bool(store.begun), "the fetch")
            await broker.enqueue("q", b"small")
            (small,) = await broker.lease("q")
            await broker.ack(small)
            assert not reading.done()
            store.may_go.set()
            assert (await reading).data == PAYLOAD[:PIECE]

    run(main())


def test_threads_serve_others_while_a_store_is_read() -> None:
    """A whole life of another message takes place during one fetch."""
    store = RemoteMemory()
    with Broker(engine_on(store, Settings(piece_bytes=PIECE, payload_bytes_max=20))) as broker:
        broker.create_queue("q")
        upload = broker.begin_upload("q")
        for index in range(3):
            broker.upload_piece("q", upload.id, index, PAYLOAD[index * PIECE : (index + 1) * PIECE])
        broker.enqueue("q", NewMessage(upload=upload.id))
        (large,) = broker.lease("q")
        reading = Background(lambda: broker.call(request_of(large)))
        wait_until(lambda: bool(store.begun), what="the fetch")
        broker.enqueue("q", b"small")
        (small,) = broker.lease("q")
        broker.ack(small)
        store.may_go.set()
        assert reading.get().data == PAYLOAD[:PIECE]


def test_a_bug_in_a_store_leaves_no_caller_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no store should raise is an error for the reader; the threads that met it are replaced."""
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    store = RemoteMemory()
    with Broker(engine_on(store, SMALL)) as broker:
        broker.create_queue("q")
        upload = broker.begin_upload("q")
        for index in range(3):
            broker.upload_piece("q", upload.id, index, PAYLOAD[index * PIECE : (index + 1) * PIECE])
        broker.enqueue("q", NewMessage(upload=upload.id))
        (large,) = broker.lease("q")
        store.may_go.set()
        store.fault = ZeroDivisionError()
        for _ in range(20):
            with pytest.raises(StoreFailed, match="could not be read"):
                Background(lambda: broker.call(request_of(large))).get()
        store.fault = None
        assert Background(lambda: broker.call(request_of(large))).get().data == PAYLOAD[:PIECE]
