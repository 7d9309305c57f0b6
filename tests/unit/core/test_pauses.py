"""The log of pauses: what part of a wait a pause explains, across restarts too."""

from __future__ import annotations

import pytest

from fairlane.broker.settings import Settings
from fairlane.core.pauses import PauseLog
from fairlane.journal.codec import decode
from fairlane.journal.records import Leased, Picking
from fairlane.testing.stepped import SteppedBroker

MINUTE_MS = 60_000


def test_pauses_count_within_a_wait_only() -> None:
    """A pause counts as far as the wait overlaps it; one that is still on counts up to now."""
    log = PauseLog()
    log.note(None, 100, is_paused=True)
    log.note(None, 200, is_paused=True)
    log.note(None, 300, is_paused=False)
    log.note(("acme", "mobile"), 350, is_paused=True)
    assert log.within("bakery", 250, 500) == 50
    assert log.within(("acme", "mobile", "eu"), 250, 500) == 50 + 150
    assert log.within(("acme", "web"), 320, 500) == 0


def test_an_instant_counts_once_however_many_pauses_cover_it() -> None:
    """A key that is paused inside a paused queue waits no longer for that."""
    log = PauseLog()
    log.note("acme", 100, is_paused=True)
    log.note(None, 150, is_paused=True)
    log.note("acme", 200, is_paused=False)
    log.note(None, 250, is_paused=False)
    assert log.within("acme", 0, 1_000) == 150


@pytest.mark.no_cover
def test_a_log_is_bounded_and_keeps_what_is_on() -> None:
    """The oldest pauses that are over go first; those that are on stay."""
    log = PauseLog()
    log.note("on", 1, is_paused=True)
    for number in range(2_000):
        log.note(f"key-{number}", number + 1, is_paused=True)
        log.note(f"key-{number}", number + 2, is_paused=False)
    assert len(log.images()) == 1_024 + 1
    assert log.within("key-0", 0, 5_000) == 0
    assert log.within("key-1999", 0, 5_000) == 1
    assert PauseLog.of(log.images()).within("on", 0, 11) == 10
    assert log.within("on", 0, 11) == 10


def pickings(broker: SteppedBroker) -> list[Picking | None]:
    """Return what the journal tells of the pick of each lease."""
    records = [record for stored in broker.store.pages(0) for record in decode(stored.page).records]
    return [record.picking for record in records if isinstance(record, Leased)]


def test_a_lease_records_how_long_its_messages_were_paused() -> None:
    """Each message of a lease has its own part of the pause; without a pause nothing is recorded."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"", fairness_key="other")
    broker.ack(broker.lease("jobs", 1)[0])
    broker.enqueue("jobs", b"", fairness_key=("acme", "mobile"))
    broker.pause("jobs", key="acme")
    broker.advance(3 * MINUTE_MS)
    broker.enqueue("jobs", b"", fairness_key="acme")
    broker.advance(2 * MINUTE_MS)
    broker.resume("jobs", key="acme")
    broker.advance(1_000)
    assert len(broker.lease("jobs", 2)) == 2
    plain, picking = pickings(broker)
    assert plain is None
    assert picking is not None
    assert sorted(picking.paused_ms or []) == [2 * MINUTE_MS, 5 * MINUTE_MS]


def test_a_pause_explains_the_wait_since_a_message_came_back() -> None:
    """A message that was returned waits anew: what it waited for before its attempt is over."""
    broker = SteppedBroker()
    broker.create_queue("jobs", {"backoff_ms": 10_000, "backoff_max_ms": 10_000, "backoff_jitter": 0.0})
    broker.enqueue("jobs", b"", fairness_key="acme")
    broker.pause("jobs")
    broker.advance(5_000)
    broker.resume("jobs")
    broker.nack(broker.lease("jobs", 1)[0])
    broker.pause("jobs")
    broker.advance(MINUTE_MS)
    broker.resume("jobs")
    broker.lease("jobs", 1)
    first, second = pickings(broker)
    assert first is not None
    assert second is not None
    assert (first.paused_ms, second.paused_ms) == ([5_000], [MINUTE_MS - 10_000])


def test_a_pause_over_a_restart_is_one_pause() -> None:
    """Recovery knows since when a key is paused, from the journal or from a baseline."""
    broker = SteppedBroker(settings=Settings(segment_ms=MINUTE_MS), carry_floor=1)
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"", fairness_key="acme")
    broker.pause("jobs", key="acme")
    for _ in range(40):
        broker.enqueue("jobs", b"", fairness_key="other")
        broker.ack(broker.lease("jobs", 1)[0])
        broker.advance(1_000)
    assert broker.engine.ledger.base > 1
    broker.reopen()
    broker.advance(20_000)
    broker.resume("jobs", key="acme")
    broker.lease("jobs", 1)
    assert pickings(broker)[-1] == Picking(1, paused_ms=[60_000])
