"""Redriving: dead letters back to work, by count, filter and rate, through the enqueue flow, and never lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.settings import Settings
from fairlane.errors import InvalidArgument, QueueNotFound, RedriveNotFound
from fairlane.model.views import DeadLetterFilter
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, buried, bury, lease_one, payloads

SMALL = Settings(journal_retention_ms=1_000, segment_events=20, reader_hold_ms=10_000)


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


def test_redrive_by_ids_takes_only_those_named() -> None:
    """Ids that are not there are nobody's loss, and the other fields of the filter still hold."""
    broker = broker_with()
    ids = [bury(broker, fairness_key=key) for key in "abab"]
    wanted = DeadLetterFilter(ids=(ids[2], ids[1], "00000000000fffff", "nonsense"), fairness_key="a")
    assert [view.id for view in broker.peek("q.dlq", wanted=wanted)] == [ids[2]]
    started = broker.redrive("q.dlq", wanted=wanted)
    assert started.total == 2
    broker.advance(1_000)
    assert [view.id for view in broker.peek("q")] == [ids[2]]


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
    """At ten a second there are never more than elapsed time allows; stopped it moves no more."""
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


def test_an_interrupted_redrive_goes_on() -> None:
    """Whether a commit fails or the process dies, each letter is in one queue, and in the end all have moved."""
    store = FaultyStore(random.Random(3))
    broker = broker_with(store=store)
    ids = {bury(broker) for _ in range(20)}
    started = broker.redrive("q.dlq", rate=10.0, by="ann")
    broker.advance(500)
    store.faults.arm("after_write")
    broker.advance(500)
    assert {view.id for name in ("q", "q.dlq") for view in broker.peek(name, 99)} == ids
    before = broker.redrive_view(started.id)
    broker.reopen()
    after = broker.redrive_view(started.id)
    assert (after.status, after.total, after.by, after.rate, after.started_ms) == (
        *("running", 20, "ann", 10.0),
        started.started_ms,
    )
    assert 5 <= before.moved <= after.moved < 20
    for _ in range(20):
        broker.advance(200)
    view = broker.redrive_view(started.id)
    assert (view.status, view.scanned, view.matched, view.moved) == ("done", 20, 20, 20)
    assert [message.id for message in broker.peek("q", 99)] == sorted(ids)
    broker.reopen()
    assert broker.redrives() == [view]


def test_a_redrive_keeps_to_its_rate_after_a_restart() -> None:
    """The time that the broker was closed does not count, so there is no burst when it is opened."""
    broker, _ = buried(30)
    broker.redrive("q.dlq", rate=10.0)
    broker.advance(500)
    moved = broker.queue("q").waiting
    broker.clock.advance(60_000)
    broker.reopen()
    broker.advance(500)
    assert moved + 4 <= broker.queue("q").waiting <= moved + 7


def test_a_redrive_never_moves_a_letter_twice() -> None:
    """A letter that is moved and dies again while the redrive runs stays dead, also after a restart; so do new ones."""
    broker, ids = buried(3)
    started = broker.redrive("q.dlq", rate=1.0)
    broker.step()
    broker.nack(lease_one(broker), intent="dead")
    new = bury(broker)
    broker.reopen()
    for _ in range(5):
        broker.advance(1_000)
    view = broker.redrive_view(started.id)
    assert (view.status, view.total, view.moved) == ("done", 3, 3)
    assert [message.id for message in broker.peek("q")] == ids[1:]
    assert [message.id for message in broker.peek("q.dlq")] == [ids[0], new]


def test_a_redrive_goes_on_after_the_base_of_the_journal_has_moved() -> None:
    """Recovery that begins after its order knows it from the baseline, and the letters from what was carried."""
    broker = broker_with(settings=SMALL, carry_floor=10)
    ids = [bury(broker) for _ in range(10)]
    started = broker.redrive("q.dlq", rate=1.0, wanted=DeadLetterFilter(ids=(*ids[:8],)))
    broker.advance(1_000)
    for _ in range(200):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
    assert broker.engine.ledger.base > int(started.id.removeprefix("redrive-").partition("@")[0])
    broker.reopen()
    for _ in range(20):
        broker.advance(1_000)
    view = broker.redrive_view(started.id)
    assert (view.status, view.moved) == ("done", 8)
    assert [message.id for message in broker.peek("q.dlq")] == ids[8:]


def test_a_letter_that_cannot_be_read_stays() -> None:
    """The others move, the view says how many stay, and the broker goes on."""
    store = MemoryStore()
    broker = broker_with(store=store)
    ids = [bury(broker) for _ in range(3)]
    del store._bodies[numbered(ids[1])]
    broker.engine.bodies.clear()
    started = broker.redrive("q.dlq")
    broker.advance(1_000)
    view = broker.redrive_view(started.id)
    assert (view.status, view.moved) == ("done", 2)
    assert "bodies unreadable" in (view.error or "")
    assert [message.id for message in broker.peek("q.dlq")] == [ids[1]]


def test_stats_show_what_moves() -> None:
    """While a redrive runs, it is in the view of the queue and of its dead-letter queue."""
    broker, _ = buried(3)
    started = broker.redrive("q.dlq", rate=1.0)
    broker.step()
    for name in ("q", "q.dlq"):
        (shown,) = broker.queue(name).redrives
        assert (shown.id, shown.moved, shown.total) == (started.id, 1, 3)
    broker.stop_redrive(started.id)
    assert broker.queue("q").redrives == ()


def test_a_leased_dead_letter_is_not_redriven() -> None:
    """It stays with whoever holds it, who can ack it."""
    broker, ids = buried(2)
    held = lease_one(broker, "q.dlq")
    started = broker.redrive("q.dlq")
    broker.advance(1_000)
    view = broker.redrive_view(started.id)
    assert (view.total, view.matched, view.moved) == (2, 1, 1)
    assert [view.id for view in broker.peek("q")] == ids[1:]
    broker.ack(held)


def test_redrive_runs_the_enqueue_flow_again() -> None:
    """The hook and the declared keys as they are now give the terms, also where the dead letters' keys are counted."""
    script = 'function on_enqueue(m) return { fairness_key = fairlane.get("key") or "old", weight = 2 } end'
    broker = broker_with({"on_enqueue": script, "cost_from": "header:cost"})
    broker.update_queue("q.dlq", {"key_waiting_max": 10})
    bury(broker, headers={"cost": "4"})
    broker.set_config("public:key", "new")
    started = broker.redrive("q.dlq")
    broker.advance(1_000)
    assert broker.redrive_view(started.id).moved == 1
    view = broker.peek("q")[0]
    assert (view.fairness_key, view.weight, view.cost) == ("new", 2, 4)


def throttles_of(broker: SteppedBroker, queue: str) -> list[str]:
    """Return the throttles that the messages of a queue name."""
    return [throttle.name for throttle in broker.inspect(queue).throttles]


def test_a_redriven_message_keeps_a_shared_throttle_named_after_its_queue() -> None:
    """A shared throttle `q/api` is not the queue's own throttle `api`, so the redrive changes nothing in its name."""
    broker = broker_with()
    bury(broker, throttles=("q/api",))
    for name in ("q/api", "api"):
        broker.set_throttle(name, rate=1)
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert throttles_of(broker, "q") == ["q/api"]


@pytest.mark.parametrize(("target", "throttle"), [(None, "q/api"), ("other", "api")])
def test_a_redriven_message_names_its_throttle_as_the_producer_did(target: str | None, throttle: str) -> None:
    """The queue that it goes to decides whether `api` is shared or its own."""
    broker = broker_with({"throttle_scope": "queue"})
    broker.create_queue("other")
    bury(broker, throttles=("api",))
    for name in ("q/api", "q/q/api", "api"):
        broker.set_throttle(name, rate=1)
    broker.redrive("q.dlq", target=target)
    broker.advance(1_000)
    assert throttles_of(broker, target or "q") == [throttle]


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


def test_a_redrive_with_a_rate_does_not_spin_at_a_full_queue() -> None:
    """While its queue has no room, a redrive looks again every 100 ms, also if its rate would allow more."""
    broker, _ = buried(2, waiting_max=1)
    broker.enqueue("q", b"in the way")
    broker.redrive("q.dlq", rate=5.0)
    broker.advance(10_000)
    assert broker.engine.next_event_at() == broker.clock.now_ms() + 100


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
