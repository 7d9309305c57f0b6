"""Dead letters: why they are there, looking through them, and bringing them back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.broker.redrives import DeadLetterFilter
from fairlead.errors import InvalidArgument, QueueNotFound, RedriveNotFound
from fairlead.testing.faulty_store import FaultyStore
from fairlead.testing.stepped import SteppedBroker
from tests.unit.broker.desk import broker_with, bury, lease_one, message, payloads


def buried(count: int, **policy: object) -> tuple[SteppedBroker, list[str]]:
    """Return a broker with so many dead letters, of payloads 0, 1, 2 and so on, and their ids."""
    broker = broker_with(policy)
    return broker, [bury(broker, b"%d" % n) for n in range(count)]


def test_a_dead_letter_keeps_where_it_came_from_and_what_went_wrong() -> None:
    """Origin, reason, instant, payload, headers, correlation id and the errors of its attempts are all there."""
    broker = broker_with({"max_attempts": 2, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"x", headers={"a": "b"}, correlation_id="c", fairness_key="k")
    broker.nack(lease_one(broker), error="first")
    broker.advance(10)
    broker.nack(lease_one(broker), error="second")
    broker.reopen()
    view = broker.get("q.dlq", message_id)
    assert view.dead is not None
    assert (view.dead.origin, view.dead.reason, view.dead.at_ms) == ("q", "max_attempts", broker.clock.now_ms())
    assert [(e.attempt, e.reason, e.error) for e in view.errors] == [(1, "failure", "first"), (2, "failure", "second")]
    assert (view.payload, view.headers, view.correlation_id, view.fairness_key) == (b"x", {"a": "b"}, "c", "k")
    assert broker.queue("q").dead == 1


def test_the_history_keeps_the_latest_ten_errors() -> None:
    """Of twelve failures the first two are forgotten, live and after a reopen."""
    broker = broker_with({"max_attempts": 12, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"")
    for n in range(12):
        broker.nack(lease_one(broker), error=str(n))
    for _ in range(2):
        view = broker.get("q.dlq", message_id)
        assert ([e.error for e in view.errors], view.failures) == ([str(n) for n in range(2, 12)], 12)
        broker.reopen()


def test_a_dead_letter_can_be_leased_acked_and_failed_but_not_die_again() -> None:
    """Its queue is one like any other, but a letter that fails there, even with intent dead, stays there."""
    broker, (message_id,) = buried(1)
    for intent in ("failure", "dead", "failure"):
        dead = lease_one(broker, "q.dlq", wait_ms=400_000)
        arguments: dict[str, Any] = {"intent": intent}
        broker.nack(dead, **arguments)
    assert broker.get("q.dlq", message_id).dead is not None
    broker.ack(lease_one(broker, "q.dlq", wait_ms=400_000))
    assert broker.queue("q.dlq").waiting == 0


def test_dead_letters_wait_for_no_throttle_delay_or_deadline() -> None:
    """Whoever looks through them gets them at once, though their throttle is shut, and they do not run out."""
    broker = broker_with()
    message_id = bury(broker, throttles=("t",), deadline_ms=50)
    broker.set_config("throttle:t:rate", "0")
    broker.advance(1_000)
    assert lease_one(broker, "q.dlq").id == message_id


# ---------------------------------------------------------------------------------------------------------- browsing


def test_browsing_goes_page_by_page_in_the_order_of_death() -> None:
    """Paging after the last id seen gives each letter once, though they died in another order than they came."""
    broker = broker_with()
    ids = [str(i) for i in broker.enqueue_many("q", [message(b"%d" % n) for n in range(6)])]
    held = {delivery.id: delivery for delivery in broker.lease("q", 6)}
    order = [ids[n] for n in (3, 1, 5, 0, 4, 2)]
    for message_id in order:
        broker.nack(held[message_id], intent="dead")
    seen: list[str] = []
    while page := broker.peek("q.dlq", 2, after=seen[-1] if seen else None):
        seen += [view.id for view in page]
    assert seen == order


def test_paging_goes_on_though_the_last_one_seen_has_left() -> None:
    """Nothing is skipped when the letter that a page ended with was purged or redriven meanwhile."""
    broker = broker_with()
    ids = [str(i) for i in broker.enqueue_many("q", [message()] * 4)]
    held = {delivery.id: delivery for delivery in broker.lease("q", 4)}
    for n in (3, 0, 1, 2):
        broker.nack(held[ids[n]], intent="dead")
    seen = broker.peek("q.dlq", 1)[0].id
    broker.cancel("q.dlq", seen)
    rest: list[str] = []
    try:
        rest = [view.id for view in broker.peek("q.dlq", 9, after=seen)]
    except InvalidArgument:  # to say so is as good as to go on
        return
    assert rest == [ids[0], ids[1], ids[2]]


@pytest.mark.parametrize("bad", [{"after": "nonsense"}, {"after": 5}, {"count": 0}, {"count": 10_001}, {"count": "1"}])
def test_a_bad_page_is_refused(bad: dict[str, Any]) -> None:
    """A position or a size that is none is invalid, rather than the first page again."""
    broker, _ = buried(1)
    with pytest.raises(InvalidArgument):
        broker.peek("q.dlq", **bad)


def test_filters_find_by_key_error_reason_and_age() -> None:
    """Each criterion alone and two together give just the letters they mean."""
    broker = broker_with({"max_attempts": 1, "backoff_ms": 0})
    first = bury(broker, fairness_key="a", error="timeout of db")
    broker.advance(1_000)
    second = broker.enqueue("q", b"", fairness_key=("a", "b"))
    broker.nack(lease_one(broker), error="timeout of api")
    third = bury(broker, fairness_key="a", error="refused")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [first, second, third]),
        ({"fairness_key": "a"}, [first, third]),
        ({"fairness_key": ("a", "b")}, [second]),
        ({"error": "timeout"}, [first, second]),
        ({"error": "timeout", "fairness_key": "a"}, [first]),
        ({"reason": "max_attempts"}, [second]),
        ({"reason": "requested"}, [first, third]),
        ({"older_than_ms": 1_000}, [first]),
        ({"newer_than_ms": 999}, [second, third]),
        ({"error": "nothing like it"}, []),
    ]
    for fields, expected in wanted:
        assert [view.id for view in broker.peek("q.dlq", wanted=DeadLetterFilter(**fields))] == expected, fields


def test_peek_takes_nothing() -> None:
    """B5.3: looking three times, at the queue or at one message, hides and counts nothing."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    for _ in range(3):
        assert broker.peek("q", with_body=True)[0].payload == b"x"
        assert broker.peek("q")[0].payload is None
        assert broker.get("q", message_id).attempts == 0
        assert broker.queue("q").waiting == 1
    assert lease_one(broker).attempt == 1


# ---------------------------------------------------------------------------------------------------------- redriving


def test_redrive_brings_all_back_with_their_attempts_forgotten() -> None:
    """In the order of death, under their own ids, with payload and headers; durable."""
    broker, ids = buried(3)
    started = broker.redrive("q.dlq")
    assert (started.status, started.total) == ("running", 3)
    broker.advance(0)
    view = broker.redrive_view(started.id)
    assert (view.status, view.scanned, view.matched, view.moved, view.error) == ("done", 3, 3, 3, None)
    broker.reopen()
    back = broker.lease("q", 9)
    assert [d.id for d in back] == ids
    assert payloads(back) == [b"0", b"1", b"2"]
    assert [(d.attempt, d.failures, d.dead) for d in back] == [(1, 0, None)] * 3
    assert broker.queue("q.dlq").waiting == 0


def test_redrive_by_count_and_by_filter_takes_only_those() -> None:
    """The rest stay dead letters."""
    broker = broker_with()
    ids = [bury(broker, fairness_key=key) for key in "abab"]
    one = broker.redrive("q.dlq", wanted=DeadLetterFilter(fairness_key="b"), count=1)
    broker.advance(1_000)
    assert broker.redrive_view(one.id).moved == 1
    assert [view.id for view in broker.peek("q")] == [ids[1]]
    assert [view.id for view in broker.peek("q.dlq")] == [ids[0], ids[2], ids[3]]


def test_a_dry_run_counts_and_moves_nothing() -> None:
    """It tells how many would be moved; the journal has nothing of it."""
    broker, _ = buried(5)
    before = broker.engine.ledger.next_sequence
    dry = broker.redrive("q.dlq", is_dry_run=True, count=3)
    broker.advance(1_000)
    view = broker.redrive_view(dry.id)
    assert (view.status, view.matched, view.moved, view.is_dry_run) == ("done", 3, 0, True)
    assert broker.engine.ledger.next_sequence == before
    assert broker.queue("q.dlq").waiting == 5


def test_a_redrive_keeps_to_its_rate_and_can_be_stopped() -> None:
    """At ten a second there are never more than elapsed time allows; stopped it moves no more, and the rest is there."""
    broker, _ = buried(30)
    started = broker.redrive("q.dlq", rate=10.0)
    for elapsed_ms in range(0, 1_000, 50):
        assert broker.queue("q").waiting <= elapsed_ms / 100 + 1
        broker.advance(50)
    moved = broker.stop_redrive(started.id).moved
    assert 9 <= moved <= 11
    broker.advance(10_000)
    assert (broker.queue("q").waiting, broker.queue("q.dlq").waiting) == (moved, 30 - moved)
    assert broker.redrive_view(started.id).status == "stopped"
    assert [view.id for view in broker.redrives()] == [started.id]


@pytest.mark.parametrize("bad", [{"count": 0}, {"count": -1}, {"count": "1"}, {"rate": 0}, {"rate": float("nan")}])
def test_a_senseless_redrive_is_refused(bad: dict[str, Any]) -> None:
    """Nothing is started; an unknown redrive is not found."""
    broker, _ = buried(1)
    with pytest.raises(InvalidArgument):
        broker.redrive("q.dlq", **bad)
    assert broker.redrives() == []
    with pytest.raises(RedriveNotFound):
        broker.redrive_view("redrive-9")
    with pytest.raises(RedriveNotFound):
        broker.stop_redrive("redrive-9")


def test_an_interrupted_redrive_loses_nothing() -> None:
    """Whether the process dies or a commit fails half-way, each letter is in one of the two queues; a second finishes."""
    store = FaultyStore(random.Random(3))  # noqa: S311 - a seed
    broker = broker_with(store=store)
    ids = {bury(broker) for _ in range(20)}
    broker.redrive("q.dlq", rate=10.0)
    broker.advance(500)
    store.faults.arm("after_write")
    broker.advance(500)
    assert {view.id for name in ("q", "q.dlq") for view in broker.peek(name, 99)} == ids
    assert [view.status for view in broker.redrives()] == ["stopped"]
    broker.reopen()
    assert {view.id for name in ("q", "q.dlq") for view in broker.peek(name, 99)} == ids
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert {view.id for view in broker.peek("q", 99)} == ids


def test_a_leased_dead_letter_is_not_redriven() -> None:
    """It stays with whoever holds it, who can ack it."""
    broker, ids = buried(2)
    held = lease_one(broker, "q.dlq")
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert [view.id for view in broker.peek("q")] == ids[1:]
    broker.ack(held)


def test_redrive_runs_the_enqueue_flow_again() -> None:
    """The hook and the declared keys as they are now give the terms, also where the dead letters' keys are counted."""
    script = 'function on_enqueue(m) return { fairness_key = fairlead.get("key") or "old", weight = 2 } end'
    broker = broker_with({"on_enqueue": script, "cost_from": "header:cost"})
    broker.update_queue("q.dlq", {"key_waiting_max": 10})
    bury(broker, headers={"cost": "4"})
    broker.set_config("key", "new")
    started = broker.redrive("q.dlq")
    broker.advance(1_000)
    assert broker.redrive_view(started.id).moved == 1
    view = broker.peek("q")[0]
    assert (view.fairness_key, view.weight, view.cost) == ("new", 2, 4)


@pytest.mark.parametrize(
    "limit", [{"waiting_max": 1}, {"waiting_bytes_max": 1}, {"key_waiting_max": 1}, {"key_waiting_bytes_max": 1}]
)
def test_a_redrive_waits_for_room_like_any_enqueue(limit: dict[str, Any]) -> None:
    """It never takes the queue beyond a limit, goes on as acks make room, and in the end all are back."""
    broker, _ = buried(3)
    broker.update_queue("q", limit)
    started = broker.redrive("q.dlq")
    for left in (2, 1, 0):
        broker.advance(500)
        assert (broker.queue("q").waiting, broker.queue("q.dlq").waiting) == (1, left)
        broker.ack(lease_one(broker))
    broker.advance(500)
    assert broker.redrive_view(started.id).status == "done"


def test_a_redrive_ends_with_its_queue() -> None:
    """Deleting the queue while it runs ends it as failed, with words."""
    broker, _ = buried(3)
    started = broker.redrive("q.dlq", rate=1.0)
    broker.delete_queue("q")
    broker.advance(5_000)
    view = broker.redrive_view(started.id)
    assert (view.status, bool(view.error)) == ("failed", True)
    with pytest.raises(QueueNotFound):
        broker.redrive("q.dlq")
