"""Explain: why a message waits, in words and in fields, for every reason."""

from __future__ import annotations

import pytest

from fairlane.errors import MessageNotFound
from tests.unit.broker.stepping import broker_with, lease_one, message, start_lease


def test_leased() -> None:
    """Who has it, until when, and which attempt it is."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    lease_one(broker, owner="worker-7")
    broker.advance(1_000)
    found = broker.explain("q", message_id)
    assert (found.reason, found.owner, found.until_ms) == ("leased", "worker-7", broker.clock.now_ms() + 29_000)
    assert found.words == "It is leased to worker-7 for another 29000 ms, attempt 1."
    assert (found.id, found.queue) == (message_id, "q")


def test_queue_paused() -> None:
    """The queue as a whole is paused, which comes before all that is about its key."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"", delay_ms=10)
    broker.pause("q")
    found = broker.explain("q", message_id)
    assert (found.reason, found.words) == ("queue_paused", "Queue 'q' is paused.")


def test_paused_names_the_key_that_is() -> None:
    """For a child of a paused key it is the parent that is named."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"", fairness_key=("a", "b"))
    broker.pause("q", key="a")
    found = broker.explain("q", message_id)
    assert (found.reason, found.key, found.words) == ("paused", "a", "Key 'a' is paused.")


def test_capped_names_the_key() -> None:
    """Its key has as much in use as it may."""
    broker = broker_with({"caps": {"a": 1}})
    broker.enqueue_many("q", [message(fairness_key="a")] * 2)
    lease_one(broker)
    waiting = next(view.id for view in broker.peek("q") if view.status == "waiting")
    found = broker.explain("q", waiting)
    assert (found.reason, found.key) == ("capped", "a")
    assert "cap" in found.words


def test_throttled_names_the_throttle_and_the_instant() -> None:
    """The throttle that takes longest, and when it has a token; for a rate of zero that it gets none."""
    broker = broker_with()
    for name, rate in (("fast", "10"), ("slow", "1"), ("never", "0")):
        broker.set_config(f"throttle:{name}:burst", "1")
        broker.set_config(f"throttle:{name}:rate", rate)
    broker.enqueue("q", b"", throttles=("fast", "slow"))
    broker.enqueue("q", b"", throttles=("never",))
    assert len(broker.lease("q", 9)) == 2
    slow = broker.enqueue("q", b"", throttles=("fast", "slow"))
    never = broker.enqueue("q", b"", throttles=("never", "slow"))
    found = broker.explain("q", slow)
    assert (found.reason, found.throttle, found.until_ms) == ("throttled", "slow", broker.clock.now_ms() + 1_000)
    assert found.words == "Throttle 'slow' has no token for 1000 ms."
    found = broker.explain("q", never)
    assert (found.reason, found.throttle, found.until_ms) == ("throttled", "never", None)


def test_not_due_says_when() -> None:
    """A delayed message names its instant, and so does one that backs off after a failure."""
    broker = broker_with({"backoff_ms": 500, "backoff_jitter": 0.0})
    delayed = broker.enqueue("q", b"", delay_ms=700)
    failed = broker.enqueue("q", b"")
    broker.nack(lease_one(broker))
    now_ms = broker.clock.now_ms()
    assert [(f.reason, f.until_ms) for f in (broker.explain("q", delayed), broker.explain("q", failed))] == [
        ("not_due", now_ms + 700),
        ("not_due", now_ms + 500),
    ]
    assert broker.explain("q", delayed).words == "Not due for 700 ms."


def test_no_consumer_and_turn_differ_by_whether_anybody_asks() -> None:
    """Nothing holds it back: either nobody asks, or others have their turn first."""
    broker = broker_with({"caps": {"a": 0}})
    first = broker.enqueue("q", b"", fairness_key="b")
    second = broker.enqueue("q", b"", fairness_key="b")
    found = broker.explain("q", first)
    assert (found.reason, found.turns) == ("no_consumer", 0)
    assert "no consumer is asking" in found.words
    turns = broker.explain("q", second).turns
    assert turns is not None
    broker.pause("q")
    start_lease(broker)
    assert broker.explain("q", first).reason == "queue_paused"


def test_a_throttled_message_keeps_its_reason_while_consumers_wait() -> None:
    """With a consumer waiting and nothing to give it, the reason is the throttle and not the consumer."""
    broker = broker_with()
    broker.set_config("throttle:t:burst", "1")
    broker.set_config("throttle:t:rate", "1")
    broker.enqueue_many("q", [message(throttles=("t",))] * 2)
    lease_one(broker)
    start_lease(broker)
    waiting = next(view.id for view in broker.peek("q") if view.status == "waiting")
    assert broker.explain("q", waiting).reason == "throttled"


def test_what_is_gone_is_not_found() -> None:
    """Done, removed and never-seen messages have no explanation."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    broker.ack(lease_one(broker))
    for gone in (message_id, "0" * 16, "nonsense"):
        with pytest.raises(MessageNotFound):
            broker.explain("q", gone)


def test_explaining_changes_nothing() -> None:
    """Asking for reasons writes nothing and leaves the order as it was."""
    broker = broker_with()
    ids = [str(i) for i in broker.enqueue_many("q", [message(fairness_key=key) for key in "aabbc"])]
    before = broker.engine.ledger.next_sequence
    for message_id in ids:
        broker.explain("q", message_id)
    assert broker.engine.ledger.next_sequence == before
    assert [delivery.fairness_key for delivery in broker.lease("q", 5)] == ["a", "b", "c", "a", "b"]
