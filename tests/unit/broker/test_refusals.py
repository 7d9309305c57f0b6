"""RefusedMessages messages: what limits keep out is counted by queue, error code and fairness key, and recorded."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.refusals import KEYS_MAX, RECORDED_EVERY_MS
from fairlane.broker.settings import Settings
from fairlane.errors import FairlaneError, GlobalFull, KeyFull, QueueFull
from fairlane.journal.events import rows
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.batches import Stage
from tests.unit.broker.stepping import broker_with, lease_one, message, start_enqueue


def recorded(broker: SteppedBroker) -> list[dict[str, Any]]:
    """Return the events of refusals, without what all events have."""
    found = [row for page in broker.call(ReadSlice(after=0)).pages for row in rows(page) if row["kind"] == "refused"]
    names = ("queue", "fairness_key", "reason", "messages", "cost")
    return [{name: row[name] for name in names if name in row} for row in found]


def test_refusals_are_recorded_by_key_once_a_second() -> None:
    """Refusals of one second are one sum for each key, with their cost, and nothing is written for each of them."""
    broker = broker_with({"key_waiting_max": 1})
    broker.enqueue_many("q", [message(fairness_key="acme", cost=3)] * 4)
    broker.enqueue_many("q", [message(fairness_key=("beta", "web"))] * 3)
    before = broker.engine.ledger.next_sequence
    assert recorded(broker) == []
    broker.advance(RECORDED_EVERY_MS)
    assert recorded(broker) == [
        {"queue": "q", "fairness_key": ["acme"], "reason": "key_full", "messages": 3, "cost": 9},
        {"queue": "q", "fairness_key": ["beta", "web"], "reason": "key_full", "messages": 2, "cost": 2},
    ]
    broker.advance(10 * RECORDED_EVERY_MS)
    assert broker.engine.ledger.next_sequence == before + 2
    assert broker.queue("q").refused == 5


def test_each_limit_is_recorded_under_its_own_code() -> None:
    """The limits of a key, of a queue and of all queues are told apart."""
    for policy, settings, code in (
        ({"key_waiting_max": 1}, Settings(), KeyFull.code),
        ({"waiting_max": 1}, Settings(), QueueFull.code),
        ({}, Settings(waiting_max=1), GlobalFull.code),
    ):
        broker = broker_with(policy, settings=settings)
        broker.enqueue_many("q", [message()] * 2)
        broker.advance(RECORDED_EVERY_MS)
        assert [row["reason"] for row in recorded(broker)] == [code]


def test_a_refusal_names_the_number_and_the_limit() -> None:
    """An operator who reads the error knows how full the queue is, and which setting to raise."""
    texts = []
    for policy in (
        {"key_waiting_max": 2},
        {"key_waiting_bytes_max": 21},
        {"waiting_max": 2},
        {"waiting_bytes_max": 21},
    ):
        broker = broker_with(policy)
        results = broker.enqueue_many("q", [message(b"0123456789", fairness_key="acme")] * 3)
        texts += [str(result.cause) for result in results if isinstance(result, FairlaneError)]
    assert texts == [
        "Key 'acme' of queue 'q' has 2 messages, and key_waiting_max is 2.",
        "Key 'acme' of queue 'q' has 20 bytes, and key_waiting_bytes_max is 21; the message has 10.",
        "Queue 'q' has 2 messages, and waiting_max is 2.",
        "Queue 'q' has 20 bytes, and waiting_bytes_max is 21; the message has 10.",
    ]


def test_a_producer_that_waits_is_refused_only_when_its_patience_ends() -> None:
    """A message that waited for room and found some is no refusal; one that did not is one."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"first")
    lucky = start_enqueue(broker, [message(b"lucky")], wait_ms=5_000)
    unlucky = start_enqueue(broker, [message(b"unlucky")], wait_ms=2_000)
    broker.ack(lease_one(broker))
    broker.advance(2_000)
    assert lucky.done()
    assert unlucky.done()
    broker.advance(RECORDED_EVERY_MS)
    assert [row["messages"] for row in recorded(broker)] == [1]


def test_a_part_that_is_not_staged_counts_all_its_messages() -> None:
    """A part is staged whole or not at all, so a limit refuses every message of it."""
    broker = broker_with({"waiting_max": 2})
    broker.enqueue("q", b"")
    request = Stage(queue="q", sink="out", batch=0, part="p", messages=[message()] * 2, at=0)
    with pytest.raises(QueueFull):
        broker.call(request)
    broker.advance(RECORDED_EVERY_MS)
    assert [row["messages"] for row in recorded(broker)] == [2]


def test_the_count_survives_a_reopen_and_a_new_base() -> None:
    """The number of refused messages is folded from the journal, and a baseline keeps it."""
    broker = broker_with({"key_waiting_max": 1}, carry_floor=10)
    broker.enqueue_many("q", [message()] * 4)
    broker.advance(RECORDED_EVERY_MS)
    recorded_before = broker.engine.ledger.next_sequence
    while broker.engine.ledger.base <= recorded_before:
        broker.ack(lease_one(broker))
        broker.enqueue("q", b"")
    broker.reopen()
    assert broker.queue("q").refused == 3


def test_keys_beyond_the_limit_share_one_sum() -> None:
    """A flood of invented keys makes no long record: what has no room for a name is summed up without one."""
    broker = broker_with({"waiting_max": 1})
    broker.enqueue_many("q", [message(fairness_key=f"k{number}") for number in range(KEYS_MAX + 51)])
    broker.advance(RECORDED_EVERY_MS)
    found = recorded(broker)
    assert len(found) == KEYS_MAX + 1
    assert [row["messages"] for row in found if "fairness_key" not in row] == [50]
    assert sum(row["messages"] for row in found) == KEYS_MAX + 50


def test_refusals_of_a_deleted_queue_are_dropped() -> None:
    """Nothing is recorded for a queue that is gone by then."""
    broker = broker_with({"waiting_max": 1})
    broker.enqueue_many("q", [message()] * 2)
    broker.delete_queue("q")
    broker.advance(RECORDED_EVERY_MS)
    assert recorded(broker) == []
