"""A busy broker serves everybody: what comes in does not starve what goes out, nor time, nor those who listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.assembly import NewMessage
from fairlane.broker.settings import Settings
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Enqueue, EnqueueResults

if TYPE_CHECKING:
    import pytest

SMALL = Settings(cycle_events_max=10)


def flood(broker: SteppedBroker, batches: int) -> list[Pending[EnqueueResults]]:
    messages = [NewMessage(payload=b"x")] * 10
    return [broker.start(Enqueue(queue="q", messages=messages)) for _ in range(batches)]


def test_a_flood_of_enqueues_does_not_keep_consumers_waiting() -> None:
    """With more requests than a turn takes, a waiter is still served in the first turn that finds it."""
    broker = SteppedBroker(settings=SMALL)
    broker.create_queue("q")
    flood(broker, 1)
    waiting = broker.start(Lease(queue="q", count=5, wait_ms=60_000))
    flood(broker, 20)
    broker.cycle()
    broker.cycle()
    assert waiting.done()
    assert len(waiting.get().deliveries) == 5


def test_waits_end_in_time_while_others_are_left_for_the_next_turn() -> None:
    """A poll of an empty queue is answered in its turn, though a busier line had no room in it."""
    broker = SteppedBroker(settings=SMALL)
    broker.create_queue("q")
    broker.create_queue("empty")
    broker.enqueue_many("q", [NewMessage(payload=b"x")] * 100)
    for _ in range(30):
        broker.start(Lease(queue="q", count=5, wait_ms=60_000))
    poll = broker.start(Lease(queue="empty"))
    for _ in range(5):
        broker.cycle()
    assert poll.done()
    assert poll.get().deliveries == []


def test_leases_that_end_at_once_are_taken_back_over_several_turns() -> None:
    """Many leases that end together do not make one endless turn, and all of them come back."""
    broker = SteppedBroker(settings=SMALL)
    broker.create_queue("q", {"visibility_timeout_ms": 1_000, "backoff_ms": 0})
    broker.enqueue_many("q", [NewMessage(payload=b"x")] * 60)
    for _ in range(60):
        broker.lease("q")
    broker.clock.advance(1_000)
    broker.cycle()
    assert 0 < broker.engine.ledger.queues["q"].leased < 60
    broker.advance(0)
    assert broker.queue("q").leased == 0


def test_a_listener_that_raises_undoes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What a tap raises is logged; those who asked are answered, and the leases stand."""
    broker = SteppedBroker()
    broker.create_queue("q")

    def tap(_records: object, _at_ms: int) -> None:
        raise RuntimeError("not my day")

    broker.engine.taps.append(tap)
    broker.enqueue("q", b"x")
    (delivery,) = broker.lease("q")
    broker.ack(delivery)
    assert broker.queue("q").waiting == 0
    assert "not my day" in caplog.text


def test_a_change_of_policy_that_the_kernel_does_not_see_leaves_the_line_alone() -> None:
    """Changing a timeout does not make the schedule anew, so whose turn it is stays; changing the quantum does."""
    broker = SteppedBroker()
    broker.create_queue("q")
    before = broker.engine.schedule.kernel("q")
    broker.update_queue("q", {"visibility_timeout_ms": 5_000, "weights": {"a": 3}})
    assert broker.engine.schedule.kernel("q") is before
    broker.update_queue("q", {"quantum": 5})
    assert broker.engine.schedule.kernel("q") is not before


def test_a_redrive_without_a_rate_does_not_dawdle() -> None:
    """Ten thousand dead letters are back in far less time than a pause after each hundred would take."""
    broker = SteppedBroker()
    broker.create_queue("q", {"max_attempts": 1})
    broker.enqueue_many("q", [NewMessage(payload=b"x")] * 10_000)
    broker.nack_many("q", broker.lease("q", 10_000), error="no")
    begun_ms = broker.clock.now_ms()
    redrive = broker.redrive("q.dlq")
    broker.advance(500)
    view = broker.redrive_view(redrive.id)
    assert (view.status, view.moved) == ("done", 10_000)
    assert view.ended_ms is not None
    assert view.ended_ms - begun_ms < 500
