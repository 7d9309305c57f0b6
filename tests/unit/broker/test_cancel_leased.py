"""Cancelling messages that a consumer has: the lease ends at once, and its holder learns why."""

from __future__ import annotations

import pytest

from fairlane.errors import MessageCancelled, MessageNotFound, NotPending
from tests.unit.broker.stepping import broker_with, lease_one


def test_the_holder_of_a_cancelled_message_is_refused_by_name() -> None:
    """Ack, nack, extend and state are refused as cancelled with the reason, also after a crash."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.cancel("q", message_id, reason="the order was withdrawn")
    assert (broker.queue("q").leased, broker.queue("q").waiting) == (0, 0)
    for _ in range(2):
        for use in (broker.ack, broker.nack, broker.extend, lambda held: broker.set_state(held, b"s", etag=None)):
            with pytest.raises(MessageCancelled, match="the order was withdrawn"):
                use(delivery)
        broker.reopen()
    status = broker.status(message_id)
    assert (status.status, status.reason) == ("cancelled", "the order was withdrawn")


def test_a_cancelled_lease_is_remembered_until_it_would_have_ended() -> None:
    """Without a time to live, nothing is kept for longer than the holder may ask."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.cancel("q", message_id)
    broker.advance(31_000)
    assert len(broker.engine.ledger.finished) == 0
    with pytest.raises(MessageNotFound):
        broker.ack(delivery)


def test_a_message_can_be_cancelled_only_while_it_waits() -> None:
    """With ``only_waiting`` a lease is left alone."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    with pytest.raises(NotPending):
        broker.cancel("q", message_id, only_waiting=True)
    broker.nack(delivery)
    broker.cancel("q", message_id, only_waiting=True)
    assert broker.queue("q").waiting == 0


def test_a_cancelled_lease_frees_the_cap_of_its_key_and_the_credit_of_its_consumer() -> None:
    """The next message of the key goes to the same consumer at once."""
    broker = broker_with({"key_cap": 1})
    first, second = broker.enqueue("q", b"1"), broker.enqueue("q", b"2")
    _, got = broker.attach("q", credit=1)
    assert [delivery.id for delivery in got] == [first]
    broker.cancel("q", first)
    assert [delivery.id for delivery in got] == [first, second]


def test_the_journal_says_who_cancelled_what_and_why() -> None:
    """A leased message is returned first, and then removed, by a named caller."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.cancel("q", delivery.id, reason="no longer needed")
    events = broker.read_journal().events[-2:]
    assert [(event["kind"], event["reason"]) for event in events] == [("returned", "defer"), ("removed", "cancelled")]
    assert events[1]["value"] == "no longer needed"
