"""What the peers' own suites check and no other test here does; each test names its item in the lists."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlane.errors import LeaseMismatch, MessageNotFound
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.counting_store import CountingStore
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease


def test_enqueue_lease_ack_and_then_there_is_nothing() -> None:
    """Fila e2e lifecycle, lockd B5.1: same id, payload and headers; a second ack is not found; the queue is empty."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"body", headers={"a": "b"})
    held = lease_one(broker)
    assert (held.id, held.payload, held.headers) == (message_id, b"body", {"a": "b"})
    broker.ack(held)
    with pytest.raises(MessageNotFound):
        broker.ack(held)
    with pytest.raises(MessageNotFound):
        broker.nack(held)
    assert broker.lease("q") == []


def test_another_consumer_gets_what_was_nacked() -> None:
    """Fila e2e nack retry, B5.2 and 6: the attempt grows by exactly one, and not before the delay."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    for attempt, delay_ms in ((1, 250), (2, 500), (3, 0)):
        held = lease_one(broker, owner=f"consumer-{attempt}")
        assert held.attempt == attempt
        broker.nack(held, delay_ms=delay_ms)
        if delay_ms:
            broker.advance(delay_ms - 1)
            assert broker.lease("q") == []
            broker.advance(1)


def test_a_batch_lease_gives_distinct_messages_up_to_its_count() -> None:
    """B5.4: three of three, then nothing; the count is respected."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(3)])
    assert payloads(broker.lease("q", 2)) == [b"0", b"1"]
    assert payloads(broker.lease("q", 2)) == [b"2"]
    assert broker.lease("q", 2) == []


def test_of_five_consumers_one_gets_the_message() -> None:
    """B5.5: exactly one winner, the others leave with nothing."""
    broker = broker_with()
    waiters = [start_lease(broker, wait_ms=100) for _ in range(5)]
    broker.enqueue("q", b"x")
    broker.advance(100)
    assert [len(waiter.get()) for waiter in waiters] == [1, 0, 0, 0, 0]


def test_after_a_short_visibility_another_gets_it_and_the_first_is_too_late() -> None:
    """Fila e2e visibility, B5.7: the second attempt is larger, and the first one's ack is refused before and after."""
    broker = broker_with({"visibility_timeout_ms": 100, "backoff_ms": 0})
    broker.enqueue("q", b"x")
    first = lease_one(broker)
    broker.advance(100)
    second = lease_one(broker)
    assert second.attempt == first.attempt + 1
    with pytest.raises(LeaseMismatch):
        broker.ack(first)
    broker.ack(second)
    with pytest.raises(MessageNotFound):
        broker.ack(first)


def test_what_one_broker_enqueued_the_next_on_the_same_store_serves() -> None:
    """Fila e2e crash, B5.8: after the process has died the message is there and can be acked."""
    broker = broker_with()
    ids = [broker.enqueue("q", b"%d" % n) for n in range(5)]
    heir = SteppedBroker(broker.store, clock=broker.clock)
    held = heir.lease("q", 9)
    assert [delivery.id for delivery in held] == ids
    assert heir.ack_many("q", held) == [None] * 5


def test_an_idle_broker_does_nothing_by_itself() -> None:
    """B5.9: with waiters and without messages an hour passes without a read, a write or a wake-up for them."""
    store = CountingStore()
    broker = broker_with(store=store)
    start_lease(broker, wait_ms=10_000_000)
    broker.attach("q")
    store.asked.clear()
    broker.step()
    assert store.asked == {}
    at_ms = broker.engine.next_event_at()
    assert at_ms is None or at_ms - broker.clock.now_ms() > 60_000


def test_a_delayed_message_wakes_a_waiter_at_its_due_time() -> None:
    """B5.10: not a millisecond before; a cancelled message wakes nobody."""
    broker = broker_with()
    waiter = start_lease(broker)
    cancelled = broker.enqueue("q", b"never", delay_ms=50)
    broker.enqueue("q", b"x", delay_ms=80)
    broker.cancel("q", cancelled)
    broker.advance(79)
    assert not waiter.done()
    broker.advance(1)
    assert payloads(waiter.get()) == [b"x"]


def test_all_that_is_produced_is_consumed_once() -> None:
    """B5.11 and 12: twelve producers and twelve streams; every message comes once, and the queue is empty."""
    broker = broker_with()
    streams = [broker.attach("q", credit=3)[1] for _ in range(12)]
    sent = {broker.enqueue("q", b"", fairness_key=f"p{n % 12}") for n in range(240)}
    seen: Counter[str] = Counter()
    while sum(seen.values()) < len(sent):
        for got in streams:
            for delivery in list(got):
                got.remove(delivery)
                seen[delivery.id] += 1
                broker.ack(delivery)
    assert seen == Counter(sent)
    assert broker.queue("q").leased == broker.queue("q").waiting == 0


def test_the_correlation_id_is_the_same_for_life() -> None:
    """B5.12: on delivery, redelivery, among the dead letters and after the redrive."""
    broker = broker_with({"max_attempts": 2, "backoff_ms": 0})
    broker.enqueue("q", b"", correlation_id="corr-1")
    seen = []
    for _ in range(2):
        held = lease_one(broker)
        seen.append(held.correlation_id)
        broker.nack(held)
    seen.append(broker.peek("q.dlq", with_body=True)[0].correlation_id or "")
    broker.redrive("q.dlq")
    broker.advance(1_000)
    seen.append(lease_one(broker).correlation_id)
    assert seen == ["corr-1"] * 4


def test_a_failure_keeps_its_error_and_a_defer_does_not_add_one() -> None:
    """B5.15: failures and the last error grow with a failure only."""
    broker = broker_with({"backoff_ms": 0})
    message_id = broker.enqueue("q", b"")
    broker.nack(lease_one(broker), error="broke")
    broker.nack(lease_one(broker), intent="defer", delay_ms=0)
    view = broker.get("q", message_id)
    assert (view.attempts, view.failures, [error.error for error in view.errors]) == (2, 1, ["broke"])


def test_weights_three_to_one_hold_while_both_are_backlogged() -> None:
    """Fila e2e DRR: of the first 60 of 100 and 100, 45 and 15."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="a", weight=3)] * 100)
    broker.enqueue_many("q", [message(fairness_key="b")] * 100)
    assert Counter(d.fairness_key for d in broker.lease("q", 60)) == {"a": 45, "b": 15}


def test_of_four_messages_one_is_throttled() -> None:
    """Fila e2e throttle: at 1 a second and burst 1, three free ones and one throttled come first."""
    broker = broker_with()
    broker.set_config("throttle:provider:rate", "1")
    broker.set_config("throttle:provider:burst", "1")
    broker.enqueue_many("q", [message(b"t", throttles=("provider",))] * 3 + [message(b"f")] * 3)
    assert Counter(payloads(broker.lease("q", 9))) == {b"f": 3, b"t": 1}
    broker.advance(1_000)
    assert payloads(broker.lease("q", 9)) == [b"t"]


def test_live_leases_are_kept_and_ended_ones_reclaimed_at_recovery() -> None:
    """Fila recovery: a lease that ended while the broker was down is back at once, a live one is not given twice."""
    broker = broker_with({"backoff_ms": 0})
    broker.enqueue_many("q", [message(b"short"), message(b"long")])
    lease_one(broker, visibility_ms=1_000)
    long = lease_one(broker, visibility_ms=100_000)
    broker.clock.advance(5_000)
    broker.reopen()
    assert payloads(broker.lease("q", 9)) == [b"short"]
    broker.ack(long)


def test_a_full_or_closed_consumer_is_passed_over() -> None:
    """Fila delivery: messages go to whoever has room, different ones to each."""
    broker = broker_with()
    _, full = broker.attach("q", credit=1)
    gone, nothing = broker.attach("q", credit=9)
    broker.detach(gone)
    _, free = broker.attach("q", credit=9)
    for n in range(4):
        broker.enqueue("q", b"%d" % n)
    assert [payloads(got) for got in (full, nothing, free)] == [[b"0"], [], [b"1", b"2", b"3"]]


def test_a_clock_that_jumps_gives_no_message_twice() -> None:
    """Set back or forward by an hour, leases and delays go on as they were, and end when their time has passed."""
    broker = broker_with({"backoff_ms": 0})
    broker.enqueue("q", b"x", delay_ms=1_000)
    broker.clock.jump(-3_600_000)
    assert payloads(broker.lease("q", wait_ms=1_000)) == [b"x"]
    broker.clock.jump(-3_600_000)
    broker.reopen()
    assert broker.lease("q", wait_ms=20_000) == []
    broker.clock.jump(7_200_000)
    assert broker.lease("q", wait_ms=7_000) == []
    broker.clock.advance(30_000)
    assert lease_one(broker).attempt == 2


@pytest.mark.parametrize("quantum", [1, 10])
def test_a_cold_tenant_and_a_heavy_message_are_served_in_time(quantum: int) -> None:
    """Firq A5.4, 5 and 14: among hot ones each cold tenant within 256 turns, a message of cost 10 within 60."""
    broker = broker_with({"quantum": quantum})
    broker.enqueue_many("q", [message(fairness_key="hot")] * 400)
    broker.enqueue_many("q", [message(fairness_key=f"cold-{n}") for n in range(32)])
    broker.enqueue("q", b"", fairness_key="heavy", cost=10)
    keys = [delivery.fairness_key for delivery in broker.lease("q", 256)]
    assert len({key for key in keys if str(key).startswith("cold")}) == 32
    assert "heavy" in keys
