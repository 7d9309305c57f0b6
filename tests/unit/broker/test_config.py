"""Config: throttles, weights and caps that act at once on what waits, and survive."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.errors import InvalidArgument
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease


def test_values_are_set_read_listed_removed_and_survive() -> None:
    """Seeds 000: get, list by prefix, overwrite and remove, the same after a reopen."""
    broker = broker_with()
    for key, value in (("feature:a", "on"), ("feature:b", ""), ("other", "ключ"), ("gone", "x")):
        broker.set_config(key, value)
    broker.set_config("feature:a", "off")
    broker.set_config("gone", None)
    broker.set_config("never", None)
    for _ in range(2):
        assert broker.get_config("feature:a") == "off"
        assert broker.get_config("gone") is None
        assert broker.list_config("feature:") == {"feature:a": "off", "feature:b": ""}
        assert list(broker.list_config()) == ["feature:a", "feature:b", "other"]
        broker.reopen()


def test_setting_what_is_set_writes_nothing() -> None:
    """A value that is there already makes no record."""
    broker = broker_with()
    broker.set_config("a", "b")
    before = broker.engine.ledger.next_sequence
    broker.set_config("a", "b")
    assert broker.engine.ledger.next_sequence == before


BAD: list[tuple[Any, Any]] = [
    ("", "x"),
    ("k" * 513, "x"),
    (5, "x"),
    ("\n", "x"),
    ("\ud800", "x"),
    ("a", 5),
    ("a", "\ud800"),
    ("a", "x" * (64 * 1024 + 1)),
    *((f"throttle:t:{field}", value) for field in ("rate", "burst") for value in ("", "x", "nan", "inf", "-1", "1e10")),
    ("throttle:t:burst", "0.5"),
    ("throttle:t:burst", "0.999"),
    ("throttle:t:rate", "0.0000001"),
    ("throttle:t", "5"),
    ("throttle::rate", "5"),
    ("throttle:t:other", "5"),
    ("weight:q:a", "0"),
    ("weight:q:a", "1001"),
    ("weight:q:a", "1.5"),
    ("weight:q", "1"),
    ("weight::a", "1"),
    ("cap:q:a", "-1"),
    ("cap:q:", "1"),
]


@pytest.mark.parametrize(("key", "value"), BAD, ids=lambda value: repr(value)[:24])
def test_a_bad_value_is_refused_and_the_old_one_stays(key: Any, value: Any) -> None:
    """Nothing is changed, live or after a reopen."""
    broker = broker_with()
    broker.set_config("throttle:t:rate", "5")
    with pytest.raises(InvalidArgument):
        broker.set_config(key, value)
    for _ in range(2):
        assert broker.list_config() == {"throttle:t:rate": "5"}
        broker.reopen()


@pytest.mark.parametrize(("key", "meant"), [("cap:*", "cap:*:*"), ("weight:trial-*", "weight:*:trial-*")])
def test_a_pattern_without_a_queue_is_refused_with_one_that_works(key: str, meant: str) -> None:
    """The error names the pattern for all queues, and that is accepted."""
    broker = broker_with()
    with pytest.raises(InvalidArgument, match=re.escape(f"Use {meant} for all queues.")):
        broker.set_config(key, "5")
    broker.set_config(meant, "5")


def test_a_throttle_set_changed_and_removed_acts_at_once_on_the_backlog() -> None:
    """What waits is held back the moment a rate is set, goes faster when it is raised, and all when it is removed."""
    broker = broker_with()
    broker.enqueue_many("q", [message(throttles=("t",))] * 50)
    assert len(broker.lease("q", 3)) == 3
    broker.set_config("throttle:t:burst", "2")
    broker.set_config("throttle:t:rate", "1")
    assert len(broker.lease("q", 10)) == 2
    broker.advance(999)
    assert broker.lease("q") == []
    broker.advance(1)
    assert len(broker.lease("q", 10)) == 1
    broker.set_config("throttle:t:rate", "1000")
    broker.advance(2)
    assert len(broker.lease("q", 10)) == 2
    broker.set_config("throttle:t:rate", None)
    assert len(broker.lease("q", 100)) == 42


def test_a_removed_throttle_wakes_whoever_waits() -> None:
    """Work conserving: a waiting consumer has the message at once, without time passing."""
    broker = broker_with()
    broker.set_config("throttle:t:rate", "0")
    broker.set_config("throttle:t:burst", "1")
    broker.enqueue_many("q", [message(throttles=("t",))] * 2)
    lease_one(broker)
    waiter = start_lease(broker)
    assert not waiter.done()
    broker.set_config("throttle:t:rate", None)
    assert waiter.done()


def test_a_throttle_holds_across_a_reopen() -> None:
    """Buckets start empty, so a crash gives no burst: one token after a second at rate one."""
    broker = broker_with()
    broker.set_config("throttle:t:rate", "1")
    broker.set_config("throttle:t:burst", "5")
    broker.enqueue_many("q", [message(throttles=("t",))] * 9)
    broker.reopen()
    assert broker.lease("q", 9) == []
    broker.advance(1_000)
    assert len(broker.lease("q", 9)) == 1


def test_all_throttles_of_a_message_must_have_a_token() -> None:
    """One shut bucket holds a message back and takes no token from the open one; unknown names limit nothing."""
    broker = broker_with()
    for name, rate in (("open", "5"), ("shut", "0")):
        broker.set_config(f"throttle:{name}:burst", "1")
        broker.set_config(f"throttle:{name}:rate", rate)
    broker.enqueue("q", b"takes shut", throttles=("shut",))
    lease_one(broker)
    broker.enqueue("q", b"both", throttles=("open", "shut"))
    broker.enqueue("q", b"open", throttles=("open", "unknown"))
    assert payloads(broker.lease("q", 9)) == [b"open"]


def test_weights_by_config_decide_shares_at_once_and_survive() -> None:
    """Config wins over policy and producer; removing it gives them their say again."""
    broker = broker_with({"weights": {"a": 2}})
    for key in ("a", "b"):
        broker.enqueue_many("q", [message(fairness_key=key, weight=1)] * 100)
    assert [d.fairness_key for d in broker.lease("q", 12)].count("a") == 8
    broker.set_config("weight:q:a", "5")
    broker.reopen()
    assert [d.fairness_key for d in broker.lease("q", 12)].count("a") == 10
    broker.set_config("weight:q:a", None)
    assert [d.fairness_key for d in broker.lease("q", 12)].count("a") == 8


def test_caps_by_config_act_at_once_and_count_live_leases() -> None:
    """A cap of zero holds back, a raised one lets go, counted from what is leased, over a reopen too."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=("a", "b"))] * 6)
    held = broker.lease("q", 2)
    broker.set_config("cap:q:a/b", "3")
    assert len(broker.lease("q", 9)) == 1
    broker.reopen()
    assert broker.lease("q", 9) == []
    broker.ack(held[0])
    assert len(broker.lease("q", 9)) == 1
    waiter = start_lease(broker, count=9)
    broker.set_config("cap:q:a/b", None)
    assert len(waiter.get()) == 2


def test_a_cap_on_a_parent_holds_all_that_is_below_it() -> None:
    """Two children of a key with a cap of one have one lease between them."""
    broker = broker_with({"caps": {"a": 1}})
    for key in (("a", "b"), ("a", "c"), "d"):
        broker.enqueue("q", repr(key).encode(), fairness_key=key)
    assert len(broker.lease("q", 9)) == 2


def test_config_for_queues_that_are_not_there_yet_waits_for_them() -> None:
    """A weight set before its queue is made counts once it is."""
    broker = broker_with()
    broker.set_config("weight:later:a", "3")
    broker.create_queue("later")
    for key in ("a", "b"):
        broker.enqueue_many("later", [message(fairness_key=key)] * 20)
    assert [d.fairness_key for d in broker.lease("later", 8)].count("a") == 6


def test_a_throttle_is_set_and_lifted_in_one_commit() -> None:
    """Rate and burst come together in one page of the journal, and go together."""
    broker = broker_with()
    after = broker.engine.ledger.next_sequence - 1
    broker.set_throttle("t", rate=0.5, burst=3, by="me")
    assert len(broker.call(ReadSlice(after=after)).pages) == 1
    assert [(view.name, view.rate, view.burst) for view in broker.throttles()] == [("t", 0.5, 3.0)]
    broker.reopen()
    broker.set_throttle("t", rate=None)
    assert broker.list_config() == {}
    assert broker.throttles() == []


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("t", {"rate": float("nan")}),
        ("t", {"rate": -1}),
        ("t", {"rate": "x"}),
        ("t", {"rate": 1e-9}),
        ("t", {"rate": 1, "burst": 0.5}),
        ("t", {"rate": 1, "burst": float("inf")}),
        ("", {"rate": 1}),
        ("\ud800", {"rate": 1}),
        ("x" * 600, {"rate": 1}),
        (5, {"rate": 1}),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_bad_throttle_is_refused_whole(name: Any, terms: dict[str, Any]) -> None:
    """Neither its rate nor its burst is changed."""
    broker = broker_with()
    broker.set_throttle("t", rate=7, burst=9)
    with pytest.raises(InvalidArgument):
        broker.set_throttle(name, **terms)
    assert broker.list_config() == {"throttle:t:rate": "7", "throttle:t:burst": "9"}


def test_a_burst_of_zero_closes_a_throttle_until_it_has_one_again() -> None:
    """Nothing passes and no token is kept; with a burst again the first message goes when a token was earned."""
    broker = broker_with()
    broker.set_throttle("t", rate=10, burst=5)
    broker.set_throttle("t", rate=10, burst=0)
    broker.enqueue_many("q", [message(throttles=("t",))] * 9)
    for _ in range(2):
        assert broker.lease("q", 9, wait_ms=60_000) == []
        broker.reopen()
    waiter = start_lease(broker)
    broker.set_throttle("t", rate=10, burst=5)
    broker.advance(99)
    assert not waiter.done()
    broker.advance(1)
    assert waiter.done()
