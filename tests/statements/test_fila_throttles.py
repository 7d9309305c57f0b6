"""Fila, throttle-aware scheduling."""

from __future__ import annotations

import pytest

from fairlane.errors import QueueNotFound
from fairlane.scheduler import Item, Kernel
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease
from tests.unit.scheduler.workload import offer, take_keys


def throttled(**buckets: int) -> SteppedBroker:
    """Return a broker with throttles of one token a second, and so many tokens at the start."""
    broker = broker_with()
    for name, burst in buckets.items():
        broker.set_throttle(name, rate=1, burst=burst)
    broker.advance(1_000 * max(buckets.values(), default=0))
    return broker


def kernel_with(**rates: tuple[int, int]) -> Kernel[Item]:
    """Return a kernel with throttles, each of a rate a second and a burst, whose buckets are full."""
    kernel: Kernel[Item] = Kernel()
    for name, (rate, burst) in rates.items():
        kernel.throttles.set(name, rate=rate, burst=burst, now_ms=0)
    return kernel


def test_074_all_throttle_keys_of_the_next_message_are_checked() -> None:
    """The scheduler checks all throttles of a key's next message."""
    broker = throttled(a=9, b=1)
    broker.enqueue_many("q", [message(throttles=("a", "b"))] * 3)
    assert len(broker.lease("q", 9)) == 1


def test_075_a_message_without_tokens_is_skipped() -> None:
    """A message whose bucket is empty is skipped; other keys go, and so do other messages of its own key."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(b"%d" % n, fairness_key="a", throttles=("t",)) for n in range(2)])
    broker.enqueue("q", b"free", fairness_key="a")
    broker.enqueue("q", b"other", fairness_key="b")
    assert sorted(payloads(broker.lease("q", 9))) == [b"0", b"free", b"other"]


def test_076_all_of_several_keys_must_have_tokens() -> None:
    """With `provider:aws` and `region:us-east-1`, either empty bucket holds a message back."""
    broker = broker_with()
    names = ("provider:aws", "region:us-east-1")
    for name in names:
        broker.set_throttle(name, rate=1, burst=1)
    broker.enqueue_many("q", [message(throttles=(name,)) for name in names])
    assert len(broker.lease("q", 9)) == 2
    broker.enqueue("q", b"", throttles=names)
    assert broker.lease("q", 9) == []
    broker.advance(1_000)
    assert len(broker.lease("q", 9)) == 1


def test_077_buckets_are_refilled_before_a_round() -> None:
    """A token is there exactly when it has been earned: not after 999 ms, but after 1,000."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(throttles=("t",))] * 2)
    lease_one(broker)
    broker.advance(999)
    assert broker.lease("q") == []
    broker.advance(1)
    lease_one(broker)


def test_078_a_skipped_key_stays_active() -> None:
    """A key that is skipped keeps its messages and goes on when it has tokens."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(fairness_key="a", throttles=("t",))] * 2)
    broker.lease("q", 9)
    assert broker.inspect("q").active_keys == 1
    broker.advance(1_000)
    assert lease_one(broker).fairness_key == "a"


def test_079_a_skip_costs_no_deficit() -> None:
    """A key that is cut short by a throttle keeps the rest of its turn: a turn of 4 is served as 2 and 2."""
    kernel: Kernel[Item] = Kernel(quantum=4)
    kernel.throttles.set("t", rate=1, burst=2, now_ms=0)
    offer(kernel, "a", 4, throttles=("t",))
    offer(kernel, "b", 8)
    first = take_keys(kernel, 2)
    held = take_keys(kernel, 4)
    later = take_keys(kernel, 2, now_ms=2_000)
    assert (first, held, later) == (["a", "a"], ["b"] * 4, ["a", "a"])


def test_080_a_skip_scans_no_messages() -> None:
    """Taking an item does not look at throttled ones: with 10 or 10,000 of them parked, the same lanes are visited."""
    for count in (10, 10_000):
        kernel = kernel_with(t=(1, 1))
        offer(kernel, "a", count, throttles=("t",))
        offer(kernel, "b", 5)
        assert take_keys(kernel, 9) == ["a", "b", "b", "b", "b", "b"]
        assert kernel.take(1, 0) == []


def test_081_ten_thousand_messages_of_six_keys() -> None:
    """10,000 messages of six keys, half of them throttled, are each delivered once."""
    kernel = kernel_with(t=(1_000_000, 10_000))
    for key in range(6):
        offer(kernel, str(key), 1_667, throttles=("t",) if key % 2 else ())
    taken = kernel.take(20_000, 0)
    assert (len(taken), len(set(map(id, taken)))) == (10_002, 10_002)


def test_082_delivery_at_the_throttled_rate() -> None:
    """Messages that a script throttles are delivered at the rate of the throttle."""
    broker = broker_with({"on_enqueue": 'function on_enqueue() return { throttle_keys = { "t" } } end'})
    broker.set_throttle("t", rate=5, burst=1)
    broker.enqueue_many("q", [message()] * 100)
    _, got = broker.attach("q", credit=100)
    broker.advance(6_000)
    assert len(got) in (30, 31)


def test_083_a_throttled_key_reaches_its_rate_beside_busy_ones() -> None:
    """A throttled key reaches its rate beside ten busy keys."""
    broker = broker_with()
    broker.set_throttle("t", rate=40, burst=1)
    broker.enqueue_many("q", [message(fairness_key="slow", throttles=("t",))] * 200)
    for key in range(10):
        broker.enqueue_many("q", [message(fairness_key=str(key))] * 300)
    served = 0
    for _ in range(1_000):
        served += lease_one(broker).fairness_key == "slow"
        broker.advance(2)
    assert 76 <= served <= 81


def test_084_an_enqueue_fills_the_index() -> None:
    """An enqueued message is at once among those that can be picked."""
    broker = broker_with()
    broker.enqueue("q", b"1")
    assert lease_one(broker).payload == b"1"


def test_085_an_ack_removes_from_the_index() -> None:
    """An acknowledged message can't be picked again."""
    broker = broker_with()
    broker.enqueue("q", b"1")
    broker.ack(lease_one(broker))
    broker.advance(3_600_000)
    assert broker.lease("q") == []


def test_086_a_returned_message_goes_to_the_back() -> None:
    """A message that is nacked goes to the end of its key's line."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(1, 6)])
    broker.nack(lease_one(broker), delay_ms=0)
    assert payloads(broker.lease("q", 9)) == [b"2", b"3", b"4", b"5", b"1"]


def test_087_a_dead_letter_leaves_its_queue() -> None:
    """A dead letter leaves its queue and enters the dead-letter queue."""
    broker = broker_with()
    broker.enqueue("q", b"")
    broker.nack(lease_one(broker), intent="dead")
    assert (broker.queue("q").waiting, broker.queue("q.dlq").waiting) == (0, 1)


def test_088_deleting_a_queue_removes_everything() -> None:
    """A deleted queue is gone with its messages and leases."""
    broker = broker_with()
    broker.enqueue_many("q", [message()] * 2)
    held = lease_one(broker)
    broker.delete_queue("q")
    with pytest.raises(QueueNotFound):
        broker.ack(held)


def test_089_recovery_rebuilds_the_index() -> None:
    """After a restart waiting messages can be picked, and leased ones can't."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    held = lease_one(broker)
    broker.reopen()
    assert payloads(broker.lease("q", 9)) == [b"2"]
    broker.ack(held)


def test_090_expired_leases_return_to_the_index() -> None:
    """Messages whose leases expire go to the end of their key's line."""
    broker = broker_with({"visibility_timeout_ms": 100})
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(1, 6)])
    broker.lease("q", 2)
    broker.advance(100)
    assert payloads(broker.lease("q", 9)) == [b"3", b"4", b"5", b"1", b"2"]


def test_091_leased_messages_are_not_pending() -> None:
    """A leased message does not count as waiting."""
    broker = broker_with()
    broker.enqueue_many("q", [message()] * 3)
    broker.lease("q", 2)
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (1, 2)


def test_092_a_message_is_found_by_its_id() -> None:
    """Acks and cancellations find a message by its id, wherever it is in the line."""
    broker = broker_with()
    ids = [str(each) for each in broker.enqueue_many("q", [message(b"%d" % n) for n in range(1_000)])]
    broker.cancel("q", ids[500])
    assert broker.queue("q").waiting == 999


def test_093_a_throttled_message_is_skipped() -> None:
    """Fila's test `throttle_skips_throttled_message`: the message without a throttle goes first."""
    broker = throttled(t=1)
    broker.enqueue("q", b"takes the token", throttles=("t",))
    lease_one(broker)
    broker.enqueue("q", b"throttled", fairness_key="a", throttles=("t",))
    broker.enqueue("q", b"free", fairness_key="b")
    assert payloads(broker.lease("q", 9)) == [b"free"]


def test_094_several_keys_must_all_pass() -> None:
    """Fila's test `throttle_multi_key_all_must_pass`."""
    broker = throttled(a=1, b=2)
    broker.enqueue_many("q", [message(throttles=("a", "b"))] * 2)
    assert len(broker.lease("q", 9)) == 1


def test_095_a_refill_allows_delivery() -> None:
    """Fila's test `throttle_refill_allows_delivery`: a consumer that waits gets the message with the token."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(throttles=("t",))] * 2)
    lease_one(broker)
    waiter = start_lease(broker)
    broker.advance(999)
    assert not waiter.done()
    broker.advance(1)
    assert len(waiter.get()) == 1


def test_096_a_skipped_key_goes_on_later() -> None:
    """Fila's test `throttle_skipped_key_stays_active`."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(fairness_key="a", throttles=("t",))] * 3)
    counts = []
    for _ in range(3):
        counts.append(len(broker.lease("q", 9)))
        broker.advance(1_000)
    assert counts == [1, 1, 1]


def test_097_no_throttle_keys_no_throttling() -> None:
    """Fila's test `throttle_empty_keys_unthrottled`; a throttle without a rate limits nothing, either."""
    broker = broker_with()
    broker.enqueue_many("q", [message(), message(throttles=("without a rate",))] * 50)
    assert len(broker.lease("q", 100)) == 100


def test_098_set_throttle_rate() -> None:
    """`set_throttle` sets rate and burst of a throttle."""
    broker = broker_with()
    broker.set_throttle("t", rate=2.5, burst=10)
    (throttle,) = broker.throttles()
    assert (throttle.name, throttle.rate, throttle.burst) == ("t", 2.5, 10)


def test_099_remove_throttle_rate() -> None:
    """A throttle whose rate is removed limits nothing."""
    broker = throttled(t=1)
    broker.set_throttle("t", rate=None)
    broker.enqueue_many("q", [message(throttles=("t",))] * 5)
    assert len(broker.lease("q", 9)) == 5


def test_100_a_skip_wastes_no_token() -> None:
    """A message that lacks one token takes none of its other throttles' tokens."""
    broker = throttled(a=5, b=1)
    broker.enqueue_many("q", [message(throttles=("a", "b"))] * 4)
    broker.lease("q", 9)
    assert {throttle.name: throttle.tokens for throttle in broker.throttles()} == {"a": 4, "b": 0}


def test_101_a_single_throttled_key_does_not_spin() -> None:
    """With nothing but throttled messages the broker sleeps until the next token."""
    broker = throttled(t=1)
    broker.enqueue_many("q", [message(throttles=("t",))] * 3)
    broker.attach("q", credit=9)
    before_ms = broker.clock.now_ms()
    assert broker.engine.next_event_at() == before_ms + 1_000


def test_102_a_skip_is_constant() -> None:
    """A throttled key leaves the ring until its token is there, so that later picks don't meet it."""
    kernel = kernel_with(t=(1, 1))
    for key in range(1_000):
        offer(kernel, f"t{key}", throttles=("t",))
    offer(kernel, "free", 3)
    assert take_keys(kernel, 5).count("free") == 3
    assert kernel.take(5, 0) == []


def test_103_a_key_without_consumers_is_kept() -> None:
    """Messages wait for consumers for as long as it takes."""
    broker = broker_with()
    broker.enqueue("q", b"patient")
    broker.advance(365 * 86_400_000)
    assert lease_one(broker).payload == b"patient"
