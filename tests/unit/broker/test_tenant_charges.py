"""Rates of tenants that charge by cost, through the broker."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from fairlane.errors import InvalidArgument
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, start_lease


def tenants_of(broker: SteppedBroker) -> Counter[str]:
    """Lease what may go now, and count it by tenant."""
    return Counter(str(delivery.fairness_key) for delivery in broker.lease("q", 100))


def costly(broker: SteppedBroker, *costs: int, key: str = "acme", throttles: tuple[str, ...] = ()) -> list[str]:
    """Enqueue a message of each cost, and return their ids."""
    return [broker.enqueue("q", b"", fairness_key=key, cost=cost, throttles=throttles) for cost in costs]


def test_the_rate_of_every_tenant_can_charge_by_cost() -> None:
    """A burst of ten pays for two messages of five, for each tenant, and the third waits for five tokens."""
    broker = broker_with({"key_rate": 10, "key_burst": 10, "key_charge": "cost"})
    *_, third = costly(broker, 5, 5, 5)
    costly(broker, 10, key="bakery")
    assert tenants_of(broker) == {"acme": 2, "bakery": 1}
    found = broker.explain("q", third)
    assert (found.reason, found.key, found.until_ms) == ("throttled", "acme", broker.clock.now_ms() + 500)
    assert found.words == "Key 'acme' has too few tokens of its rate for 500 ms."
    (key, _) = broker.inspect("q").keys
    assert (key.throttle, key.throttled_until_ms) == ("rate:q:acme", broker.clock.now_ms() + 500)
    assert (key.rate, key.burst, key.charges_cost) == (10, 10, True)
    broker.clock.advance(499)
    assert tenants_of(broker) == {}
    broker.clock.advance(1)
    assert tenants_of(broker) == {"acme": 1}


def test_the_charge_of_tenants_changes_live_and_by_name() -> None:
    """Config for a key or a pattern goes before the policy, and both act on the backlog at once."""
    broker = broker_with({"key_rate": 1, "key_burst": 4, "key_charge": "cost"})
    for key in ("acme", "trial-1", "trial-2"):
        costly(broker, *[2] * 10, key=key)
    broker.set_config_many({"charge:q:trial-*": "message", "charge:q:trial-2": "cost"})
    assert tenants_of(broker) == {"acme": 2, "trial-1": 4, "trial-2": 2}
    broker.update_queue("q", {"key_charge": "message"})
    broker.clock.advance(2_000)
    assert tenants_of(broker) == {"acme": 2, "trial-1": 2, "trial-2": 1}


def test_a_consumer_that_waits_gets_the_message_behind_a_cancelled_one() -> None:
    """The tokens that a cancelled message lacked are not waited for any more, by tenant and by throttle."""
    tenants = {"key_rate": 1, "key_burst": 50, "key_charge": "cost"}
    for throttles in ((), ("api",)):
        broker = broker_with({} if throttles else tenants)
        broker.set_throttle("api", rate=1, burst=50, charge="cost")
        _, dear, cheap = costly(broker, 50, 50, 1, throttles=throttles)
        assert len(broker.lease("q", 5)) == 1
        waiting = start_lease(broker)
        broker.clock.advance(2_000)
        broker.step()
        assert not waiting.done()
        broker.cancel("q", dear)
        assert [delivery.id for delivery in waiting.get()] == [cheap]


def test_a_reopen_charges_tenants_by_cost_from_empty_buckets() -> None:
    """After a restart the message of cost five waits until five tokens are earned."""
    broker = broker_with({"key_rate": 10, "key_burst": 10, "key_charge": "cost"})
    costly(broker, 5)
    broker.reopen()
    assert tenants_of(broker) == {}
    broker.clock.advance(500)
    assert tenants_of(broker) == {"acme": 1}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"charge:q:acme": "half"}, "charge:q:acme must be message or cost"),
        ({"charge:q": "cost"}, "charge:QUEUE:KEY"),
        ({"charge:q:*-x": "cost"}, "a prefix followed by a star"),
    ],
)
def test_a_charge_that_makes_no_sense_is_refused(config: dict[str, str], words: str) -> None:
    """The error names the setting and its values."""
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        broker_with().set_config_many(config)


def test_a_charge_of_the_policy_needs_a_rate() -> None:
    """Without ``key_rate`` there is nothing to charge."""
    with pytest.raises(InvalidArgument, match="key_charge cost needs a rate"):
        broker_with({"key_charge": "cost"})
