"""Results: what a message was acknowledged with is kept for a while, and told to those who wait for it."""

from __future__ import annotations

import pytest

from fairlane.broker.settings import Settings
from fairlane.errors import (
    DeadlinePassed,
    MessageCancelled,
    MessageDead,
    MessageNotFound,
    ResultTooLarge,
    WaitTimedOut,
)
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.status import GetResult, GetStatus
from tests.unit.broker.stepping import broker_with, lease_one

HOUR_MS = 3_600_000


def test_a_result_survives_a_crash_and_is_gone_when_its_time_is_over() -> None:
    """The result is read again after a reopen, and neither ledger nor store has it after ``result_ttl_ms``."""
    broker = broker_with({"result_ttl_ms": HOUR_MS})
    message_id = broker.enqueue("q", b"x")
    broker.ack(lease_one(broker), result=b"42")
    broker.reopen()
    assert broker.result(message_id) == b"42"
    status = broker.status(message_id)
    assert (status.status, status.result_bytes, status.queue, status.attempts) == ("done", 2, "q", 1)
    body = broker.engine.ledger.finished.known[broker.engine.ledger.ids.number_of(message_id) or 0].body
    assert broker.store.bodies([body]) == [b"42"]
    broker.advance(HOUR_MS + 1_000)
    assert (len(broker.engine.ledger.finished), broker.store.bodies([body])) == (0, [None])
    assert broker.status(message_id).status == "done"  # from the journal, which has no results
    assert broker.result(message_id) is None


def test_results_are_off_unless_policy_or_message_ask_for_them() -> None:
    """A result without a time to live is dropped, a message's own time overrides its queue's, and 0 turns it off."""
    plain, kept = broker_with(), broker_with({"result_ttl_ms": HOUR_MS})
    for broker, terms, expected in (
        (plain, {}, 0),
        (plain, {"result_ttl_ms": 1_000}, 1),
        (kept, {}, 1),
        (kept, {"result_ttl_ms": 0}, 0),
    ):
        before = len(broker.engine.ledger.finished)
        broker.enqueue("q", NewMessage(payload=b"x", **terms))  # type: ignore[arg-type]  # its own field
        broker.ack(lease_one(broker), result=b"r")
        assert len(broker.engine.ledger.finished) - before == expected


def test_a_waiting_caller_is_answered_by_the_commit_that_ends_the_message() -> None:
    """The wait ends with the acknowledgement, at once and not at the end of its time."""
    broker = broker_with({"result_ttl_ms": HOUR_MS})
    message_id = broker.enqueue("q", b"x")
    waiting = broker.start(GetResult(id=message_id, wait_ms=60_000))
    broker.step()
    begun_ms = broker.clock.now_ms()
    delivery = lease_one(broker)
    assert not waiting.done()
    broker.ack(delivery, result=b"r")
    assert (waiting.get().status, waiting.get().result, broker.clock.now_ms()) == ("done", b"r", begun_ms)


def test_a_waiting_caller_learns_of_an_end_that_is_not_remembered() -> None:
    """Without a time to live, the record itself says how the message ended."""
    broker = broker_with()
    for end, expected in (("ack", "done"), ("cancel", "cancelled")):
        message_id = broker.enqueue("q", b"x")
        waiting = broker.start(GetStatus(id=message_id, wait_ms=60_000))
        broker.step()
        broker.ack(lease_one(broker)) if end == "ack" else broker.cancel("q", message_id)
        assert waiting.get().status == expected


def test_a_wait_that_is_over_says_so() -> None:
    """The call ends after ``wait_ms`` with what the message is doing, which the method raises."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    with pytest.raises(WaitTimedOut, match="waiting"):
        broker.result(message_id, wait_ms=5_000)
    assert not broker.engine.watchers.waiting


def test_messages_that_end_without_a_result_say_how() -> None:
    """Dead, cancelled and expired messages raise errors of their own."""
    broker = broker_with({"result_ttl_ms": HOUR_MS, "max_attempts": 1})
    dead, cancelled = broker.enqueue("q", b"x"), broker.enqueue("q", b"y", delay_ms=1_000)
    expired = broker.enqueue("q", b"z", deadline_ms=10, delay_ms=100)
    broker.nack(lease_one(broker), error="boom")
    broker.cancel("q", cancelled, reason="not needed")
    broker.advance(200)
    with pytest.raises(MessageDead, match="boom"):
        broker.result(dead)
    with pytest.raises(MessageCancelled, match="not needed"):
        broker.result(cancelled)
    with pytest.raises(DeadlinePassed):
        broker.result(expired)
    with pytest.raises(MessageNotFound):
        broker.result("0" * 16)


def test_a_result_that_is_too_large_is_refused_by_the_name_of_its_limit() -> None:
    """The message stays leased, so that it can be acknowledged with less; where nothing is kept no size matters."""
    broker = SteppedBroker(settings=Settings(result_bytes_max=4))
    broker.create_queue("q", {"result_ttl_ms": HOUR_MS})
    broker.create_queue("plain")
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    with pytest.raises(ResultTooLarge, match="result_bytes_max is 4"):
        broker.ack(delivery, result=b"12345")
    broker.ack(delivery, result=b"1234")
    broker.enqueue("plain", b"x")
    broker.ack(broker.lease("plain")[0], result=b"12345")


@pytest.mark.parametrize("limits", [{"results_max": 10}, {"results_bytes_max": 100}])
def test_the_oldest_results_go_first_when_there_are_too_many(limits: dict[str, int]) -> None:
    """A broker keeps no more than its settings allow, whatever the queues say, also after a reopen."""
    broker = SteppedBroker(settings=Settings(**limits))
    broker.create_queue("q", {"result_ttl_ms": HOUR_MS})
    ids = [broker.enqueue("q", b"x") for _ in range(30)]
    for _ in ids:
        broker.ack(lease_one(broker), result=b"0123456789")
        broker.advance(1)
    finished = broker.engine.ledger.finished
    assert 0 < len(finished) <= 10
    assert finished.size == 10 * len(finished) <= 100
    kept = set(finished.known)
    broker.reopen()
    assert set(broker.engine.ledger.finished.known) == kept
    assert broker.result(ids[-1]) == b"0123456789"
    assert broker.status(ids[0]).result_bytes is None


def test_recovery_begins_later_and_results_are_still_there() -> None:
    """Ends are carried with the base of the journal, also those of messages that recovery never sees."""
    broker = SteppedBroker(carry_floor=20)
    broker.create_queue("q", {"result_ttl_ms": 24 * HOUR_MS})
    ids = [broker.enqueue("q", b"x") for _ in range(40)]
    for _ in range(10):
        broker.ack(lease_one(broker), result=b"first")
    for _ in range(400):
        broker.enqueue("q", b"y", result_ttl_ms=0)
        broker.ack(broker.lease("q")[0], result=b"more")
        broker.reopen()
    assert broker.engine.ledger.base > (broker.engine.ledger.ids.number_of(ids[-1]) or 0)
    assert broker.result(ids[0]) == b"first"
    assert broker.result(ids[30]) == b"more"


def test_a_forward_keeps_the_result_of_what_it_acknowledges() -> None:
    """A step of a chain has a result of its own."""
    broker = broker_with({"result_ttl_ms": HOUR_MS})
    message_id = broker.enqueue("q", b"x")
    broker.ack(lease_one(broker), result=b"step 1", forward={"q": [NewMessage(payload=b"y")]})
    assert broker.result(message_id) == b"step 1"


def test_a_late_acknowledgement_has_a_result_too() -> None:
    """Where late acks are allowed, the work that was done late is not lost."""
    broker = broker_with({"result_ttl_ms": HOUR_MS, "late_ack": True})
    message_id = broker.enqueue("q", b"x")
    late = lease_one(broker)
    broker.advance(30_000)
    broker.ack(late, result=b"late")
    assert broker.result(message_id) == b"late"
