"""A disk that is almost full: what adds to the store is refused, and everything that drains it works."""

from __future__ import annotations

import logging

import pytest

from fairlane.broker.settings import Settings
from fairlane.errors import StoreFailed, StoreFull
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.batches import Stage
from fairlane.verbs.messages import Enqueue

MIB = 1 << 20


class FakeDisk:
    """A disk of 8 GiB whose free space a test sets."""

    def __init__(self) -> None:
        self.free = 4 << 30
        self.total = 8 << 30
        self.is_gone = False
        self.reclaimed = 0
        self.fails = False

    def free_bytes(self) -> int:
        if self.is_gone:
            raise OSError("gone")
        return self.free

    def total_bytes(self) -> int:
        return self.total

    def reclaim(self) -> None:
        self.reclaimed += 1
        if self.fails:
            raise StoreFailed("No space to return space.")


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def broker(disk: FakeDisk) -> SteppedBroker:
    broker = SteppedBroker(disk=disk)
    broker.create_queue("orders")
    broker.enqueue_many("orders", [NewMessage(payload=b"%d" % at) for at in range(4)])
    return broker


def test_a_full_disk_can_be_drained(disk: FakeDisk, broker: SteppedBroker) -> None:
    """Below the reserve an enqueue, a forward, a state and a staged batch are refused; all else works."""
    (leased,) = broker.lease("orders")
    disk.free = 255 * MIB
    broker.advance(10_000)
    with pytest.raises(StoreFull, match=r"has 255.0 MiB free, less than the reserve of 256.0 MiB \(disk_reserve_bytes"):
        broker.enqueue("orders", b"x")
    growing = (
        lambda: broker.ack(leased, forward={"orders": [NewMessage(payload=b"x")]}),
        lambda: broker.set_state(leased, b"x", etag=None),
        lambda: broker.stage("orders", "s", batch=0, part="p", at=0, messages=[NewMessage(payload=b"x")]),
    )
    for add in growing:
        with pytest.raises(StoreFull):
            add()
    broker.extend(leased)
    broker.nack(leased, delay_ms=0)
    for _ in range(4):
        (delivery,) = broker.lease("orders")
        broker.ack(delivery)
    broker.create_queue("others")
    assert broker.queue("orders").waiting == 0


def test_enqueues_are_accepted_again_without_a_restart(
    disk: FakeDisk, broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Space that comes back is noticed within 200 ms, and the log has both changes, once each."""
    with caplog.at_level(logging.INFO, "fairlane.broker"):
        disk.free = 0
        broker.advance(10_000)
        for _ in range(3):
            with pytest.raises(StoreFull):
                broker.enqueue("orders", b"x")
            broker.advance(10_000)
        disk.free = 256 * MIB
        broker.advance(200)
        broker.enqueue("orders", b"x")
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "Enqueues are refused" in caplog.messages[0]
    assert "The disk has 256 MiB free again." in caplog.messages[1]


def test_a_fast_producer_can_not_pass_the_reserve_between_two_looks(disk: FakeDisk) -> None:
    """An eighth of the reserve is written at most before the disk is looked at again, at the same instant."""
    broker = SteppedBroker(disk=disk, settings=Settings(disk_reserve_bytes=8_000))
    broker.create_queue("orders")
    broker.enqueue("orders", bytes(900))
    disk.free = 7_999
    broker.enqueue("orders", bytes(900))
    with pytest.raises(StoreFull):
        broker.enqueue("orders", bytes(900))


def test_producers_that_wait_for_capacity_are_refused_too(disk: FakeDisk) -> None:
    """Room in the queue is no room on the disk: they get store_full at once, for what was not taken in before."""
    broker = SteppedBroker(disk=disk)
    broker.create_queue("orders", {"backpressure": "wait", "waiting_max": 2})
    news = [NewMessage(payload=b"x")]
    broker.enqueue("orders", b"x")
    enqueue = broker.start(Enqueue(queue="orders", messages=news * 3, wait_ms=60_000))
    stage = broker.start(Stage(queue="orders", sink="s", batch=0, part="p", at=0, messages=news, wait_ms=60_000))
    broker.step()
    assert (enqueue.done(), stage.done()) == (False, False)
    disk.free = 0
    broker.advance(10_000)
    (leased,) = broker.lease("orders")
    broker.ack(leased)
    errors = [result.error for result in enqueue.get().results]
    assert [error and error.code for error in errors] == [None, "store_full", "store_full"]
    with pytest.raises(StoreFull):
        stage.get()
    assert broker.queue("orders").waiting == 1


def test_a_small_disk_has_a_small_reserve(disk: FakeDisk) -> None:
    """An eighth of the disk is enough: 24 MiB with 4 MiB free accept messages, with 2 MiB free they don't."""
    disk.total, disk.free = 24 * MIB, 4 * MIB
    broker = SteppedBroker(disk=disk)
    broker.create_queue("orders")
    broker.enqueue("orders", b"x")
    disk.free = 2 * MIB
    broker.advance(10_000)
    with pytest.raises(StoreFull, match=r"reserve of 3\.0 MiB"):
        broker.enqueue("orders", b"x")


def test_a_disk_that_grows_has_a_larger_reserve(disk: FakeDisk) -> None:
    """An operator who enlarges a small disk needs no restart to get the whole reserve."""
    disk.total, disk.free = 24 * MIB, 4 * MIB
    broker = SteppedBroker(disk=disk)
    broker.create_queue("orders")
    disk.total, disk.free = 8 << 30, 255 * MIB
    broker.advance(10_000)
    with pytest.raises(StoreFull, match=r"reserve of 256\.0 MiB"):
        broker.enqueue("orders", b"x")


def test_a_drained_store_is_asked_to_return_space_while_it_is_short(disk: FakeDisk) -> None:
    """Every two seconds, once copying what it holds could not fill the disk; and not while there is space."""
    broker = SteppedBroker(disk=disk)
    broker.create_queue("orders")
    broker.enqueue("orders", bytes(600_000))
    disk.free = MIB
    broker.advance(10_000)
    counts = []
    for at in range(6):
        with pytest.raises(StoreFull):
            broker.enqueue("orders", b"x")
        counts.append(disk.reclaimed)
        if at == 0:
            broker.ack(*broker.lease("orders"))
        broker.advance(1_000)
    disk.free = 4 << 30
    broker.advance(10_000)
    broker.enqueue("orders", b"x")
    assert (counts, disk.reclaimed) == ([0, 1, 1, 2, 2, 3], 3)


def test_a_store_that_fails_to_return_space_is_logged(
    disk: FakeDisk, broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The cycle goes on; whether the store can still be written to, the next commit shows."""
    disk.free, disk.fails = MIB, True
    broker.advance(10_000)
    assert len(broker.lease("orders", 4)) == 4
    assert "No space to return space." in caplog.messages


def test_a_disk_that_does_not_tell_refuses_nothing(disk: FakeDisk, broker: SteppedBroker) -> None:
    """If the operating system can't say how much is free, the store itself says what it can't write."""
    disk.is_gone = True
    broker.advance(10_000)
    broker.enqueue("orders", b"x")


def test_a_short_disk_that_does_not_tell_any_more_is_not_said_to_have_space(
    disk: FakeDisk, broker: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Enqueues are accepted, and the log says that nothing is known instead of the last number."""
    disk.free = 0
    broker.advance(10_000)
    with pytest.raises(StoreFull):
        broker.enqueue("orders", b"x")
    disk.is_gone = True
    caplog.clear()
    with caplog.at_level(logging.INFO, "fairlane.broker"):
        broker.advance(200)
        broker.enqueue("orders", b"x")
    assert caplog.messages == ["The free space of the disk is unknown: gone. Enqueues are accepted."]


def test_default_limits_are_named() -> None:
    """A queue and a broker have limits on messages and bytes unless an operator lifts them."""
    broker = SteppedBroker()
    broker.create_queue("orders")
    policy = broker.queue("orders").policy
    assert (policy.waiting_max, policy.waiting_bytes_max) == (2_000_000, 64 << 30)
    assert (Settings().waiting_max, Settings().waiting_bytes_max) == (4_000_000, 256 << 30)
