"""Fila, core concepts: the way of a message, fairness keys, deficit round robin."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.errors import MessageNotFound
from fairlane.model.policy import QueuePolicy
from fairlane.scheduler import Item, Kernel, KeyPolicy
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease
from tests.unit.hooks.scripts import SEED_ON_ENQUEUE
from tests.unit.scheduler.workload import offer, take_keys


def runs(keys: list[object]) -> list[tuple[object, int]]:
    """Return keys with the lengths of their runs."""
    return [(key, len(list(group))) for key, group in groupby(keys)]


def test_001_on_enqueue_runs_at_enqueue() -> None:
    """A queue's `on_enqueue` script runs for each new message; a queue without one needs none."""
    broker = broker_with({"on_enqueue": 'function on_enqueue() return { fairness_key = "scripted" } end'})
    broker.create_queue("plain")
    assert broker.get("q", broker.enqueue("q", b"")).fairness_key == "scripted"
    assert broker.get("plain", broker.enqueue("plain", b"")).fairness_key == "default"


def test_002_the_script_assigns_key_weight_and_throttles() -> None:
    """The script assigns fairness key, weight and throttle keys."""
    broker = broker_with({"on_enqueue": SEED_ON_ENQUEUE})
    view = broker.get("q", broker.enqueue("q", b"", headers={"tenant": "acme", "priority": "7", "endpoint": "api"}))
    assert (view.fairness_key, view.weight, view.throttles) == ("acme", 7, ("api",))


def test_003_messages_are_persisted(tmp_path: Path) -> None:
    """A message is durable in RocksDB when `enqueue` returns, and is there after a restart."""
    broker = broker_with(store=RocksDbStore(tmp_path / "store"))
    broker.enqueue("q", b"kept")
    broker.close()
    broker.store = RocksDbStore(tmp_path / "store")
    broker.reopen()
    assert payloads(broker.lease("q", 9)) == [b"kept"]
    broker.close()


def test_004_messages_are_indexed_by_fairness_key() -> None:
    """The broker counts the messages of each fairness key."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "aab"])
    assert {key.key: key.messages for key in broker.inspect("q").keys} == {"a": 2, "b": 1}


def test_005_tokens_are_checked_before_delivery() -> None:
    """The scheduler picks a key, and delivers a message only if its throttles have tokens."""
    broker = broker_with()
    broker.set_throttle("api", rate=1, burst=1)
    broker.enqueue_many("q", [message(b"1", throttles=("api",)), message(b"2", throttles=("api",)), message(b"3")])
    assert payloads(broker.lease("q", 9)) == [b"1", b"3"]


def test_006_a_waiting_consumer_gets_the_message() -> None:
    """A message goes to a consumer that already waits, in the cycle that enqueues it."""
    broker = broker_with()
    waiter = start_lease(broker)
    assert not waiter.done()
    broker.enqueue("q", b"now")
    assert payloads(waiter.get()) == [b"now"]


def test_007_a_lease_has_a_visibility_timer() -> None:
    """A lease ends exactly when its visibility timeout has passed."""
    broker = broker_with({"visibility_timeout_ms": 200})
    broker.enqueue("q", b"")
    lease_one(broker)
    broker.advance(199)
    assert broker.queue("q").leased == 1
    broker.advance(1)
    assert broker.queue("q").leased == 0


def test_008_an_ack_deletes_the_message() -> None:
    """An acknowledged message is deleted."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    broker.ack(lease_one(broker))
    with pytest.raises(MessageNotFound):
        broker.get("q", message_id)


def test_009_on_failure_decides_about_a_nack() -> None:
    """A nack asks the queue's `on_failure` script whether to retry or to dead-letter."""
    broker = broker_with({"on_failure": 'function on_failure(msg) return { action = "dlq" } end'})
    broker.enqueue("q", b"")
    broker.nack(lease_one(broker))
    assert (broker.queue("q").waiting, broker.queue("q.dlq").waiting) == (0, 1)


def test_010_an_expired_lease_is_enqueued_again() -> None:
    """A message whose lease expires is redelivered at once, as often as it takes, and not dead-lettered."""
    broker = broker_with({"visibility_timeout_ms": 200})
    broker.enqueue("q", b"innocent")
    for attempt in range(1, 11):
        delivery = lease_one(broker)
        assert (delivery.attempt, delivery.failures) == (attempt, 0)
        broker.advance(200)
    assert lease_one(broker).payload == b"innocent"


def test_011_the_default_key() -> None:
    """A message without a fairness key has the key `default`."""
    broker = broker_with()
    assert broker.get("q", broker.enqueue("q", b"")).fairness_key == "default"


def test_012_a_key_per_tenant() -> None:
    """The fairness key can be a tenant header, by script or, without one, by `fairness_key_from`."""
    script = "function on_enqueue(msg) return { fairness_key = msg.headers.tenant_id } end"
    broker = broker_with({"on_enqueue": script})
    broker.create_queue("declared", {"fairness_key_from": "header:tenant_id"})
    for queue in ("q", "declared"):
        message_id = broker.enqueue(queue, b"", headers={"tenant_id": "acme"})
        assert broker.get(queue, message_id).fairness_key == "acme"


def test_013_a_key_per_customer() -> None:
    """Any other header can be the fairness key, such as a customer."""
    broker = broker_with({"fairness_key_from": "customer:{customer}"})
    assert broker.get("q", broker.enqueue("q", b"", headers={"customer": "7"})).fairness_key == "customer:7"


def test_014_a_key_per_priority_with_weights() -> None:
    """Priorities can be keys with weights: `high` at weight 10 gets ten times the share of `low`."""
    script = """function on_enqueue(msg)
      local weights = { high = 10, low = 1 }
      return { fairness_key = msg.headers.priority, weight = weights[msg.headers.priority] }
    end"""
    broker = broker_with({"on_enqueue": script})
    broker.enqueue_many("q", [message(headers={"priority": name}) for name in ("low", "high") * 50])
    assert Counter(delivery.fairness_key for delivery in broker.lease("q", 44)) == {"high": 40, "low": 4}


def test_015_a_key_begins_with_deficit_0_and_weight_1() -> None:
    """A new key has a deficit of 0 and a weight of 1."""
    broker = broker_with()
    broker.enqueue("q", b"", fairness_key="a")
    (key,) = broker.inspect("q").keys
    assert (key.deficit, key.weight) == (0, 1)


def test_016_a_round_adds_weight_times_quantum() -> None:
    """Each round adds its weight times the quantum to a key's deficit."""
    kernel: Kernel[Item] = Kernel(quantum=10)
    kernel.set_policy("b", KeyPolicy(weight=3))
    offer(kernel, "a", 40)
    offer(kernel, "b", 60)
    assert runs(list(take_keys(kernel, 80))) == [("a", 10), ("b", 30), ("a", 10), ("b", 30)]


def test_017_a_delivery_takes_1_from_the_deficit() -> None:
    """Each delivery takes its cost, 1 by default, from the deficit."""
    kernel: Kernel[Item] = Kernel(quantum=10)
    offer(kernel, "a", 20)
    kernel.take(1, 0)
    before = kernel.deficit("a")
    kernel.take(1, 0)
    assert (before, kernel.deficit("a")) == (9, 8)


def test_018_the_next_key_follows_at_deficit_0_or_when_empty() -> None:
    """The next key follows when the deficit is used up, or when the key has no more messages."""
    kernel: Kernel[Item] = Kernel(quantum=3)
    offer(kernel, "a", 5)
    offer(kernel, "b", 1)
    offer(kernel, "c", 4)
    assert runs(list(take_keys(kernel, 10))) == [("a", 3), ("b", 1), ("c", 3), ("a", 2), ("c", 1)]


def test_019_a_quantum_of_1000() -> None:
    """With a quantum of 1,000, a thousand messages of A are followed by a thousand of B."""
    kernel: Kernel[Item] = Kernel(quantum=1_000)
    offer(kernel, "A", 2_000)
    offer(kernel, "B", 2_000)
    assert runs(list(take_keys(kernel, 3_000))) == [("A", 1_000), ("B", 1_000), ("A", 1_000)]


def test_020_the_default_quantum() -> None:
    """The default quantum is 1 instead of 1,000, so that keys alternate finely; a policy can raise it."""
    assert QueuePolicy().quantum == 1
    broker = broker_with({"quantum": 1_000})
    assert broker.queue("q").policy.quantum == 1_000


def test_021_a_noisy_tenant_starves_nobody() -> None:
    """A tenant with a hundred times the messages does not delay another: they alternate."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="noisy")] * 1_000)
    broker.enqueue_many("q", [message(fairness_key="quiet")] * 10)
    keys = [delivery.fairness_key for delivery in broker.lease("q", 1_010)]
    assert len(keys) - keys[::-1].index("quiet") <= 20


def test_022_weight_3_gets_three_times_the_share() -> None:
    """A key of weight 3 gets three times the deliveries of a key of weight 1."""
    broker = broker_with({"weights": {"a": 3}})
    broker.enqueue_many("q", [message(fairness_key=key) for key in "ab" * 500])
    assert Counter(delivery.fairness_key for delivery in broker.lease("q", 400)) == {"a": 300, "b": 100}
