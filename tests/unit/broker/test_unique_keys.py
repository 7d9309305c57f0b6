"""Unique keys: of the messages with the same one, a queue has one at a time."""

from __future__ import annotations

import pytest

from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import NewMessage
from fairlane.model.schedules import ScheduleSpec
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.messages import Enqueue, EnqueueResult
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def enqueue(broker: SteppedBroker, *messages: NewMessage) -> list[EnqueueResult]:
    """Enqueue messages, and return their results whole."""
    return broker.call(Enqueue(queue="q", messages=list(messages))).results


def test_a_unique_key_is_taken_until_its_message_is_done() -> None:
    """While it waits, is delayed, is leased, has failed or was deferred, a second one is answered with its id."""
    broker = broker_with()
    first = broker.enqueue("q", b"1", unique_key="u", delay_ms=1_000)
    assert broker.enqueue("q", b"2", unique_key="u") == first
    broker.advance(1_000)
    assert broker.enqueue("q", b"2", unique_key="u") == first
    leased = lease_one(broker)
    assert broker.enqueue("q", b"2", unique_key="u") == first
    broker.nack(leased, delay_ms=500)
    assert broker.enqueue("q", b"2", unique_key="u") == first
    broker.advance(500)
    broker.ack(lease_one(broker))
    assert broker.enqueue("q", b"2", unique_key="u") != first
    assert payloads(broker.lease("q", 9)) == [b"2"]


def test_the_result_says_that_nothing_was_enqueued() -> None:
    """A repeat is marked, by unique key and by dedup id, across and within batches; a new message is not."""
    broker = broker_with()
    results = enqueue(broker, message(b"1", unique_key="u"), message(b"2", unique_key="u"), message(b"3"))
    assert [result.is_repeat for result in results] == [False, True, False]
    assert results[0].id == results[1].id != results[2].id
    again = enqueue(broker, message(unique_key="u"), message(dedup_id="d"), message(dedup_id="d"))
    assert [result.is_repeat for result in again] == [True, False, True]
    assert broker.queue("q").waiting == 3


def test_a_unique_key_is_its_tenants_alone() -> None:
    """The same key of another tenant or in another queue is free; keys below one tenant share it."""
    broker = broker_with()
    broker.create_queue("r")
    ids = {
        broker.enqueue("q", b"", unique_key="u"),
        broker.enqueue("q", b"", unique_key="u", fairness_key="acme"),
        broker.enqueue("r", b"", unique_key="u"),
    }
    assert len(ids) == 3
    assert broker.enqueue("q", b"", unique_key="u", fairness_key=("acme", "eu")) in ids


@pytest.mark.parametrize("end", ["cancel", "purge", "dead", "deadline", "expiry"])
def test_every_end_frees_the_unique_key(end: str) -> None:
    """A message that was cancelled, purged, dead-lettered, timed out or lost too often leaves its key to another."""
    broker = broker_with({"max_expiries": 1, "visibility_timeout_ms": 100})
    first = broker.enqueue("q", b"1", unique_key="u", deadline_ms=50 if end == "deadline" else None)
    if end in ("dead", "expiry"):
        leased = lease_one(broker)
    if end == "cancel":
        broker.cancel("q", first)
    elif end == "purge":
        broker.purge("q")
    elif end == "dead":
        broker.nack(leased, intent="dead")
    else:
        broker.advance(1_000)
    assert broker.enqueue("q", b"2", unique_key="u") != first


def test_a_redriven_message_does_not_take_its_key_again() -> None:
    """Another message may have it since; both are delivered."""
    broker = broker_with()
    broker.enqueue("q", b"1", unique_key="u")
    broker.nack(lease_one(broker), intent="dead")
    second = broker.enqueue("q", b"2", unique_key="u")
    broker.redrive("q.dlq")
    broker.step()
    assert broker.enqueue("q", b"3", unique_key="u") == second
    assert sorted(payloads(broker.lease("q", 9))) == [b"1", b"2"]


def test_unique_keys_survive_a_restart_and_a_moved_base() -> None:
    """A message that has been carried to a later place in the journal still has its key, until it is done."""
    broker = broker_with(carry_floor=20)
    first = broker.enqueue("q", b"1", unique_key="u", delay_ms=1_000)
    for _ in range(200):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
    assert broker.engine.ledger.base > numbered(first)
    broker.reopen()
    assert broker.enqueue("q", b"2", unique_key="u") == first
    broker.advance(1_000)
    broker.ack(lease_one(broker))
    broker.reopen()
    assert broker.enqueue("q", b"2", unique_key="u") != first


def test_a_forward_may_pass_its_unique_key_on() -> None:
    """The acknowledged message has given up its key when its successor comes; any other message keeps it."""
    broker = broker_with()
    first = broker.enqueue("q", b"1", unique_key="u")
    second = broker.ack(lease_one(broker), forward={"q": [message(b"2", unique_key="u")]})[0]
    assert second != first
    assert broker.enqueue("q", b"3", unique_key="u") == second


def test_a_message_without_room_leaves_its_key_free() -> None:
    """What met a limit does not hold a unique key, and a repeat within its batch shares the refusal."""
    broker = broker_with({"waiting_max": 1})
    found = broker.enqueue_many("q", [message(b"0"), message(b"1", unique_key="u"), message(b"2", unique_key="u")])
    assert codes(found) == [None, "queue_full", "queue_full"]
    broker.ack(lease_one(broker))
    broker.enqueue("q", b"3", unique_key="u")
    assert payloads(broker.lease("q", 9)) == [b"3"]


def test_a_message_view_shows_the_unique_key() -> None:
    """Observers see who has it."""
    broker = broker_with()
    assert broker.get("q", broker.enqueue("q", b"", unique_key="u")).unique_key == "u"
    assert broker.get("q", broker.enqueue("q", b"")).unique_key is None


@pytest.mark.parametrize("key", ["", "x" * 257, "a\0b", 7])
def test_an_unusable_unique_key_is_refused(key: object) -> None:
    """It is a printable text of 1 to 256 characters."""
    broker = broker_with()
    with pytest.raises(InvalidArgument, match="A unique key must be printable text"):
        broker.enqueue("q", b"", unique_key=key)  # type: ignore[arg-type] # what the test is about


def test_staged_and_scheduled_messages_have_none() -> None:
    """Both are refused, with what to do instead where there is something."""
    broker = broker_with()
    with pytest.raises(FairlaneError, match="staged message cannot have a unique key"):
        broker.stage("q", "sink", batch=0, part="part", at=0, messages=[message(unique_key="u")])
    with pytest.raises(InvalidArgument, match='overlap="skip"'):
        broker.set_schedule("q", "s", ScheduleSpec(every_ms=1_000, message=message(unique_key="u")))
