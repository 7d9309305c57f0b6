"""Messages with limits of their own: failed attempts, and how long a lease lasts."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message


def left_ms(broker: SteppedBroker, **how: Any) -> list[int]:
    """Return for how long the leases of all messages of the queue last, in the order of their enqueue."""
    deliveries = sorted(broker.lease("q", 9, **how), key=lambda delivery: delivery.id)
    return [delivery.expires_ms - broker.clock.now_ms() for delivery in deliveries]


def test_a_message_has_a_limit_of_attempts_of_its_own() -> None:
    """Over reopens, one message dies at its first failure, one never does, and one as the queue says."""
    broker = broker_with({"max_attempts": 2})
    limits = (1, 0, None)
    ids = broker.enqueue_many("q", [message(max_attempts=limit) for limit in limits])
    for _ in range(4):
        for held in broker.lease("q", 9):
            broker.nack(held)
        broker.reopen()
    assert [(view.id, view.failures) for view in broker.peek("q.dlq", 9)] == [(ids[0], 1), (ids[2], 2)]
    kept = broker.get("q", str(ids[1]))
    assert (kept.failures, kept.max_attempts) == (4, 0)


def test_a_message_has_a_visibility_timeout_of_its_own() -> None:
    """Without a request of the consumer the message's counts, then the queue's; with one, that counts for all."""
    broker = broker_with({"visibility_timeout_ms": 10_000})
    own = (500, None, 60_000)
    broker.enqueue_many("q", [message(visibility_timeout_ms=span) for span in own])
    assert left_ms(broker) == [500, 10_000, 60_000]
    broker.advance(500)
    assert [view.status for view in broker.peek("q", 9)] == ["waiting", "leased", "leased"]
    broker.advance(59_500)
    assert broker.queue("q").leased == 0
    assert left_ms(broker, visibility_ms=7) == [7] * 3


def test_a_lease_is_extended_by_the_timeout_of_its_message() -> None:
    """Each of several leases that are extended together gets its own time, unless the caller names one."""
    broker = broker_with({"visibility_timeout_ms": 10_000})
    broker.enqueue_many("q", [message(visibility_timeout_ms=span) for span in (20_000, None)])
    held = sorted(broker.lease("q", 9), key=lambda delivery: delivery.id)
    broker.advance(3_000)
    now_ms = broker.clock.now_ms()
    assert broker.extend_many("q", held) == [now_ms + 20_000, now_ms + 10_000]
    assert broker.extend_many("q", held, visibility_ms=5) == [now_ms + 5] * 2


def test_the_limits_stay_through_retries_dead_letters_redrive_and_reopens() -> None:
    """A dead letter that is redriven dies again by its own limit, and is leased for its own time."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"", max_attempts=1, visibility_timeout_ms=777)
    for _ in range(2):
        broker.reopen()
        held = lease_one(broker)
        assert held.expires_ms - broker.clock.now_ms() == 777
        broker.nack(held)
        broker.reopen()
        dead = broker.get("q.dlq", message_id)
        assert (dead.max_attempts, dead.visibility_timeout_ms, dead.failures) == (1, 777, 1)
        broker.redrive("q.dlq")
        broker.advance(1_000)
    assert broker.get("q", message_id).visibility_timeout_ms == 777


def test_staged_messages_keep_their_limits() -> None:
    """What a sink publishes has the limits with which it was staged."""
    broker = broker_with()
    staged = [message(max_attempts=3, visibility_timeout_ms=50)]
    broker.stage("q", "s", batch=1, part="p", at=0, messages=staged)
    broker.publish("q", "s", batch=1, parts=["p"])
    (view,) = broker.peek("q")
    assert (view.max_attempts, view.visibility_timeout_ms) == (3, 50)


@pytest.mark.parametrize("field", ["max_attempts", "visibility_timeout_ms"])
@pytest.mark.parametrize("value", [-1, 10**15, 1.5, "1", True])
def test_a_bad_limit_is_refused(field: str, value: Any) -> None:
    """Nothing is enqueued, and the error names the field."""
    broker = broker_with()
    with pytest.raises(InvalidArgument, match=field):
        broker.enqueue("q", b"", **{field: value})
    assert broker.queue("q").waiting == 0
