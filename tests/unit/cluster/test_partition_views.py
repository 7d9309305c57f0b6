"""The view of a split queue is made of those of its partitions."""

from __future__ import annotations

from fairlane.cluster.partitions.views import queue_view
from fairlane.model.views import QueueView
from tests.unit.broker.stepping import broker_with, message


def partition(*keys: str) -> QueueView:
    """Return the view of a partition that has its part of a throttle, and a message of each key."""
    broker = broker_with({"key_rate": 6, "key_burst": 3, "key_charge": "cost"})
    broker.set_throttle("model", rate=5, burst=10, charge="cost")
    broker.enqueue_many("q", [message(fairness_key=key, throttles=("model",)) for key in keys])
    return broker.inspect("q")


def test_parts_of_a_throttle_add_up_and_keep_their_charge() -> None:
    """Rate, burst and tokens of a throttle are those of the whole queue; a rate of a key is not divided."""
    view = queue_view("q", [partition("a", "b"), partition("c")], made=2, keys_max=10)
    assert [(each.name, each.rate, each.burst, each.charges_cost) for each in view.throttles] == [
        ("model", 10, 20, True)
    ]
    assert {(key.key, key.rate, key.burst, key.charges_cost) for key in view.keys} == {
        (name, 6, 3, True) for name in "abc"
    }
    assert (view.waiting, view.partitions) == (3, 2)
