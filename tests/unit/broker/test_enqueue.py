"""Enqueueing: every limit and field of a message, batches with a result for each, dedup ids."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.settings import Settings
from fairlane.errors import FairlaneError, InvalidArgument, MessageNotFound, PayloadTooLarge
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def wrong_numbers(least: int, most: int) -> list[Any]:
    return [least - 1, most + 1, "5", 1.5, True, []]


WHOLE_LIMITS: list[tuple[str, int, int]] = [
    ("weight", 1, 1_000),
    ("cost", 1, 1_000_000),
    ("delay_ms", 0, 366 * 86_400_000),
    ("deadline_ms", 1, 366 * 86_400_000),
]
GOOD: list[dict[str, Any]] = [
    {"headers": {str(n): "" for n in range(128)}},
    {"headers": {"a": "x" * (64 * 1024 - 1)}},
    {"fairness_key": "k" * 1024},
    {"fairness_key": tuple("abcdefgh")},
    {"fairness_key": ("k" * 1023, "k")},
    {"throttles": tuple(f"t{n}" for n in range(16))},
    {"throttles": ("t" * 256,)},
    {"dedup_id": "d" * 256},
    {"correlation_id": "c" * 128},
    {"headers": {"": ""}},
    {"headers": {"emoji": "\U0001f6a2"}},
    {"fairness_key": "ключ\n"},
]
BAD: list[dict[str, Any]] = [
    {"payload": "text"},
    {"payload": bytearray(b"x")},
    {"payload": None},
    {"headers": {str(n): "" for n in range(129)}},
    {"headers": {"a": "x" * 64 * 1024}},
    {"headers": {"a": 1}},
    {"headers": {1: "a"}},
    {"headers": 5},
    {"headers": [("a", "b")]},
    {"headers": {"a": "\ud800"}},
    {"headers": {"\ud800": "a"}},
    {"fairness_key": ""},
    {"fairness_key": "k" * 1025},
    {"fairness_key": ()},
    {"fairness_key": tuple("abcdefghi")},
    {"fairness_key": ("a", "")},
    {"fairness_key": ("k" * 1024, "k")},
    {"fairness_key": ["a"]},
    {"fairness_key": 5},
    {"fairness_key": "\ud800"},
    {"fairness_key": ("a", "\udfff")},
    {"priority": "urgent"},
    {"priority": 1},
    {"priority": ["high"]},
    {"throttles": tuple(f"t{n}" for n in range(17))},
    {"throttles": ("t" * 257,)},
    {"throttles": ("",)},
    {"throttles": (5,)},
    {"throttles": 5},
    {"throttles": "name"},
    {"dedup_id": ""},
    {"dedup_id": "d" * 257},
    {"dedup_id": 5},
    {"dedup_id": "\n"},
    {"correlation_id": "c" * 129},
    {"correlation_id": ""},
    {"correlation_id": "ä"},
    {"correlation_id": 5},
    *({name: value} for name, least, most in WHOLE_LIMITS for value in wrong_numbers(least, most)),
]
POLICIES: list[dict[str, object]] = [
    {},
    {"fairness_key_from": "header:t", "weight_from": "header:w", "throttles_from": ("{e}",)},
    {"waiting_max": 2, "backpressure": "drop_oldest"},
    {"key_waiting_max": 5, "backpressure": "wait"},
    {"on_enqueue": "function on_enqueue(msg) return { fairness_key = msg.headers.t } end"},
]


@pytest.mark.parametrize("terms", GOOD + [{name: most} for name, _, most in WHOLE_LIMITS], ids=lambda t: repr(t)[:30])
def test_a_message_at_its_limits_is_accepted_and_survives_a_reopen(terms: dict[str, Any]) -> None:
    """What is as large as may be is taken in, and can be read after the broker was opened anew."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x", **terms)
    broker.reopen()
    assert broker.get("q", message_id).payload == b"x"


@pytest.mark.parametrize("policy", POLICIES, ids="-".join)
def test_a_bad_message_is_refused_alone_and_costs_nobody_anything(policy: dict[str, object]) -> None:
    """For every fault the bad one of a batch is invalid, its neighbours are enqueued, and nothing else is lost."""
    for terms in BAD:
        broker = broker_with(policy)
        bad = NewMessage(**terms)
        results = broker.enqueue_many("q", [message(b"1"), bad, message(b"2")], wait_ms=0)
        assert codes(results) == [None, "invalid_argument", None], terms
        with pytest.raises(InvalidArgument):
            broker.enqueue("q", bad)
        broker.reopen()
        assert sorted(payloads(broker.lease("q", 9))) == [b"1", b"2"], terms


def refusal_of(broker: SteppedBroker, messages: Any) -> str | None:
    try:
        return codes(broker.enqueue_many("q", messages))[0]
    except FairlaneError as error:
        return error.code


def test_what_is_no_message_is_refused() -> None:
    """Raw bytes in a batch, a message with terms beside it, and unknown terms are invalid; nothing is enqueued."""
    broker = broker_with()
    wrong: Any = [b"x"]
    unknown: Any = {"colour": "red"}
    assert refusal_of(broker, wrong) == "invalid_argument"
    with pytest.raises(InvalidArgument):
        broker.enqueue("q", message(b"x"), cost=2)
    with pytest.raises(InvalidArgument):
        broker.enqueue("q", b"x", **unknown)
    assert broker.queue("q").waiting == 0


def test_a_payload_above_the_limit_is_refused_at_the_edge() -> None:
    """One byte more than ``payload_bytes_max`` is too large; exactly that much comes back as it was."""
    broker = broker_with(settings=Settings(payload_bytes_max=1_000))
    results = broker.enqueue_many("q", [message(b"x" * 1_000), message(b"y" * 1_001)])
    assert codes(results) == [None, "payload_too_large"]
    with pytest.raises(PayloadTooLarge):
        broker.enqueue("q", b"y" * 1_001)
    assert payloads(broker.lease("q", 5)) == [b"x" * 1_000]


def test_the_default_limit_is_sixteen_mebibytes() -> None:
    """A payload of 16 MiB goes in and comes out; one byte more does not go in."""
    broker = broker_with()
    body = bytes(16 * 1024 * 1024)
    results = broker.enqueue_many("q", [message(body), message(body + b"x")])
    assert codes(results) == [None, "payload_too_large"]
    assert lease_one(broker).payload == body


def test_a_batch_above_the_limit_is_refused_whole() -> None:
    """10 000 messages go in one request, 10 001 do not and none of them is taken in."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.enqueue_many("q", [message()] * 10_001)
    assert broker.queue("q").waiting == 0
    assert broker.enqueue_many("q", []) == []
    assert len(set(map(str, broker.enqueue_many("q", [message()] * 10_000)))) == 10_000


def test_every_field_of_a_message_comes_out_as_it_went_in() -> None:
    """Payload, headers, key, cost, priority, correlation id and trace headers reach the consumer unchanged."""
    broker = broker_with()
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    message_id = broker.enqueue(
        *("q", b"\x00\xff"),
        headers=trace,
        fairness_key=("acme", "mobile"),
        weight=2,
        cost=7,
        priority="high",
        throttles=("t",),
        deadline_ms=5_000,
        correlation_id="trace-1",
    )
    start = broker.clock.now_ms()
    broker.reopen()
    view = broker.get("q", message_id)
    assert (view.weight, view.throttles, view.deadline_ms, view.status) == (2, ("t",), start + 5_000, "waiting")
    delivery = lease_one(broker, owner="me")
    assert (delivery.id, delivery.payload, delivery.headers) == (message_id, b"\x00\xff", trace)
    assert (delivery.fairness_key, delivery.cost, delivery.priority) == (("acme", "mobile"), 7, "high")
    assert (delivery.correlation_id, delivery.attempt, delivery.enqueued_ms) == ("trace-1", 1, start)
    assert delivery.expires_ms == start + 30_000


def test_without_a_correlation_id_a_message_has_its_own() -> None:
    """The id is the correlation id, for observers and consumers alike, also after a retry."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    assert broker.get("q", message_id).correlation_id == message_id
    broker.nack(lease_one(broker), delay_ms=0)
    assert lease_one(broker).correlation_id == message_id


def test_priorities_order_the_messages_of_one_key_only() -> None:
    """High goes before normal before low within a key; another key keeps its turn."""
    broker = broker_with()
    for name, key, priority in (("1", "a", "low"), ("2", "a", "normal"), ("3", "a", "high"), ("4", "b", "low")):
        broker.enqueue_many("q", [message(name.encode(), fairness_key=key, priority=priority)])
    assert payloads(broker.lease("q", 4)) == [b"3", b"4", b"2", b"1"]


def test_strict_priority_orders_across_keys() -> None:
    """With ``strict_priority`` the high ones of all keys go before any low one."""
    broker = broker_with({"strict_priority": True})
    for name, key, priority in (("1", "a", "low"), ("2", "b", "low"), ("3", "b", "high"), ("4", "b", "high")):
        broker.enqueue_many("q", [message(name.encode(), fairness_key=key, priority=priority)])
    assert payloads(broker.lease("q", 4))[:2] == [b"3", b"4"]


def test_a_delay_holds_a_message_to_the_millisecond() -> None:
    """One millisecond before it is due there is nothing; at its instant a waiter gets it; over a reopen too."""
    broker = broker_with()
    broker.enqueue("q", b"x", delay_ms=1_000)
    assert broker.peek("q")[0].status == "delayed"
    broker.advance(999)
    assert broker.lease("q") == []
    broker.reopen()
    assert broker.lease("q") == []
    broker.advance(1)
    assert payloads(broker.lease("q")) == [b"x"]


@pytest.mark.parametrize("action", ["drop", "dlq"])
def test_a_deadline_is_never_missed_quietly(action: str) -> None:
    """After its deadline a message is gone, or a dead letter of that reason; the policy's default applies too."""
    broker = broker_with({"deadline_ms": 500, "deadline_action": action})
    own = broker.enqueue("q", b"own", deadline_ms=100)
    broker.enqueue("q", b"default")
    broker.advance(100)
    assert broker.queue("q").waiting == 2
    broker.advance(1)
    assert [view.id for view in broker.peek("q.dlq")] == ([own] if action == "dlq" else [])
    broker.reopen()
    broker.advance(400)
    assert broker.lease("q", 9) == []
    found = [view.dead.reason for view in broker.peek("q.dlq") if view.dead is not None]
    assert found == (["deadline"] * 2 if action == "dlq" else [])
    with pytest.raises(MessageNotFound):
        broker.get("q", own)
