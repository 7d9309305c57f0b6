"""Queues: made, changed while in use, paused, emptied, removed, listed."""

from __future__ import annotations

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.errors import InvalidArgument, MessageNotFound, NotADlq, QueueExists, QueueNotFound
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, bury, codes, lease_one, message, payloads, start_lease


def test_a_queue_comes_with_its_dead_letter_queue() -> None:
    """Creating one queue makes two, listed by name, with the policy that was asked for."""
    broker = broker_with({"max_attempts": 7})
    assert [view.name for view in broker.queues()] == ["q", "q.dlq"]
    assert broker.queue("q").policy.max_attempts == 7
    assert broker.queue("q.dlq").policy.max_attempts == 0


def test_a_second_queue_of_the_same_name_is_refused() -> None:
    """The refusal leaves the first with its policy."""
    broker = broker_with({"max_attempts": 7})
    with pytest.raises(QueueExists):
        broker.create_queue("q", {"max_attempts": 1})
    assert broker.queue("q").policy.max_attempts == 7


def test_an_update_changes_only_the_fields_of_a_mapping_and_keeps_messages() -> None:
    """Fields that are not named stay, messages and leases stay, and the new policy is durable."""
    broker = broker_with({"max_attempts": 7})
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(3)])
    held = lease_one(broker)
    broker.update_queue("q", {"visibility_timeout_ms": 500})
    broker.reopen()
    policy = broker.queue("q").policy
    assert (policy.max_attempts, policy.visibility_timeout_ms) == (7, 500)
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (2, 1)
    broker.ack(held)
    delivery = lease_one(broker)
    assert (delivery.payload, delivery.expires_ms) == (b"1", broker.clock.now_ms() + 500)


def test_an_update_acts_on_the_backlog_at_once() -> None:
    """A weight given to a key that has a backlog already decides the next messages."""
    broker = broker_with()
    for key in ("a", "b"):
        broker.enqueue_many("q", [message(fairness_key=key)] * 40)
    assert [d.fairness_key for d in broker.lease("q", 8)].count("a") == 4
    broker.update_queue("q", {"weights": {"a": 3}})
    assert [d.fairness_key for d in broker.lease("q", 8)].count("a") == 6


def test_a_paused_queue_hands_out_nothing_until_resumed_also_after_reopen() -> None:
    """Enqueues go on, leases get nothing, and resuming serves whoever waits at once."""
    broker = broker_with()
    broker.pause("q")
    broker.pause("q")
    broker.enqueue("q", b"x")
    assert broker.lease("q") == []
    broker.reopen()
    assert broker.queue("q").is_paused
    waiter = start_lease(broker)
    assert not waiter.done()
    broker.resume("q")
    assert payloads(waiter.get()) == [b"x"]


def test_a_paused_key_holds_back_itself_and_what_is_below_it() -> None:
    """Other keys go on; the key and its children wait, over a reopen, until it is resumed."""
    broker = broker_with()
    for key in ("a", ("a", "b"), "c"):
        broker.enqueue("q", repr(key).encode(), fairness_key=key)
    broker.pause("q", key="a")
    assert payloads(broker.lease("q", 9)) == [b"'c'"]
    broker.reopen()
    assert broker.queue("q").paused_keys == ("a",)
    assert broker.lease("q", 9) == []
    broker.resume("q", key=("a",))
    assert sorted(payloads(broker.lease("q", 9))) == [b"'a'", b"('a', 'b')"]


def test_inspect_shows_a_key_paused_by_what_is_above_it() -> None:
    """Of a paused key's child an observer sees that it is paused."""
    broker = broker_with()
    broker.enqueue("q", b"", fairness_key=("a", "b"))
    broker.pause("q", key="a")
    assert [(view.key, view.is_paused) for view in broker.inspect("q").keys] == [(("a", "b"), True)]


def test_deadlines_pass_in_a_paused_queue_too() -> None:
    """Pausing holds messages back; it does not keep them beyond their deadline."""
    broker = broker_with()
    broker.pause("q")
    broker.enqueue("q", b"", deadline_ms=100)
    broker.advance(101)
    assert broker.queue("q").waiting == 0


def test_purge_removes_what_is_not_leased() -> None:
    """Waiting and delayed messages go, with their bodies; the leased one stays and can be acked."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"a"), message(b"b"), message(b"c", delay_ms=1_000)])
    held = lease_one(broker)
    assert broker.purge("q") == 2
    assert broker.purge("q") == 0
    broker.ack(held)
    assert broker.store.bodies([numbered(held.id)]) == [None]
    broker.reopen()
    assert (broker.queue("q").waiting, broker.queue("q").leased, broker.queue("q").size) == (0, 0, 0)


def test_deleting_a_queue_leaves_nothing_of_it_in_the_store() -> None:
    """Waiting, leased and dead messages, workflow state and all bodies are gone, and stay gone after a reopen."""
    store = MemoryStore()
    broker = broker_with(store=store)
    before = store.size()
    bury(broker, b"dead" * 100)
    broker.enqueue_many("q", [message(b"x" * 1000)] * 3)
    held = lease_one(broker)
    broker.set_state(held, b"state" * 100, etag=None)
    numbers = range(1, broker.engine.ledger.next_sequence)
    broker.delete_queue("q")
    assert store.bodies(numbers) == [None] * len(numbers)
    assert store.size() < before + 3_000
    for _ in range(2):
        with pytest.raises(QueueNotFound):
            broker.queue("q.dlq")
        with pytest.raises(QueueNotFound):
            broker.ack(held)
        broker.reopen()


def test_a_queue_made_again_after_deletion_is_empty_also_after_reopen() -> None:
    """Neither messages, dead letters, pauses, dedup ids nor leases of its former life come back."""
    broker = broker_with()
    bury(broker, b"dead")
    broker.enqueue("q", b"old", dedup_id="once")
    held = lease_one(broker)
    broker.pause("q")
    broker.pause("q", key="k")
    broker.delete_queue("q")
    broker.create_queue("q")
    for _ in range(2):
        view = broker.queue("q")
        assert (view.waiting, view.leased, view.dead, view.size, view.is_paused, view.paused_keys) == (
            *(0, 0, 0, 0, False),
            (),
        )
        with pytest.raises(MessageNotFound):
            broker.ack(held)
        broker.reopen()
    assert broker.enqueue("q", b"new", dedup_id="once") != held.id
    assert payloads(broker.lease("q", 5)) == [b"new"]


def test_a_dead_letter_queue_can_not_be_deleted_alone() -> None:
    """It goes with its queue only, but it can be purged, paused and updated like any other."""
    broker = broker_with()
    bury(broker)
    with pytest.raises(InvalidArgument):
        broker.delete_queue("q.dlq")
    broker.pause("q.dlq")
    broker.update_queue("q.dlq", {"visibility_timeout_ms": 5})
    assert broker.purge("q.dlq") == 1


def test_every_verb_says_that_a_queue_is_not_there() -> None:
    """Whatever is asked of an unknown queue, the answer is the same error."""
    broker = broker_with()
    broker.enqueue("q", b"")
    receipt = lease_one(broker)
    for verb in (
        lambda: broker.update_queue("no", {}),
        lambda: broker.delete_queue("no"),
        lambda: broker.pause("no"),
        lambda: broker.purge("no"),
        lambda: broker.queue("no"),
        lambda: broker.inspect("no"),
        lambda: broker.enqueue("no", b""),
        lambda: broker.lease("no"),
        lambda: broker.ack_many("no", [receipt]),
        lambda: broker.nack_many("no", [receipt]),
        lambda: broker.extend_many("no", [receipt]),
        lambda: broker.cancel("no", receipt.id),
        lambda: broker.get("no", receipt.id),
        lambda: broker.peek("no"),
        lambda: broker.explain("no", receipt.id),
        lambda: broker.get_state("no", receipt.id),
        lambda: broker.hook_statistics("no"),
        lambda: broker.redrive("no"),
        lambda: broker.attach("no"),
    ):
        with pytest.raises(QueueNotFound):
            verb()
    with pytest.raises(NotADlq):
        broker.redrive("q")


def test_inspect_tells_keys_throttles_and_counts() -> None:
    """An observer sees how much each key has, its weight and cap, and the throttles that matter here."""
    broker = broker_with({"weights": {"a": 3}, "caps": {"b": 1}})
    broker.set_config("throttle:t:rate", "2")
    broker.set_config("throttle:t:burst", "5")
    broker.set_config("throttle:elsewhere:rate", "1")
    broker.enqueue_many("q", [message(b"12", fairness_key="a", throttles=("t",))] * 3)
    broker.enqueue_many("q", [message(b"3", fairness_key="b")] * 2)
    start = broker.clock.now_ms()
    broker.advance(10)
    broker.lease("q", 2)
    view = broker.inspect("q")
    assert (view.waiting, view.leased, view.size, view.oldest_ms, view.active_keys) == (3, 2, 8, start, 2)
    assert {(key.key, key.messages, key.weight, key.cap) for key in view.keys} == {("a", 3, 3, None), ("b", 2, 1, 1)}
    assert [(t.name, t.rate, t.burst) for t in view.throttles] == [("t", 2.0, 5.0)]
    assert {t.name for t in broker.throttles()} == {"t", "elsewhere"}


def test_cancel_takes_out_what_waits_each_on_its_own() -> None:
    """Waiting and delayed ones go; a leased, an unknown and a repeated one are refused by code."""
    broker = broker_with()
    ids = broker.enqueue_many("q", [message(), message(), message(delay_ms=1_000)])
    held = lease_one(broker)
    results = broker.cancel_many("q", [held.id, *[str(i) for i in ids[1:]], str(ids[1]), "nonsense"], only_waiting=True)
    assert codes(results) == ["not_pending", None, None, "message_not_found", "message_not_found"]
    broker.ack(held)
    assert broker.queue("q").waiting == 0


def test_a_purge_can_include_leased_messages() -> None:
    """Everything is gone, over a reopen too; leases are stale, and the cap and the credit they took are free."""
    broker = broker_with({"caps": {"k": 2}})
    broker.enqueue_many("q", [message(fairness_key="k")] * 3)
    _, got = broker.attach("q", credit=2)
    assert len(got) == 2
    assert broker.purge("q") == 1
    assert broker.purge("q", with_leased=True) == 2
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (0, 0)
    with pytest.raises(MessageNotFound):
        broker.ack(got[0])
    broker.enqueue_many("q", [message(fairness_key="k")] * 2)
    assert len(got) == 4
    broker.reopen()
    assert broker.queue("q").leased == 2
