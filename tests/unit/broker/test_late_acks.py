"""The policy ``late_ack``: a lease that was lost can be acknowledged until the message is leased again."""

from __future__ import annotations

import pytest

from fairlane.errors import LeaseMismatch, MessageNotFound
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads


def test_an_expired_lease_can_be_acknowledged_while_the_message_waits() -> None:
    """Over a reopen the message is gone with the late ack, which the journal tells, and its key has its turn."""
    broker = broker_with({"late_ack": True})
    broker.enqueue("q", b"x")
    late = lease_one(broker)
    broker.advance(30_000)
    broker.reopen()
    assert broker.queue("q").waiting == 1
    broker.ack(late)
    assert (broker.queue("q").waiting, broker.queue("q").leased, broker.lease("q")) == (0, 0, [])
    last = [event for event in broker.read_journal().events if event["kind"] == "acked"]
    assert [event.get("reason") for event in last] == ["late"]
    with pytest.raises(MessageNotFound):
        broker.ack(late)


def test_a_released_lease_can_be_acknowledged_while_the_message_waits() -> None:
    """A consumer that was disconnected settles what it had finished."""
    broker = broker_with({"late_ack": True})
    broker.enqueue("q", b"x")
    consumer, got = broker.attach("q")
    broker.detach(consumer)
    broker.ack(got[0])
    assert broker.queue("q").waiting == 0


def test_the_next_lease_ends_the_right_of_the_one_before() -> None:
    """While the message is leased again, and after that lease was nacked, the first token is stale."""
    broker = broker_with({"late_ack": True})
    broker.enqueue("q", b"x")
    first = lease_one(broker)
    broker.advance(30_000)
    second = lease_one(broker)
    with pytest.raises(LeaseMismatch):
        broker.ack(first)
    broker.nack(second)
    for stale in (first, second):
        with pytest.raises(LeaseMismatch):
            broker.ack(stale)


def test_only_acks_may_be_late_and_only_by_policy() -> None:
    """Nack, extend and state are refused; so is an ack of a queue without the policy."""
    broker = broker_with({"late_ack": True})
    broker.enqueue("q", b"x")
    late = lease_one(broker)
    broker.advance(30_000)
    for use in (broker.nack, broker.extend):
        with pytest.raises(LeaseMismatch):
            use(late)
    broker.update_queue("q", {"late_ack": False})
    with pytest.raises(LeaseMismatch):
        broker.ack(late)


def test_late_and_timely_acks_go_together() -> None:
    """Of one batch some are late, one is repeated and one is unknown; caps count only what is leased."""
    broker = broker_with({"late_ack": True, "caps": {"k": 2}})
    broker.enqueue_many("q", [message(b"%d" % n, fairness_key="k") for n in range(4)])
    late = broker.lease("q", 2)
    broker.advance(30_000)
    timely = broker.lease("q", 2)
    assert payloads(timely) == [b"2", b"3"]
    results = broker.ack_many("q", [late[0], timely[0], late[0], late[1], timely[1]])
    assert [type(result) for result in results] == [type(None), type(None), LeaseMismatch, type(None), type(None)]
    broker.enqueue_many("q", [message(fairness_key="k")] * 3)
    assert len(broker.lease("q", 9)) == 2
