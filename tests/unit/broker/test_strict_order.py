"""Strict order: the messages of a key go one after the other, whatever becomes of each."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidArgument, LeaseMismatch, OutOfOrder
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads


def strict(**policy: Any) -> SteppedBroker:
    return broker_with({"order": "strict", **policy})


def enqueue(broker: SteppedBroker, *names: str, **terms: Any) -> list[str]:
    """Enqueue messages whose names begin with their keys: ``a1`` has key ``a``."""
    results = broker.enqueue_many("q", [message(name.encode(), fairness_key=name[0], **terms) for name in names])
    return [str(result) for result in results]


def leased(broker: SteppedBroker, count: int = 10) -> list[bytes]:
    return payloads(broker.lease("q", count))


def test_the_next_message_of_a_key_waits_until_the_one_before_is_acknowledged() -> None:
    """Each key has one message in flight, and other keys are not delayed."""
    broker = strict()
    enqueue(broker, "a1", "a2", "b1", "a3", "b2")
    first = broker.lease("q", 10)
    assert payloads(first) == [b"a1", b"b1"]
    assert leased(broker) == []
    broker.ack(first[0])
    assert leased(broker) == [b"a2"]
    broker.ack(first[1])
    assert leased(broker) == [b"b2"]


@pytest.mark.parametrize("policy", [{}, {"backoff_ms": 1_000, "backoff_jitter": 0.0}])
def test_a_failed_message_keeps_its_place(policy: dict[str, Any]) -> None:
    """Its key waits for the retry, over a reopen too, and another key does not."""
    broker = strict(**policy)
    enqueue(broker, "a1", "a2", "b1")
    first, _other = broker.lease("q", 10)
    broker.nack(first, error="no")
    broker.reopen()
    if policy:
        assert leased(broker) == []
        broker.advance(1_000)
    assert leased(broker) == [b"a1"]


def test_a_deferred_and_an_expired_message_keep_their_places() -> None:
    """The key waits for the delay, and after an expiry the same message goes again."""
    broker = strict()
    enqueue(broker, "a1", "a2")
    broker.nack(lease_one(broker), intent="defer", delay_ms=500)
    assert leased(broker) == []
    broker.advance(500)
    assert leased(broker) == [b"a1"]
    broker.advance(30_000)
    assert leased(broker) == [b"a1"]


def test_a_delayed_message_holds_back_those_behind_it() -> None:
    """It goes first when it is due; a message of another key goes at once."""
    broker = strict()
    enqueue(broker, "a1", delay_ms=1_000)
    enqueue(broker, "a2", "b1")
    assert leased(broker) == [b"b1"]
    broker.advance(1_000)
    assert leased(broker) == [b"a1"]


def test_a_message_that_is_gone_lets_the_next_one_go() -> None:
    """Dead letters, cancelled, purged and expired messages are done."""
    broker = strict(max_attempts=1)
    ids = enqueue(broker, "a1", "a2", "a3", "a4")
    broker.nack(lease_one(broker), error="no")
    second = lease_one(broker)
    assert second.payload == b"a2"
    broker.cancel("q", ids[2])
    broker.ack(second)
    assert leased(broker) == [b"a4"]
    broker.purge("q", with_leased=True)
    enqueue(broker, "a5", deadline_ms=100)
    enqueue(broker, "a6")
    broker.advance(101)
    assert leased(broker) == [b"a6"]


def test_a_redriven_message_goes_to_the_tail() -> None:
    """It died in its place, and comes back behind those that came meanwhile."""
    broker = strict(max_attempts=1)
    enqueue(broker, "a1", "a2")
    broker.nack(lease_one(broker), error="no")
    broker.redrive("q.dlq")
    got = []
    while deliveries := broker.lease("q", 10):
        got += payloads(deliveries)
        broker.ack_many("q", deliveries)
    assert got == [b"a2", b"a1"]


def test_an_order_key_divides_a_fairness_key() -> None:
    """Messages with different order keys go at once, those with the same one in order; so after a reopen."""
    broker = strict()
    for name, order_key in (("a1", "x"), ("a2", "y"), ("a3", "x"), ("a4", None), ("a5", None)):
        enqueue(broker, name, order_key=order_key)
    first = broker.lease("q", 10)
    assert payloads(first) == [b"a1", b"a2", b"a4"]
    assert [delivery.order_key for delivery in first] == ["x", "y", None]
    broker.reopen()
    broker.ack(first[0])
    assert leased(broker) == [b"a3"]


def test_priorities_and_throttles_act_on_the_first_of_each_key_only() -> None:
    """A high message waits for a low one of its key, and a throttled one holds back those behind it."""
    broker = strict()
    broker.set_throttle("t", rate=1, burst=1)
    enqueue(broker, "a1", priority="low")
    enqueue(broker, "a2", priority="high")
    enqueue(broker, "b1", throttles=("t",))
    enqueue(broker, "c1", "c2", throttles=("t",))
    enqueue(broker, "c3")
    first = broker.lease("q", 10)
    assert payloads(first) == [b"a1", b"b1"]
    broker.advance(1_000)
    assert leased(broker) == [b"c1"]


# ------------------------------------------------------------------------------------------------------------- batches


def test_a_batch_has_consecutive_messages_of_a_key_for_one_consumer() -> None:
    """What is left of a key waits until the whole batch is done."""
    broker = strict(order_batch_max=2)
    enqueue(broker, "a1", "a2", "a3", "b1")
    first = broker.lease("q", 10)
    assert sorted(payloads(first)) == [b"a1", b"a2", b"b1"]
    assert leased(broker) == []
    of_a = [delivery for delivery in first if delivery.fairness_key == "a"]
    assert payloads(of_a) == [b"a1", b"a2"]
    broker.ack(of_a[0])
    assert leased(broker) == []
    broker.ack(of_a[1])
    assert leased(broker) == [b"a3"]


def test_a_batch_is_not_continued_for_another_consumer() -> None:
    """A consumer with room for one gets one, and nobody gets the next."""
    broker = strict(order_batch_max=3)
    enqueue(broker, "a1", "a2")
    assert leased(broker, 1) == [b"a1"]
    assert leased(broker, 1) == []


def test_an_ack_out_of_order_is_refused_and_the_lease_lasts() -> None:
    """Later the same ack is accepted; acks in one call may be in any order."""
    broker = strict(order_batch_max=4)
    enqueue(broker, "a1", "a2", "a3", "a4")
    one, two, three, four = broker.lease("q", 4)
    with pytest.raises(OutOfOrder):
        broker.ack(two)
    with pytest.raises(OutOfOrder):
        broker.ack(two, forward={"q": [message(b"b1", fairness_key="b")]})
    results = broker.ack_many("q", [three, one])
    assert [type(result) for result in results] == [OutOfOrder, type(None)]
    assert broker.ack_many("q", [four, three, two]) == [None] * 3


@pytest.mark.parametrize("end", ["nack", "defer", "expiry"])
def test_a_failure_takes_those_behind_it_back(end: str) -> None:
    """Acks that arrive later are refused, the one before is not affected, and all go again in order."""
    broker = strict(order_batch_max=3)
    enqueue(broker, "a1", "a2", "a3")
    one, two, three = broker.lease("q", 3)
    if end == "expiry":
        broker.extend(one, visibility_ms=60_000)
        broker.extend(three, visibility_ms=60_000)
        broker.advance(30_000)
    else:
        broker.nack(two, intent="failure" if end == "nack" else "defer")
    with pytest.raises(LeaseMismatch):
        broker.ack(three)
    assert leased(broker) == []
    broker.ack(one)
    again = broker.lease("q", 3)
    assert payloads(again) == [b"a2", b"a3"]
    assert [delivery.failures for delivery in again] == [int(end == "nack"), 0]
    assert broker.ack_many("q", again) == [None, None]


def test_only_the_first_of_a_lost_batch_has_had_an_attempt_that_counts() -> None:
    """A poisonous first message dies of its expiries; those behind it have none."""
    broker = strict(order_batch_max=3, max_expiries=2)
    enqueue(broker, "a1", "a2", "a3")
    for _ in range(2):
        assert leased(broker) == [b"a1", b"a2", b"a3"]
        broker.advance(30_000)
    assert payloads(broker.lease("q.dlq", 5)) == [b"a1"]
    left = broker.lease("q", 5)
    assert [(delivery.payload, delivery.errors) for delivery in left] == [(b"a2", ()), (b"a3", ())]


def test_a_batch_of_large_messages_is_one_batch() -> None:
    """Messages that are picked one by one for their size come in order, and the rest waits."""
    broker = strict(order_batch_max=3)
    enqueue(broker, "a1", "a2", "a3", "a4")
    consumer = broker.register_consumer("q", "c")
    claim = broker.claim("q", "c", epoch=consumer.epoch, done=0, count=10, size_bytes=5)
    assert claim.count == 3
    assert leased(broker) == []


def test_a_batch_ends_before_a_message_that_cannot_go_yet() -> None:
    """A message that is delayed, or whose throttle has no token, keeps those behind it back."""
    broker = strict(order_batch_max=5)
    broker.set_throttle("t", rate=1, burst=1)
    enqueue(broker, "a1", throttles=("t",))
    enqueue(broker, "a2")
    enqueue(broker, "a3", delay_ms=1_000)
    enqueue(broker, "a4", "a5", throttles=("t",))
    enqueue(broker, "a6", priority="high")
    batches = []
    for _ in range(3):
        deliveries = broker.lease("q", 10)
        batches.append(payloads(deliveries))
        broker.ack_many("q", deliveries)
        broker.advance(1_000)
    assert batches == [[b"a1", b"a2"], [b"a3", b"a4"], [b"a5", b"a6"]]


# --------------------------------------------------------------------------------------------- streams, views, policy


def test_a_stream_never_has_a_message_of_a_key_that_another_consumer_works_on() -> None:
    """Two consumers with credit get different keys, one message of each; the next of a key may go to either."""
    broker = strict(order_batch_max=3)
    _, one = broker.attach("q", credit=5)
    _, other = broker.attach("q", credit=5)
    enqueue(broker, "a1", "a2", "b1", "b2")
    assert sorted(payloads([*one, *other])) == [b"a1", b"b1"]
    broker.ack_many("q", [*one, *other])
    assert sorted(payloads([*one, *other])) == [b"a1", b"a2", b"b1", b"b2"]


def test_explain_names_the_message_that_goes_first() -> None:
    """Whether that waits or is leased."""
    broker = strict()
    first, second = enqueue(broker, "a1", "a2")
    for _ in range(2):
        found = broker.explain("q", second)
        assert (found.reason, found.first, found.key) == ("behind", first, "a")
        assert first in found.words
        broker.lease("q")


def test_the_time_behind_another_counts_as_held_back() -> None:
    """The journal tells it as the time at a cap, which is no fault of the scheduler's."""
    broker = strict()
    enqueue(broker, "a1", "a2")
    first = lease_one(broker)
    broker.advance(700)
    broker.ack(first)
    lease_one(broker)
    held = [event.get("capped_ms") for event in broker.read_journal().events if event["kind"] == "leased"]
    assert held == [None, 700]


def test_a_queue_can_become_strict_and_relaxed_again() -> None:
    """Messages that are leased when it becomes strict are waited for."""
    broker = broker_with({})
    enqueue(broker, "a1", "a2", "a3")
    first = broker.lease("q", 1)
    broker.update_queue("q", {"order": "strict"})
    assert leased(broker) == []
    broker.ack(first[0])
    assert leased(broker) == [b"a2"]
    broker.update_queue("q", {"order": "relaxed"})
    assert leased(broker) == [b"a3"]


@pytest.mark.parametrize(
    "policy",
    [
        {"order": "strict", "late_ack": True},
        {"order": "strict", "backpressure": "drop_oldest"},
        {"order_batch_max": 2},
        {"order": "strict", "order_batch_max": 0},
        {"order": "sorted"},
    ],
)
def test_policies_that_contradict_strict_order_are_refused(policy: dict[str, Any]) -> None:
    """The queue is not created, and the error names the field."""
    with pytest.raises(InvalidArgument, match=r"order|late_ack|backpressure"):
        broker_with(policy)
