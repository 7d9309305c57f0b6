"""Waiters and consumers: first come first served, without polling, and nothing lost when they go."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlane.broker.requests import Attach, AttachedConsumer, Waiter
from fairlane.broker.settings import Settings
from fairlane.broker.waiting.room import Room
from fairlane.errors import FairlaneError, QueueNotFound, TooManyWaiters
from fairlane.testing.faulty_store import FaultyStore
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease


def test_waiters_are_served_in_the_order_they_came() -> None:
    """Three wait; each new message goes to the one that has waited longest."""
    broker = broker_with()
    waiters = [start_lease(broker) for _ in range(3)]
    broker.enqueue("q", b"1")
    assert [waiter.done() for waiter in waiters] == [True, False, False]
    broker.enqueue_many("q", [message(b"2"), message(b"3")])
    assert [payloads(waiter.get()) for waiter in waiters] == [[b"1"], [b"2"], [b"3"]]


def test_a_waiter_is_answered_in_the_very_commit_that_brings_the_message() -> None:
    """No time passes and no poll is made between enqueue and delivery."""
    broker = broker_with()
    waiter = start_lease(broker)
    before = broker.clock.now_ms()
    broker.enqueue("q", b"x")
    assert payloads(waiter.get()) == [b"x"]
    assert broker.clock.now_ms() == before


def test_a_waiter_gets_up_to_its_count_and_no_more() -> None:
    """It is answered with what there is, at most as many as it asked for."""
    broker = broker_with()
    waiter = start_lease(broker, count=3)
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    assert payloads(waiter.get()) == [b"1", b"2"]
    broker.enqueue_many("q", [message()] * 9)
    assert len(broker.lease("q", 4)) == 4


def test_streams_and_polls_are_counted_apart() -> None:
    """A stream that waits for messages is a consumer and no poll, and a poll is no consumer."""
    broker = broker_with()
    broker.attach("q", credit=2)
    view = broker.queue("q")
    assert (view.consumers, view.waiters) == (1, 0)
    start_lease(broker)
    view = broker.queue("q")
    assert (view.consumers, view.waiters) == (1, 1)


def test_a_waiter_leaves_with_nothing_when_its_time_is_over() -> None:
    """To the millisecond; without a wait at once."""
    broker = broker_with()
    assert broker.lease("q") == []
    waiter = start_lease(broker, wait_ms=500)
    broker.advance(499)
    assert not waiter.done()
    broker.advance(1)
    assert waiter.get() == []
    start = broker.clock.now_ms()
    assert broker.lease("q", wait_ms=750) == []
    assert broker.clock.now_ms() == start + 750
    assert broker.queue("q").waiters == 0


def test_a_cancelled_waiter_loses_nothing() -> None:
    """One that gave up before is passed over; one that gave up while its lease was committed gives it back."""
    broker = broker_with({"max_attempts": 1})
    gone, stays = start_lease(broker), start_lease(broker)
    gone.cancel()
    broker.enqueue("q", b"1")
    assert payloads(stays.get()) == [b"1"]
    late = start_lease(broker)
    broker.engine.taps.append(lambda *_: late.cancel())
    store_sync = broker.store.sync

    def sync() -> None:
        store_sync()
        late.cancel()

    broker.store.sync = sync  # type: ignore[method-assign] # the store is where time passes between lease and delivery
    broker.enqueue("q", b"2")
    broker.store.sync = store_sync  # type: ignore[method-assign] # as it was
    again = lease_one(broker)
    assert (again.payload, again.failures) == (b"2", 0)


def test_as_many_wait_as_may() -> None:
    """One more is turned away with a code; when one leaves, another may come."""
    broker = broker_with(settings=Settings(waiters_max=2))
    first, _ = start_lease(broker), start_lease(broker, wait_ms=100)
    with pytest.raises(TooManyWaiters):
        broker.lease("q", wait_ms=5)
    with pytest.raises(TooManyWaiters):
        broker.attach("q")
    broker.advance(100)
    consumer, _ = broker.attach("q")
    with pytest.raises(TooManyWaiters):
        broker.lease("q", wait_ms=5)
    broker.detach(consumer)
    first.cancel()
    assert broker.lease("q", wait_ms=5) == []
    assert [broker.lease("q", wait_ms=5) for _ in range(3)] == [[], [], []]


def test_who_does_not_wait_is_no_waiter() -> None:
    """A lease that takes what is there at once is not turned away because others wait elsewhere."""
    broker = broker_with(settings=Settings(waiters_max=1))
    broker.create_queue("r")
    broker.enqueue("r", b"x")
    start_lease(broker)
    assert payloads(broker.lease("r")) == [b"x"]


def test_a_consumer_has_no_more_in_flight_than_its_credit() -> None:
    """Each ack, nack or expiry lets one more come; the default is thirty-two."""
    broker = broker_with({"backoff_ms": 40_000, "backoff_jitter": 0.0})
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(50)])
    _, got = broker.attach("q")
    assert len(got) == 32
    broker.ack(got[0])
    assert len(got) == 33
    broker.nack(got[1])
    assert len(got) == 34
    broker.advance(30_000)
    assert len(got) == 34 + 32


def test_fairness_is_decided_when_a_message_is_handed_out() -> None:
    """A quiet tenant that comes late is next, since the rest of the noisy one's backlog is not in anybody's buffer."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="noisy")] * 1_000)
    _, got = broker.attach("q", credit=4)
    broker.enqueue("q", b"", fairness_key="quiet")
    broker.ack(got[0])
    broker.ack(got[1])
    assert "quiet" in [delivery.fairness_key for delivery in got[4:6]]


def test_consumers_and_waiters_share_one_line() -> None:
    """Neither kind starves the other: whoever was served goes to the end, consumers with credit left too."""
    broker = broker_with()
    _, got = broker.attach("q", credit=1_000)
    waiters = []
    for _ in range(10):
        waiters.append(start_lease(broker))
        broker.enqueue_many("q", [message(), message()])
    served = sum(waiter.done() for waiter in waiters)
    assert served >= 9
    assert served + len(got) == 20


def test_a_vanished_consumers_leases_are_released_and_counted() -> None:
    """What it had goes back at once, to whoever waits: lost attempts of kind ``release``, which are no failures."""
    broker = broker_with({"backoff_ms": 100, "max_attempts": 1})
    broker.enqueue("q", b"x")
    consumer, got = broker.attach("q", owner="w")
    waiter = start_lease(broker)
    broker.detach(consumer)
    view = broker.get("q", got[0].id)
    assert (view.failures, view.errors[0].reason, view.owner) == (0, "release", None)
    assert waiter.get()[0].attempt == 2
    broker.detach(consumer)
    assert broker.queue("q").consumers == 0


def test_a_consumer_that_leaves_its_messages_untouched_has_failed_none() -> None:
    """What it never saw goes back at once and counts as no failure."""
    broker = broker_with({"max_attempts": 1})
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    consumer, got = broker.attach("q")
    leaving = broker.submit(lambda reply: Attach(consumer, reply, is_closing=True, unseen=got))
    broker.step()
    assert leaving.done()
    assert [(d.payload, d.failures, d.attempt) for d in broker.lease("q", 9)] == [(b"1", 0, 2), (b"2", 0, 2)]
    assert len(got) == 2


def test_ending_a_consumer_that_never_began_is_nothing() -> None:
    """Closing after a refused start, or twice, is no error and disturbs nobody."""
    broker = broker_with()
    consumer = AttachedConsumer(queue="q", credit=1, deliver=lambda _deliveries: None)
    broker.detach(consumer)
    broker.detach(consumer)
    unknown = AttachedConsumer(queue="no", credit=1, deliver=lambda _deliveries: None)
    broker.detach(unknown)
    assert broker.queue("q").consumers == 0


def test_deleting_a_queue_sends_away_waiters_and_consumers() -> None:
    """Waiters are refused, consumers end, and a queue of the same name has neither."""
    broker = broker_with(settings=Settings(waiters_max=2))
    waiter = start_lease(broker)
    consumer, got = broker.attach("q")
    broker.delete_queue("q")
    with pytest.raises(QueueNotFound):
        waiter.get()
    assert consumer.is_closed
    broker.create_queue("q")
    broker.enqueue("q", b"x")
    assert (got, broker.queue("q").consumers, broker.queue("q").waiters) == ([], 0, 0)
    for _ in range(2):
        start_lease(broker, "q.dlq")


def test_more_than_one_commit_holds_is_handed_out_by_the_next() -> None:
    """With a commit of ten events at most, waiters for thirty messages all get theirs without time passing."""
    broker = broker_with(settings=Settings(cycle_events_max=10))
    waiters = [start_lease(broker, count=10) for _ in range(3)]
    before = broker.clock.now_ms()
    broker.enqueue_many("q", [message()] * 30)
    assert [len(waiter.get()) for waiter in waiters] == [10, 10, 10]
    assert broker.clock.now_ms() == before


def test_the_largest_batch_is_handed_out_to_a_waiter() -> None:
    """Ten thousand messages in one request reach a consumer that waits for ten thousand."""
    broker = broker_with()
    waiter = start_lease(broker, count=10_000)
    broker.enqueue_many("q", [message()] * 10_000)
    assert waiter.done()
    total = len(waiter.get())
    while more := broker.lease("q", 10_000):
        total += len(more)
    assert total == 10_000


@pytest.mark.parametrize("fault", ["before_write", "after_write", "sync"])
def test_a_failed_commit_strands_no_message_and_no_consumer(fault: Any) -> None:
    """Waiters are told, messages leased by the lost turn are free again, and a consumer whose start failed has none."""
    store = FaultyStore(random.Random(7))
    broker = broker_with({"max_attempts": 1}, store=store)
    waiter = start_lease(broker)
    store.faults.arm(fault)
    with pytest.raises(FairlaneError):
        broker.enqueue("q", b"x")
    if not waiter.done():
        waiter.cancel()
    broker.purge("q")
    broker.enqueue("q", b"y")
    store.faults.arm(fault)
    with pytest.raises(FairlaneError):
        broker.attach("q")
    assert broker.queue("q").consumers == 0
    again = lease_one(broker, wait_ms=1_000)
    assert (again.payload, again.failures) == (b"y", 0)


def test_a_reader_that_was_passed_over_is_served_when_the_other_lease_has_no_taker() -> None:
    """A client takes back one of two leases while the cycle is synced; the other gets its message in the next cycle."""
    broker = broker_with()
    broker.create_queue("other")
    room = Room(100)
    for queue in ("q", "other"):
        broker.enqueue(queue, bytes(200))
    taken_back = broker.submit(lambda reply: Waiter(queue="q", count=1, reply=reply, wait_ms=60_000, room=room))
    waiting = broker.submit(lambda reply: Waiter(queue="other", count=1, reply=reply, wait_ms=60_000, room=room))
    cycle = broker.engine.begin()
    broker.engine.write(cycle)
    taken_back.cancel()
    broker.engine.finish(cycle)
    assert not waiting.done()
    broker.step()
    assert [len(delivery.payload) for delivery in waiting.get().deliveries] == [200]
