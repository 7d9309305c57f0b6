"""Which keys may go: those with a message that only waits for its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, lease_one, message


def may_go(broker: SteppedBroker) -> dict[str, bool]:
    """Return by key whether it may go."""
    return {str(view.key): view.may_go for view in broker.inspect("q").keys}


def test_a_key_with_a_due_message_may_go() -> None:
    """So it is until its last message is leased; a key below another counts for itself."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in ("a", "a", ("b", "web"))])
    assert may_go(broker) == {"a": True, "('b', 'web')": True}
    broker.lease("q", 3)
    assert may_go(broker) == {"a": False, "('b', 'web')": False}


BLOCKS: list[tuple[dict[str, Any], dict[str, Any], Callable[[SteppedBroker], object]]] = [
    ({}, {"delay_ms": 1_000}, lambda _: None),
    ({"key_cap": 1}, {}, lease_one),
    ({"key_rate": 0.001, "key_burst": 1}, {}, lease_one),
    ({"order": "strict"}, {}, lease_one),
]


@pytest.mark.parametrize(("policy", "terms", "block"), BLOCKS, ids=["delay", "cap", "rate", "order"])
def test_a_key_that_is_held_back_may_not_go(
    policy: dict[str, Any], terms: dict[str, Any], block: Callable[[SteppedBroker], object]
) -> None:
    """A delay, a cap, a rate and the strict order hold messages back whoever's turn it is."""
    broker = broker_with(policy)
    broker.enqueue_many("q", [message(fairness_key="a", **terms)] * 2)
    block(broker)
    assert may_go(broker) == {"a": False}
