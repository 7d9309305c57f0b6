"""The status of a message through its life, and the end of that in the journal."""

from __future__ import annotations

import pytest

from fairlane.broker.waiting import searches
from fairlane.errors import InvalidArgument, MessageNotFound
from fairlane.model.message import NewMessage
from fairlane.verbs.leases import Ack
from fairlane.verbs.methods.conversions import receipt_of
from fairlane.verbs.queues import DeleteQueue
from fairlane.verbs.status import GetStatus
from tests.unit.broker.stepping import broker_with, lease_one


def test_a_message_says_where_it_is_in_its_life() -> None:
    """Delayed, waiting, running, failed and dead, each with what is known then; the queue need not be named."""
    broker = broker_with({"max_attempts": 2, "backoff_ms": 10_000, "backoff_jitter": 0})
    message_id = broker.enqueue("q", b"x", delay_ms=1_000, fairness_key="acme")
    status = broker.status(message_id)
    assert (status.status, status.queue, status.fairness_key) == ("delayed", "q", "acme")
    assert status.starts_ms == status.enqueued_ms + 1_000
    broker.advance(1_000)
    status = broker.status(message_id)
    assert (status.status, status.reason) == ("waiting", "no_consumer")
    begun_ms = broker.clock.now_ms()
    (delivery,) = broker.lease("q", owner="w1")
    status = broker.status(message_id)
    assert (status.status, status.owner, status.attempts) == ("running", "w1", 1)
    assert (status.since_ms, status.expires_ms) == (begun_ms, begun_ms + 30_000)
    broker.nack(delivery, error="boom")
    status = broker.status(message_id)
    assert (status.status, status.starts_ms, status.errors[0].error) == ("failed", begun_ms + 10_000, "boom")
    broker.advance(10_000)
    broker.nack(lease_one(broker), error="boom")
    status = broker.status(message_id)
    assert (status.status, status.queue, status.reason, len(status.errors)) == ("dead", "q.dlq", "max_attempts", 2)


def test_when_a_lease_began_is_known_after_recovery() -> None:
    """``since_ms`` is durable, although the lease was extended meanwhile."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    begun_ms = broker.clock.now_ms()
    delivery = lease_one(broker)
    broker.advance(20_000)
    broker.extend(delivery)
    broker.reopen()
    assert broker.status(message_id).since_ms == begun_ms


def test_an_end_that_is_not_remembered_is_looked_up_in_the_journal() -> None:
    """Done, cancelled, expired and purged messages are found by their ids alone, across commits."""
    broker = broker_with()
    done, cancelled = broker.enqueue("q", b"a", fairness_key="acme"), broker.enqueue("q", b"b", delay_ms=99_000)
    expired, purged = (
        broker.enqueue("q", b"c", delay_ms=9_000, deadline_ms=5),
        broker.enqueue("q", b"d", delay_ms=9_000),
    )
    broker.ack(lease_one(broker))
    broker.cancel("q", cancelled, reason="why not")
    broker.advance(10)
    broker.purge("q")
    ends = {name: broker.status(each) for name, each in zip("dcep", (done, cancelled, expired, purged), strict=True)}
    assert [ends[name].status for name in "dcep"] == ["done", "cancelled", "expired", "purged"]
    assert (ends["d"].fairness_key, ends["d"].attempts, ends["c"].reason) == ("acme", 1, "why not")


def test_a_search_of_the_journal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several cycles, so that others are answered between, and gives up after its limit."""
    monkeypatch.setattr(searches, "SEARCH_EVENTS_MAX", 50)
    monkeypatch.setattr(searches, "_EVENTS", 10)
    broker = broker_with()
    near, far = broker.enqueue("q", b"x"), broker.enqueue("q", b"y", delay_ms=1)
    for _ in range(9):
        broker.enqueue("q", b"z", priority="low")
    broker.ack(lease_one(broker))
    asked = broker.start(GetStatus(id=near))
    broker.cycle()
    assert not asked.done()
    broker.step()
    assert asked.get().status == "done"
    for _ in range(60):
        broker.enqueue("q", b"z", priority="low")
    broker.advance(1)
    (delivery,) = broker.lease("q")
    assert delivery.id == far
    broker.ack(delivery)
    with pytest.raises(MessageNotFound, match="SEARCH_EVENTS_MAX"):
        broker.status(far)


def test_ids_that_no_message_has_are_not_found() -> None:
    """The number of a lease, a number of the future, and the id of another store."""
    broker, other = broker_with(), broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    for message_id in (f"{delivery.token:016x}", f"{10**6:016x}", "nothing"):
        with pytest.raises(MessageNotFound):
            broker.status(message_id)
    other.engine.ledger.ids.rename(1, "f" * 16)
    with pytest.raises(MessageNotFound):
        broker.status(other.enqueue("q", b"x"))


def test_a_watcher_sees_every_change_once() -> None:
    """With ``after`` a status is answered as soon as another one is current."""
    broker = broker_with()
    message_id = broker.enqueue("q", NewMessage(payload=b"x"))
    version = broker.status(message_id).version
    seen = []
    for change in (lambda: lease_one(broker), lambda: broker.cancel("q", message_id)):
        waiting = broker.start(GetStatus(id=message_id, wait_ms=60_000, after=version))
        broker.step()
        assert not waiting.done()
        change()
        seen.append(waiting.get().status)
        version = waiting.get().version
    assert seen == ["running", "cancelled"]
    assert broker.status(message_id, after="0", wait_ms=60_000).status == "cancelled"


def test_progress_is_part_of_the_status_while_the_lease_lasts() -> None:
    """The latest report counts; it wakes those who watch; the next lease begins without one, and so does a restart."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    version = broker.status(message_id).version
    watching = broker.start(GetStatus(id=message_id, wait_ms=60_000, after=version))
    broker.step()
    broker.report_progress(delivery, 0.5, note="half")
    assert watching.done()
    seen = watching.get().progress
    assert seen is not None
    assert (seen.fraction, seen.note, seen.at_ms) == (0.5, "half", broker.clock.now_ms())
    broker.report_progress(delivery, note="later")
    status = broker.status(message_id)
    assert (status.progress and status.progress.note, status.version != watching.get().version) == ("later", True)
    broker.nack(delivery)
    second = lease_one(broker)
    assert broker.status(message_id).progress is None
    broker.report_progress(second, 1.0)
    broker.reopen()
    assert broker.status(message_id).progress is None


def test_progress_needs_a_lease_and_sound_values() -> None:
    """A stale lease and a fraction or note out of range are refused; nothing is written to the journal."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    end = broker.engine.ledger.next_sequence
    for fraction, note in ((1.1, ""), (-0.1, ""), (None, "x" * 1_025)):
        with pytest.raises(InvalidArgument):
            broker.report_progress(delivery, fraction, note=note)
    broker.report_progress(delivery, 0.1)
    assert broker.engine.ledger.next_sequence == end
    broker.ack(delivery)
    with pytest.raises(MessageNotFound):
        broker.report_progress(delivery, 1.0)


def test_reports_of_leases_that_have_ended_are_forgotten() -> None:
    """Memory is bounded by what is leased, whatever was reported."""
    broker = broker_with()
    for _ in range(1_100):
        broker.enqueue("q", b"x")
        delivery = lease_one(broker)
        broker.report_progress(delivery, 0.5)
        broker.ack(delivery)
    assert len(broker.engine.progress._reports) <= 1_025


def test_an_end_in_the_journal_is_not_overwritten_by_the_end_of_its_queue() -> None:
    """A message that was acknowledged is done, although its queue was deleted in the same commit."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.start(Ack(queue="q", receipts=[receipt_of(delivery)]))
    deleting = broker.start(DeleteQueue(queue="q"))
    broker.cycle()
    assert deleting.done()
    assert broker.status(message_id).status == "done"


def test_the_start_of_a_message_that_waits_for_its_turn_is_estimated() -> None:
    """While consumers work, it starts about when half of its key's messages had started; once overdue, nobody knows."""
    broker = broker_with()
    broker.enqueue("q", b"before", fairness_key="acme")
    broker.advance(4_000)
    lease_one(broker)  # a consumer is busy with it, and p50 is known
    (p50_ms, _) = broker.engine.consumers.wait_times.p50_and_p99_ms("q", "acme", broker.clock.now_ms()) or (0, 0)
    assert p50_ms >= 4_000
    begun_ms = broker.clock.now_ms()
    message_id = broker.enqueue("q", b"x", fairness_key="acme")
    assert broker.status(message_id).starts_ms == begun_ms + p50_ms
    broker.advance(p50_ms - 1)
    assert broker.status(message_id).starts_ms == begun_ms + p50_ms
    broker.advance(2)
    assert broker.status(message_id).starts_ms is None


def test_the_start_of_a_message_that_nobody_could_lease_is_unknown() -> None:
    """Neither a paused queue nor one without consumers promises anything, though earlier messages had been quick."""
    broker = broker_with()
    broker.enqueue("q", b"before", fairness_key="acme")
    broker.advance(4_000)
    done = lease_one(broker)
    message_id = broker.enqueue("q", b"x", fairness_key="acme")
    assert broker.status(message_id).starts_ms is not None
    broker.pause("q")
    status = broker.status(message_id)
    assert (status.reason, status.starts_ms) == ("queue_paused", None)
    broker.resume("q")
    broker.ack(done)
    status = broker.status(message_id)
    assert (status.reason, status.starts_ms) == ("no_consumer", None)
