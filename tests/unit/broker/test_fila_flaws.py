"""Each flaw F1 to F19 of Fila, as a test that Fairlane passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlane.errors import LeaseMismatch, PayloadTooLarge
from fairlane.model.message import Delivery
from fairlane.scheduler.tree import KeyNode
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.counting_store import CountingStore
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads, start_lease


def keys_of(deliveries: list[Delivery]) -> list[Any]:
    return [delivery.fairness_key for delivery in deliveries]


def test_f1_lease_expiry_is_not_starved_by_traffic() -> None:
    """With a command every millisecond, of another queue and of observers, a lease is back within 50 ms of its end."""
    broker = broker_with({"visibility_timeout_ms": 500, "backoff_ms": 0})
    broker.create_queue("busy")
    broker.enqueue("q", b"x")
    lease_one(broker)
    elapsed_ms = 0
    while not broker.queue("q").waiting and elapsed_ms < 1_000:
        broker.clock.advance(1)
        elapsed_ms += 1
        broker.enqueue("busy", b"")
        broker.queues()
    assert 500 <= elapsed_ms <= 550


@pytest.mark.parametrize("quantum", [1, 10])
def test_f2_a_new_or_returning_key_is_served_at_its_first_turn(quantum: int) -> None:
    """Among ten backlogged tenants a quiet one is served within one turn of each, again after it was idle."""
    broker = broker_with({"quantum": quantum})
    for tenant in range(10):
        broker.enqueue_many("q", [message(fairness_key=f"noisy-{tenant}")] * 500)
    broker.lease("q", 37)
    for _ in range(3):
        broker.enqueue("q", b"", fairness_key="quiet")
        keys = keys_of(broker.lease("q", 10 * quantum + 1))
        assert "quiet" in keys
        broker.lease("q", 13)


def test_f3_a_throttled_key_gets_its_rate_beside_nine_others() -> None:
    """Configured for 5 a second with burst 5, in 20 s of 100 messages a second it gets at least 95 % of that."""
    broker = broker_with()
    broker.set_config("throttle:t:rate", "5")
    broker.set_config("throttle:t:burst", "5")
    broker.enqueue_many("q", [message(fairness_key="slow", throttles=("t",))] * 300)
    for tenant in range(9):
        broker.enqueue_many("q", [message(fairness_key=f"t{tenant}")] * 300)
    served = 0
    for _ in range(2_000):
        delivery = lease_one(broker)
        served += delivery.fairness_key == "slow"
        broker.ack(delivery)
        broker.advance(10)
    assert 95 <= served <= 105


def test_f4_a_shut_throttle_blocks_no_other_lane_of_its_key() -> None:
    """The head of a tenant's line needs an empty bucket; its messages with other throttles go meanwhile."""
    broker = broker_with()
    broker.set_config("throttle:a:burst", "1")
    broker.set_config("throttle:a:rate", "0")
    names = ("a", "a", "b", "a", "b", "c")
    broker.enqueue_many("q", [message(name.encode(), fairness_key="tenant", throttles=(name,)) for name in names])
    assert payloads(broker.lease("q", 9)) == [b"a", b"b", b"b", b"c"]


def test_f5_a_throttle_is_exact_without_traffic() -> None:
    """With nobody else moving, at 100 a second and burst 1 a waiting consumer has 100 messages after a second."""
    broker = broker_with()
    broker.set_config("throttle:t:burst", "1")
    broker.set_config("throttle:t:rate", "100")
    broker.enqueue_many("q", [message(throttles=("t",))] * 200)
    _, got = broker.attach("q", credit=1_000)
    broker.advance(1_000)
    assert 100 <= len(got) <= 101


def test_f6_a_consumer_can_not_buffer_the_backlog() -> None:
    """Of a thousand messages one idle consumer holds its credit, a second one gets as much, and order stays fair."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="a")] * 1_000)
    _, first = broker.attach("q")
    _, second = broker.attach("q", credit=5)
    assert (len(first), len(second)) == (32, 5)
    broker.enqueue("q", b"", fairness_key="late")
    assert "late" in keys_of(broker.lease("q", 2))


def test_f7_consumers_that_are_full_cause_no_writes() -> None:
    """While all credit is used up, enqueues write once each, and time and looking write and read nothing."""
    store = CountingStore()
    broker = broker_with(store=store)
    broker.enqueue_many("q", [message()] * 200)
    for _ in range(3):
        broker.attach("q", credit=2)
    store.asked.clear()
    for _ in range(50):
        broker.advance(1)
        broker.queue("q")
        broker.step()
    assert store.asked == {}
    broker.enqueue("q", b"")
    assert store.asked == {"write": 1, "sync": 1}


def test_f8_a_late_ack_does_not_take_a_message_from_its_new_holder() -> None:
    """After expiry the second holder has it; the first one's ack and nack are mismatches and change nothing."""
    broker = broker_with({"backoff_ms": 0})
    broker.enqueue("q", b"x")
    late = lease_one(broker)
    broker.advance(30_000)
    holder = lease_one(broker)
    with pytest.raises(LeaseMismatch):
        broker.ack(late)
    with pytest.raises(LeaseMismatch):
        broker.nack(late)
    broker.ack(holder)


def test_f9_a_poison_message_ends_among_the_dead_letters_by_default() -> None:
    """Without hook or policy, five failed attempts are all it gets; those that crashed are not counted."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"poison")
    attempts = 0
    while deliveries := broker.lease("q", wait_ms=600_000):
        attempts += 1
        if attempts % 2:
            broker.nack(deliveries[0], error="boom")
    assert attempts == 9
    assert broker.get("q.dlq", message_id).failures == 5


def test_f10_a_consumer_that_is_gone_holds_nothing() -> None:
    """Its leases are back at once and count, and it gets nothing more."""
    broker = broker_with({"backoff_ms": 0})
    broker.enqueue_many("q", [message()] * 3)
    consumer, got = broker.attach("q")
    broker.detach(consumer)
    assert (broker.queue("q").waiting, broker.queue("q").leased, broker.queue("q").consumers) == (3, 0, 0)
    assert len(broker.lease("q", 9)) == 3
    assert len(got) == 3


def test_f11_serving_a_message_costs_the_same_with_ten_and_ten_thousand_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in visits to nodes of the fairness tree, 100 messages take no more with 1 000 times the keys."""
    counts: list[int] = []
    original = KeyNode.__getattribute__

    def counted(self: KeyNode, name: str) -> Any:
        counts[-1] += 1
        return original(self, name)

    for keys in (10, 10_000):
        broker = broker_with()
        broker.enqueue_many("q", [message(fairness_key=str(n % keys)) for n in range(10_000)])
        broker.lease("q", 100)
        counts.append(0)
        with monkeypatch.context() as patch:
            patch.setattr(KeyNode, "__getattribute__", counted)
            assert len(broker.lease("q", 100)) == 100
    assert counts[0] > 0
    assert counts[1] <= 2 * counts[0]


def test_f12_messages_cost_what_they_cost() -> None:
    """A tenant whose messages cost five gets one for each five of a tenant whose messages cost one."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="heavy", cost=5)] * 100)
    broker.enqueue_many("q", [message(fairness_key="light")] * 100)
    count = Counter(keys_of(broker.lease("q", 60)))
    assert count["light"] == pytest.approx(50, abs=5)
    assert count["heavy"] == pytest.approx(10, abs=1)


def test_f13_a_header_buys_no_more_than_the_limit_and_no_long_bursts() -> None:
    """A weight from a header is lowered to 1000, one from the operator wins over it."""
    broker = broker_with({"weight_from": "header:weight", "fairness_key_from": "header:t", "weights": {"b": 2}})
    greedy = broker.enqueue("q", b"", headers={"t": "a", "weight": "999999999999"})
    assert broker.get("q", greedy).weight == 1_000
    for tenant in ("b", "c"):
        news = [message(headers={"t": tenant, "weight": "1000" if tenant == "b" else "1"})] * 100
        broker.enqueue_many("q", news)
    broker.cancel("q", greedy)
    keys = keys_of(broker.lease("q", 30))
    assert Counter(keys) == {"b": 20, "c": 10}
    assert "bbb" not in "".join(keys)


def test_f14_a_batch_ack_with_a_repeated_id_is_good_once() -> None:
    """The repeat is refused, the counts are right, and a failed commit leaves the message leased."""
    broker = broker_with()
    broker.enqueue_many("q", [message()] * 2)
    one, two = broker.lease("q", 2)
    assert codes(broker.ack_many("q", [one, one, two, one])) == [None, "lease_mismatch", None, "lease_mismatch"]
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (0, 0)


@pytest.mark.parametrize("length", [65_535, 65_536, 1_000_000])
def test_f15_a_key_or_throttle_of_any_length_kills_nothing(length: int) -> None:
    """From a producer it is refused, from a header or a hook cut or left out; the broker serves on and opens again."""
    script = (
        'function on_enqueue(m) local s = string.rep("k", 70000) return { fairness_key = s, throttle_keys = { s } } end'
    )
    broker = broker_with({"fairness_key_from": "tenant:{t}", "throttles_from": ("x:{t}",)})
    broker.create_queue("hooked", {"on_enqueue": script})
    long = "k" * length
    results = broker.enqueue_many(
        "q", [message(fairness_key=long), message(throttles=(long,)), message(headers={"t": long}), message(b"good")]
    )
    assert codes(results)[:2] == ["invalid_argument"] * 2
    assert codes(broker.enqueue_many("q", [message(headers={"t": "k" * 65_000})])) == [None]
    broker.enqueue("hooked", b"hooked")
    broker.reopen()
    assert b"good" in payloads(broker.lease("q", 9))
    assert payloads(broker.lease("hooked", 9)) == [b"hooked"]


def test_f16_throttle_names_can_be_each_queues_own() -> None:
    """Two queues with the same name for a throttle do not share tokens, and inspect shows a queue only its own."""
    broker = SteppedBroker()
    for name in ("q", "r"):
        broker.create_queue(name, {"throttle_scope": "queue"})
        broker.set_config(f"throttle:{name}/api:burst", "1")
        broker.set_config(f"throttle:{name}/api:rate", "0")
        broker.enqueue_many(name, [message(throttles=("api",))] * 2)
    assert [len(broker.lease(name, 9)) for name in ("q", "r")] == [1, 1]
    assert [throttle.name for throttle in broker.inspect("q").throttles] == ["q/api"]


def test_f17_what_can_not_be_delivered_is_not_accepted() -> None:
    """A message above 16 MiB is refused at enqueue, forward and batch alike; what was accepted is delivered."""
    broker = broker_with()
    body = bytes(16 * 1024 * 1024 + 1)
    with pytest.raises(PayloadTooLarge):
        broker.enqueue("q", body)
    broker.enqueue("q", b"")
    with pytest.raises(PayloadTooLarge):
        broker.ack(lease_one(broker), forward={"q": [message(body)]})
    assert broker.queue("q").waiting == 0


def test_f18_a_cancelled_consumers_messages_go_to_no_other_stream() -> None:
    """What was meant for a consumer that ended is back in its own queue, and a new one gets its own queue only."""
    broker = broker_with({"backoff_ms": 0})
    broker.create_queue("r")
    waiter = start_lease(broker)
    waiter.cancel()
    consumer, got = broker.attach("q")
    broker.detach(consumer)
    _, other = broker.attach("r")
    broker.enqueue("q", b"q")
    broker.enqueue("r", b"r")
    assert (payloads(got), payloads(other)) == ([], [b"r"])
    assert lease_one(broker).payload == b"q"


def test_f19_there_are_caps_paths_and_debts() -> None:
    """A key's leases are capped, shares are split by path so that keys can't be invented, true costs are settled."""
    broker = broker_with({"caps": {"capped": 2}})
    broker.enqueue_many("q", [message(fairness_key="capped")] * 5)
    assert len(broker.lease("q", 9)) == 2
    for n in range(20):
        broker.enqueue_many("q", [message(fairness_key=("many", f"k{n}"))] * 10)
        broker.enqueue_many("q", [message(fairness_key=("one", "k"))] * 10)
    shares = Counter(key[0] for key in keys_of(broker.lease("q", 100)))
    assert shares == {"many": 50, "one": 50}
    held = broker.lease("q", 2)
    broker.ack_many("q", held, costs=[10 if delivery.fairness_key[0] == "one" else None for delivery in held])
    shares = Counter(key[0] for key in keys_of(broker.lease("q", 20)))
    assert shares["many"] >= 13
