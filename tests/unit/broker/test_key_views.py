"""What is shown of a queue's fairness keys: counts, recent waits, and what holds them back."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.waiting.wait_times import WINDOW_MS, KeyWaitTimes, Sketch
from fairlane.core.ledger import Message
from fairlane.errors import InvalidArgument
from fairlane.model.views import KeyView
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message


def keys_of(broker: SteppedBroker, **how: Any) -> dict[object, KeyView]:
    """Return the keys of ``q`` that are shown."""
    return {view.key: view for view in broker.queue("q", **({"keys_max": 100} | how)).keys}


@pytest.mark.parametrize("strict", [False, True])
def test_counts_are_those_of_the_messages(strict: bool) -> None:
    """Waiting, delayed and leased ones count for their own key, also where a key has others below it."""
    broker = broker_with({"strict_priority": strict})
    own = [message(fairness_key="acme", priority="high"), message(fairness_key="acme", delay_ms=60_000)]
    below = [message(fairness_key=("acme", "web"), priority=name) for name in ("low", "normal", "high")]
    broker.enqueue_many("q", [*own, *below, message(fairness_key="b")])
    broker.lease("q", 4)
    broker.enqueue_many("q", [message(fairness_key="c")])
    held: dict[object, list[int]] = {}
    for view in broker.peek("q", 100):
        counts = held.setdefault(view.fairness_key, [0, 0])
        counts[0] += 1
        counts[1] += view.status == "leased"
    assert {key: [view.messages, view.leased] for key, view in keys_of(broker).items()} == held
    assert sum(leased for _, leased in held.values()) == 4
    assert broker.inspect("q").active_keys == 4


def test_counts_follow_acks_and_returns() -> None:
    """What is acked is gone, what is given back waits, and a key without messages is not shown."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="a"), message(fairness_key="b")])
    one, other = broker.lease("q", 2)
    broker.ack(one)
    broker.nack(other, intent="defer")
    (view,) = keys_of(broker).values()
    assert (view.key, view.messages, view.leased) == (other.fairness_key, 1, 0)


def test_only_so_many_keys_are_shown_those_with_the_most() -> None:
    """All are counted."""
    broker = broker_with()
    for count, key in ((1, "a"), (3, "b"), (2, "c")):
        broker.enqueue_many("q", [message(fairness_key=key)] * count)
    view = broker.queue("q", keys_max=2)
    assert ([key.key for key in view.keys], view.active_keys) == (["b", "c"], 3)
    assert (broker.queue("q").keys, broker.queue("q").active_keys) == ((), None)


@pytest.mark.parametrize("keys_max", [-1, 1_001, True, 1.5])
def test_a_number_that_makes_no_sense_is_refused(keys_max: Any) -> None:
    """Nobody reads more than a thousand."""
    with pytest.raises(InvalidArgument, match="keys_max"):
        broker_with().queue("q", keys_max=keys_max)


def test_waits_are_told_by_key() -> None:
    """Each key's wait is its own, from when a message may first go; without hand-outs nothing is told."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="slow"), message(fairness_key="due", delay_ms=900)])
    broker.advance(1_000)
    broker.enqueue_many("q", [message(fairness_key="quick"), message(fairness_key="new")] * 2)
    assert {key: view.wait_p99_ms for key, view in keys_of(broker).items()} == dict.fromkeys(
        ("slow", "due", "quick", "new")
    )
    for _ in range(6):
        broker.advance(1)
        broker.ack(lease_one(broker))
    broker.enqueue_many("q", [message(fairness_key=key) for key in ("slow", "due", "quick")])
    assert keys_of(broker)["slow"].wait_p50_ms == keys_of(broker)["slow"].wait_p99_ms
    found = {key: view.wait_p99_ms or 0 for key, view in keys_of(broker).items()}
    assert 1_000 <= found["slow"] <= 1_125 + 8
    assert 100 <= found["due"] <= 125
    assert found["quick"] <= 8


def test_the_time_a_message_lay_dead_is_no_wait() -> None:
    """A message that is redriven after an hour has not kept its key waiting for that hour."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="a")] * 2)
    broker.nack(lease_one(broker), intent="dead", error="hopeless")
    broker.ack(lease_one(broker))
    broker.advance(3_600_000)
    broker.redrive("q.dlq")
    broker.advance(1)
    lease_one(broker)
    assert keys_of(broker)["a"].wait_p99_ms in (None, 0, 1)


def test_a_throttled_key_says_by_what_and_until_when() -> None:
    """A key of which something may go is not throttled; one of which nothing may is, until the first token."""
    broker = broker_with()
    broker.set_throttle("t", rate=0.5, burst=1)
    broker.set_throttle("never", rate=0, burst=1)
    for key, throttles in (("a", ("t",)), ("both", ("t",)), ("both", ()), ("stuck", ("never",)), ("free", ())):
        broker.enqueue_many("q", [message(fairness_key=key, throttles=throttles)] * 2)
    assert all(view.throttle is None for view in keys_of(broker).values())
    broker.lease("q", 100)
    broker.enqueue_many("q", [message(fairness_key=key) for key in ("both", "free")])
    start = broker.clock.now_ms()
    found = {key: (view.throttle, view.throttled_until_ms) for key, view in keys_of(broker).items()}
    assert found == {
        "a": ("t", start + 2_000),
        "both": (None, None),
        "stuck": ("never", None),
        "free": (None, None),
    }
    broker.advance(2_000)
    assert keys_of(broker)["a"].throttle is None


# ----------------------------------------------------------------------------------------------------------- the sketch


def test_a_percentile_is_never_too_short_nor_an_eighth_too_long() -> None:
    """Of a thousand waits the 500th and the 990th are what is told."""
    sketch = Sketch(0)
    for wait_ms in range(1, 1_001):
        sketch.add(wait_ms, 0)
    found = sketch.p50_and_p99_ms(0)
    assert found is not None
    assert 500 <= found[0] <= 500 * 9 / 8
    assert 990 <= found[1] <= 990 * 9 / 8


def test_what_is_long_ago_is_forgotten() -> None:
    """After two windows nothing is left of a wait, and after one it still counts."""
    sketch = Sketch(0)
    sketch.add(5, 0)
    assert sketch.p50_and_p99_ms(WINDOW_MS) == (5, 5)
    assert sketch.p50_and_p99_ms(2 * WINDOW_MS) is None


def test_only_so_many_keys_are_remembered() -> None:
    """Those that were served last."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "abc"])
    waits = KeyWaitTimes(keys_max=2)
    found: list[Message] = list(broker.engine.ledger.queues["q"].messages.values())
    for at_ms, each in enumerate(found, broker.clock.now_ms() + 1):
        waits.note("q", [each], at_ms)
    assert len(waits) == 2
    assert waits.p50_and_p99_ms("q", "a", at_ms) is None
    assert waits.p50_and_p99_ms("q", "c", at_ms) == (3, 3)


def test_of_much_in_one_millisecond_a_part_is_looked_at() -> None:
    """The first, and then one of sixteen, so that handing out costs no more for it."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=str(number)) for number in range(160)])
    waits = KeyWaitTimes()
    for each in broker.engine.ledger.queues["q"].messages.values():
        waits.note("q", [each], broker.clock.now_ms())
    assert len(waits) == 10
