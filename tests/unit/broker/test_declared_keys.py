"""Declared keys: what a policy takes from headers, over the producer's wish and under the hook's answer."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message

DECLARED: dict[str, Any] = {
    "fairness_key_from": ("header:tenant", "header:app"),
    "weight_from": "header:weight",
    "cost_from": "header:cost",
    "priority_from": "header:priority",
    "cap_from": "header:cap",
    "throttles_from": ("{tenant}:{app}", "fixed"),
}
HEADERS = {"tenant": "acme", "app": "web", "weight": "3", "cost": "5", "priority": "High", "cap": "1"}
WISH: dict[str, Any] = {"fairness_key": "w", "weight": 9, "cost": 9, "priority": "low", "throttles": ("w",)}


def terms_of(broker: SteppedBroker, **terms: Any) -> tuple[Any, ...]:
    view = broker.get("q", broker.enqueue("q", b"12345", **terms))
    return (view.fairness_key, view.weight, view.cost, view.priority, view.throttles)


def test_the_declared_win_over_the_producer() -> None:
    """Each field comes from the header that the policy names; of throttles a producer can only add more."""
    declared = (("acme", "web"), 3, 5, "high", ("acme:web", "fixed", "w"))
    assert terms_of(broker_with(DECLARED), headers=HEADERS, **WISH) == declared


def test_without_the_headers_the_producer_has_its_wish() -> None:
    """A source whose header is missing or senseless gives nothing, and the wish stands."""
    broker = broker_with({name: source for name, source in DECLARED.items() if name != "throttles_from"})
    wished = ("w", 9, 9, "low", ("w",))
    assert terms_of(broker, **WISH) == wished
    assert terms_of(broker, headers={"weight": "x", "cost": "", "priority": "urgent", "tenant": ""}, **WISH) == wished


def test_a_producer_can_not_talk_itself_out_of_declared_throttles() -> None:
    """They hold whatever it wishes, as far as the headers give their names."""
    assert terms_of(broker_with(DECLARED), **WISH)[4] == ("fixed", "w")
    assert terms_of(broker_with(DECLARED), headers=HEADERS)[4] == ("acme:web", "fixed")


def test_the_hook_wins_over_the_declared() -> None:
    """What a hook answers counts; what it leaves open is declared."""
    script = 'function on_enqueue(m) return { fairness_key = "hook", throttle_keys = {} , weight = 7 } end'
    broker = broker_with({**DECLARED, "on_enqueue": script})
    assert terms_of(broker, headers=HEADERS, **WISH) == ("hook", 7, 5, "high", ())


@pytest.mark.parametrize(
    ("header", "weight", "cost"), [("0", 1, 1), ("-5", 1, 1), ("99999999", 1_000, 1_000_000), ("1" * 5_000, 9, 9)]
)
def test_declared_numbers_are_brought_within_their_limits(header: str, weight: int, cost: int) -> None:
    """A header can buy a tenant no more than the limit; one that is no number at all buys nothing."""
    broker = broker_with({"weight_from": "header:n", "cost_from": "header:n"})
    assert terms_of(broker, headers={"n": header}, **WISH)[1:3] == (weight, cost)


def test_a_path_is_as_long_as_the_headers_give_it() -> None:
    """The first missing header ends the path; a path of one is a plain key."""
    broker = broker_with(DECLARED)
    assert terms_of(broker, headers={"tenant": "acme"})[0] == "acme"
    assert terms_of(broker, headers={"app": "web"})[0] == "default"


def test_declared_keys_are_cut_to_their_limit() -> None:
    """A header longer than a key may be is cut, and the message is accepted and found after a reopen."""
    broker = broker_with({"fairness_key_from": "header:t", "throttles_from": ("header:t",)})
    key, *_, throttles = terms_of(broker, headers={"t": "x" * 5_000})
    assert (key, throttles) == ("x" * 1_024, ("x" * 256,))
    broker.reopen()
    assert lease_one(broker).fairness_key == "x" * 1_024


@pytest.mark.parametrize("source", ["x{}", "{}", "{a}{}", "{{a}}", "{", "}", "{a}}", "100%"])
def test_odd_templates_harm_nobody(source: str) -> None:
    """Whatever braces a source has, it is refused or gives a key or nothing; messages with odd headers go in."""
    broker = SteppedBroker()
    try:
        broker.create_queue("q", {"fairness_key_from": source})
    except ValueError:
        return
    for headers in ({}, {"": "v"}, {"a": "{}"}, {"a": "", "": "{a}"}):
        broker.enqueue("q", b"x", headers=headers)
    assert broker.queue("q").waiting == 4


def test_a_declared_cap_limits_the_leases_of_a_key() -> None:
    """With a cap of one from the header, the second message of the key waits for the first to be acked."""
    broker = broker_with(DECLARED)
    broker.enqueue_many("q", [message(b"1", headers=HEADERS), message(b"2", headers=HEADERS)])
    first = lease_one(broker)
    assert broker.lease("q") == []
    broker.reopen()
    assert broker.lease("q") == []
    broker.ack(first)
    assert lease_one(broker).payload == b"2"


def test_the_scope_of_a_throttle_is_shared_or_the_queues_own() -> None:
    """With scope ``queue`` a name means this queue's own bucket; with ``shared`` two queues draw on one."""
    broker = broker_with({"throttle_scope": "queue"})
    for name in ("r", "s"):
        broker.create_queue(name)
    for name, rate in (("t", "0"), ("q/t", "0")):
        broker.set_config(f"throttle:{name}:burst", "1")
        broker.set_config(f"throttle:{name}:rate", rate)
    for name in ("q", "r", "s"):
        broker.enqueue_many(name, [message(throttles=("t",))] * 2)
    assert [len(broker.lease(name, 9)) for name in ("q", "r", "s")] == [1, 1, 0]
