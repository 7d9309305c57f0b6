"""Limits that hold for every tenant without naming it: fields of the policy, and patterns in config."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlane.errors import InvalidArgument
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, message, start_lease


def tenants_of(broker: SteppedBroker, count: int = 100) -> Counter[str]:
    """Lease what may go now, and count it by outermost key."""
    leased = broker.lease("q", count)
    keys = [delivery.fairness_key for delivery in leased]
    return Counter(key if isinstance(key, str) else key[0] for key in keys)


def fill(broker: SteppedBroker, *keys: str | tuple[str, ...], count: int = 20) -> None:
    """Enqueue messages of keys."""
    broker.enqueue_many("q", [message(fairness_key=key) for key in keys for _ in range(count)])


def test_every_tenant_gets_at_most_ten_a_second_and_five_at_once() -> None:
    """The one line of the guide: after a burst of five each, ten a second each, and never more than five in flight."""
    broker = broker_with({"key_rate": 10, "key_burst": 5, "key_cap": 5})
    fill(broker, "acme", "bakery", ("school", "maths"), ("school", "music"))
    first = broker.lease("q", 100)
    assert Counter(str(delivery.fairness_key)[:5] for delivery in first) == {"acme": 5, "baker": 5, "('sch": 5}
    broker.clock.advance(1_000)
    assert tenants_of(broker) == {}  # all five are in flight
    broker.ack_many("q", first)
    assert tenants_of(broker) == {"acme": 5, "bakery": 5, "school": 5}


def test_the_limits_of_every_tenant_change_live() -> None:
    """A rate and a cap that are set, raised and removed act on the backlog at once."""
    broker = broker_with()
    fill(broker, "a", "b", count=50)
    broker.update_queue("q", {"key_rate": 1, "key_burst": 2})
    assert tenants_of(broker) == {"a": 2, "b": 2}
    broker.clock.advance(1_000)
    assert tenants_of(broker) == {"a": 1, "b": 1}
    broker.update_queue("q", {"key_rate": 100, "key_burst": 50})
    broker.clock.advance(100)
    assert tenants_of(broker) == {"a": 10, "b": 10}
    broker.update_queue("q", {"key_rate": None, "key_burst": None, "key_cap": 20})
    assert tenants_of(broker) == {"a": 7, "b": 7}


def test_a_tenant_gets_no_tokens_by_a_reopen() -> None:
    """After a restart the rate of each tenant starts with no tokens."""
    broker = broker_with({"key_rate": 10, "key_burst": 5})
    fill(broker, "a")
    assert tenants_of(broker) == {"a": 5}
    broker.reopen()
    fill(broker, "b")
    assert tenants_of(broker) == {}
    broker.clock.advance(200)
    assert tenants_of(broker) == {"a": 2, "b": 2}


def test_a_tenant_without_a_token_is_explained() -> None:
    """The reason is throttled, with the key, the instant of its next token, and words that say so."""
    broker = broker_with({"key_rate": 10, "key_burst": 1})
    fill(broker, ("acme", "mobile"), count=2)
    assert tenants_of(broker) == {"acme": 1}
    (waiting,) = [view for view in broker.peek("q", 5) if view.status == "waiting"]
    found = broker.explain("q", waiting.id)
    assert (found.reason, found.key, found.throttle) == ("throttled", "acme", "rate:q:acme")
    assert found.until_ms == broker.clock.now_ms() + 100
    assert found.words == "Key 'acme' has used up its rate for 100 ms."
    (key,) = broker.inspect("q").keys
    assert (key.throttle, key.throttled_until_ms) == ("rate:q:acme", broker.clock.now_ms() + 100)


ORDER = [
    ("cap:q:acme", "6", "config for the key"),
    ("policy", "5", "the policy for the key"),
    ("cap:*:acme", "4", "config for the key in all queues"),
    ("cap:q:ac*", "3", "the longer prefix"),
    ("cap:q:a*", "2", "the shorter prefix"),
    ("cap:*:a*", "7", "the same prefix in all queues"),
    ("cap:q:*", "9", "every key of the queue"),
    ("cap:*:*", "8", "every key of every queue"),
    ("key_cap", "1", "the policy for every tenant"),
]


@pytest.mark.parametrize("at", range(len(ORDER)), ids=[words for *_, words in ORDER])
def test_the_most_specific_setting_wins(at: int) -> None:
    """With all settings from one on, that one counts; setting and removing the one before acts at once."""
    present = {name: int(value) for name, value, _ in ORDER[at:]}
    fields: dict[str, object] = {"key_cap": present.pop("key_cap")}
    if "policy" in present:
        fields["caps"] = {"acme": present.pop("policy")}
    broker = broker_with(fields)
    broker.set_config_many({name: str(value) for name, value in reversed(present.items())})
    fill(broker, "acme")
    assert tenants_of(broker) == {"acme": int(ORDER[at][1])}


def test_a_star_stands_for_the_rest_of_one_name() -> None:
    """A pattern without a slash is about tenants, one with a slash about keys below a tenant."""
    broker = broker_with()
    broker.set_config_many({"cap:q:*": "4", "cap:q:acme/*": "1"})
    fill(broker, ("acme", "web"), ("acme", "app"), "bakery", ("bakery", "web"))
    assert tenants_of(broker) == {"acme": 2, "bakery": 4}


def test_patterns_of_weights_and_rates_act_on_the_backlog() -> None:
    """Weights and rates have patterns like caps, also when they are set while messages wait."""
    broker = broker_with()
    fill(broker, "free-1", "paid-1", count=40)
    broker.set_config_many({"weight:q:paid-*": "3", "burst:q:free-*": "3", "rate:*:free-*": "1"})
    assert tenants_of(broker, 8) == {"free-1": 2, "paid-1": 6}
    assert tenants_of(broker, 8) == {"free-1": 1, "paid-1": 7}
    broker.set_config("rate:q:free-1", "1000")
    broker.clock.advance(10)
    assert tenants_of(broker)["free-1"] == 3


def test_a_pattern_of_throttles_limits_each_name_by_itself() -> None:
    """Each throttle that a pattern fits has a bucket of its own, and its own name overrides the pattern."""
    broker = broker_with()
    broker.set_config_many(
        {"throttle:tenant-*:burst": "2", "throttle:tenant-*:rate": "1", "throttle:tenant-a:burst": "5"}
    )
    for key in ("a", "b", "c"):
        broker.enqueue_many("q", [message(fairness_key=key, throttles=(f"tenant-{key}",))] * 10)
    broker.enqueue_many("q", [message(fairness_key="d", throttles=("other",))] * 10)
    assert tenants_of(broker) == {"a": 5, "b": 2, "c": 2, "d": 10}
    broker.set_config("throttle:tenant-b:rate", "1000")
    broker.clock.advance(1_000)
    assert tenants_of(broker) == {"a": 1, "b": 2, "c": 1}
    broker.set_config("throttle:tenant-*:rate", None)
    assert tenants_of(broker) == {"a": 4, "c": 7}
    broker.set_config_many({"throttle:tenant-b:rate": None, "throttle:tenant-a:burst": None})
    assert tenants_of(broker) == {"b": 6}
    assert broker.throttles() == []


def test_a_message_behind_a_pattern_of_throttles_is_explained() -> None:
    """The explanation names the throttle that the message has, when its token comes, and follows the pattern live."""
    broker = broker_with()
    broker.set_config_many({"throttle:tenant-*:burst": "1", "throttle:tenant-*:rate": "0.1"})
    broker.enqueue_many("q", [message(throttles=("tenant-a",))] * 2)
    assert len(broker.lease("q", 2)) == 1
    (waiting,) = [view for view in broker.peek("q", 5) if view.status == "waiting"]
    now_ms = broker.clock.now_ms()
    found = broker.explain("q", waiting.id)
    assert (found.reason, found.throttle, found.until_ms) == ("throttled", "tenant-a", now_ms + 10_000)
    broker.set_config("throttle:tenant-*:rate", "1")
    assert broker.explain("q", waiting.id).until_ms == now_ms + 1_000


def test_throttles_are_listed_by_pattern() -> None:
    """The list has a row for a pattern with the number of its buckets, and the queue shows the buckets."""
    broker = broker_with()
    broker.set_config_many({"throttle:t-*:rate": "2", "throttle:smtp:rate": "5"})
    broker.enqueue_many("q", [message(throttles=(f"t-{at}", "smtp")) for at in range(300)])
    smtp, pattern = broker.throttles()
    assert (smtp.name, smtp.rate, smtp.burst, smtp.tokens, smtp.buckets) == ("smtp", 5.0, 5.0, 5, None)
    assert (pattern.name, pattern.rate, pattern.burst, pattern.tokens, pattern.buckets) == ("t-*", 2.0, 2.0, 600, 300)
    shown = broker.inspect("q").throttles
    assert shown[0].name == "smtp"
    assert len(shown) == 100


BAD_PATTERNS = [
    "throttle:a*b:rate",
    "throttle:**:rate",
    f"throttle:{'x' * 257}*:rate",
    "cap:q:a*b",
    "cap:q:*/mobile",
    "cap:q:acme//*",
    "cap:q:a/b/c/d/e/f/g/h/*",
    "cap:no queue:*",
    "cap:ma*:acme",
    "cap:q.dlq:*",
    "weight:q:**",
    "rate:q:*x",
    "throttle_weight:q:t-*",
    "throttle_weight:*:t",
]


@pytest.mark.parametrize("key", BAD_PATTERNS, ids=lambda key: key[:24])
def test_a_pattern_that_can_match_nothing_is_refused(key: str) -> None:
    """A star in the middle, an impossible name, a path that is too deep: nothing is changed."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.set_config(key, "1")
    assert broker.list_config() == {}


def test_dead_letters_are_not_limited_by_patterns_and_defaults() -> None:
    """An operator who looks through dead letters waits for no rate of a tenant."""
    broker = broker_with({"key_rate": 1, "key_burst": 1, "key_cap": 1, "max_attempts": 1})
    broker.set_config_many({"cap:*:*": "1", "rate:*:*": "1"})
    fill(broker, "a", count=3)
    for _ in range(3):
        (delivery,) = broker.lease("q", 5)
        broker.nack(delivery)
        broker.clock.advance(1_000)
    assert len(broker.lease("q.dlq", 5)) == 3


def test_two_queues_share_a_throttle_that_a_pattern_made() -> None:
    """Queues with messages for one throttle of a pattern divide it by weight, and get the whole of it together."""
    broker = broker_with()
    broker.create_queue("other")
    broker.set_config_many({"throttle:t-*:burst": "4", "throttle:t-*:rate": "40", "throttle_weight:q:t-a": "3"})
    for queue in ("q", "other"):
        broker.enqueue_many(queue, [message(throttles=("t-a",))] * 400)
    got: Counter[str] = Counter()
    for _ in range(400):
        broker.clock.advance(25)
        for queue in ("q", "other"):
            got[queue] += len(broker.lease(queue, 1))
    assert sum(got.values()) in (400, 401, 402, 403, 404)
    assert 295 <= got["q"] <= 306


def test_a_waiting_consumer_is_woken_by_the_token_of_a_tenant() -> None:
    """A long poll for a tenant without a token is answered the moment it has one, and not before."""
    broker = broker_with({"key_rate": 2, "key_burst": 1})
    fill(broker, "a", count=2)
    assert tenants_of(broker) == {"a": 1}
    poll = start_lease(broker)
    assert not poll.done()
    assert broker.engine.next_event_at() == broker.clock.now_ms() + 500
    broker.clock.advance(500)
    broker.step()
    assert len(poll.get()) == 1


def test_a_throttle_that_charges_by_cost_lets_two_of_five_through_a_burst_of_ten() -> None:
    """Set by config or by set_throttle, by name or by pattern: the tokens are what the messages cost."""
    broker = broker_with()
    broker.set_config_many({"throttle:llm:burst": "10", "throttle:llm:charge": "cost", "throttle:llm:rate": "10"})
    broker.set_throttle("gpu-*", rate=10, burst=10, charge="cost")
    for name in ("llm", "gpu-1", "gpu-2"):
        broker.enqueue_many("q", [message(fairness_key=name, cost=5, throttles=(name,))] * 4)
    assert tenants_of(broker) == {"llm": 2, "gpu-1": 2, "gpu-2": 2}
    broker.clock.advance(500)
    assert tenants_of(broker) == {"llm": 1, "gpu-1": 1, "gpu-2": 1}
    assert [(view.name, view.charges_cost) for view in broker.throttles()] == [("llm", True), ("gpu-*", True)]
    broker.set_config("throttle:llm:charge", None)
    broker.clock.advance(100)
    assert tenants_of(broker) == {"llm": 1}


def test_a_message_above_the_burst_goes_and_leaves_a_debt_that_is_explained() -> None:
    """A message that costs more than the burst waits for a full bucket, not for ever; the next one pays for it."""
    broker = broker_with()
    broker.set_throttle("llm", rate=10, burst=10, charge="cost")
    broker.enqueue_many("q", [message(cost=cost, throttles=("llm",)) for cost in (1, 40, 1)])
    assert len(broker.lease("q", 5)) == 1
    broker.clock.advance(100)
    assert [delivery.cost for delivery in broker.lease("q", 5)] == [40]
    (waiting,) = [view for view in broker.peek("q", 5) if view.status == "waiting"]
    found = broker.explain("q", waiting.id)
    assert (found.reason, found.until_ms) == ("throttled", broker.clock.now_ms() + 3_100)
    assert found.words == "Throttle 'llm' has too few tokens for 3100 ms."


@pytest.mark.parametrize("value", ["", "costs", "1"])
def test_a_charge_is_message_or_cost(value: str) -> None:
    """Anything else is refused."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.set_config("throttle:t:charge", value)


# ---------------------------------------------------------------------------------------------------------- floors


def test_a_floor_holds_although_another_tenant_uses_the_rest() -> None:
    """A loud tenant gets all the queue may have in flight; a quiet one still gets its floor, and no more."""
    broker = broker_with({"in_flight_max": 10, "key_floor": 2, "key_cap": 9})
    fill(broker, "loud", count=30)
    assert tenants_of(broker) == {"loud": 9}
    fill(broker, "quiet", "other", count=30)
    first = broker.lease("q", 100)
    assert Counter(delivery.fairness_key for delivery in first) == {"quiet": 2, "other": 2}
    broker.ack_many("q", first[:1])
    assert len(broker.lease("q", 100)) == 1
    assert tenants_of(broker) == {}


def test_a_message_beyond_floor_and_limit_is_explained() -> None:
    """The reason is capped, without a key, and the words say which limit it is."""
    broker = broker_with({"in_flight_max": 1, "key_floor": 1})
    fill(broker, "a", "b", count=2)
    assert tenants_of(broker) == {"a": 1, "b": 1}
    (waiting,) = [view for view in broker.peek("q", 5) if view.status == "waiting" and view.fairness_key == "a"]
    found = broker.explain("q", waiting.id)
    assert (found.reason, found.key) == ("capped", None)
    assert found.words == "The limit on messages in flight is reached, and its key is not below its floor."


def test_floors_and_limits_change_live_and_survive() -> None:
    """Config sets the floor of a tenant or of a pattern; policy and config act at once, and after a reopen."""
    broker = broker_with({"in_flight_max": 2})
    fill(broker, "vip-1", "vip-2", "other", count=10)
    assert sum(tenants_of(broker).values()) == 2
    broker.set_config_many({"floor:q:vip-*": "2", "floor:q:vip-2": "3"})
    broker.reopen()
    assert broker.inspect("q").leased == 2
    leased = tenants_of(broker)
    assert leased["other"] == 0
    assert {view.key: view.leased for view in broker.inspect("q").keys}["vip-2"] == 3
    broker.update_queue("q", {"in_flight_max": None})
    assert sum(tenants_of(broker).values()) == 30 - 2 - sum(leased.values())


def test_a_waiting_consumer_is_served_when_another_tenant_is_done() -> None:
    """A long poll at a queue with as many in flight as may be is answered by the next acknowledgement."""
    broker = broker_with({"in_flight_max": 1})
    fill(broker, "a", "b", count=2)
    (held,) = broker.lease("q", 5)
    poll = start_lease(broker)
    assert not poll.done()
    broker.ack(held)
    broker.step()
    assert len(poll.get()) == 1


@pytest.mark.parametrize("fields", [{"key_floor": 1}, {"in_flight_max": -1}, {"in_flight_max": 1, "key_floor": -1}])
def test_a_floor_needs_a_limit(fields: dict[str, int]) -> None:
    """A floor without a limit on all, and numbers out of range, are refused; so is a floor of a sub-key."""
    broker = broker_with()
    with pytest.raises(InvalidArgument):
        broker.update_queue("q", fields)
    with pytest.raises(InvalidArgument):
        broker.set_config("floor:q:a/b", "1")
