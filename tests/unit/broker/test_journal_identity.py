"""A journal has an id of its own, so that a broker that begins again is not taken for the old one."""

from __future__ import annotations

import json

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.handlers.internal import IdentifyJournal, ReadSlice
from fairlane.broker.settings import Settings
from fairlane.journal.identity import is_journal_id
from fairlane.testing.clock import SeededEntropy
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered

SMALL = Settings(journal_retention_ms=1_000, segment_events=20, reader_hold_ms=10_000)


def opened_events(broker: SteppedBroker) -> list[str | None]:
    """Return the journal ids that the ``opened`` events tell, in order."""
    found = broker.read_journal(on_trimmed="skip", count=100_000).events
    return [json.loads(event["value"]).get("journal_id") for event in found if event["kind"] == "opened"]


def test_every_opening_tells_the_id() -> None:
    """The id is made with the store, and each ``opened`` event repeats it, after a crash too."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    journal_id = broker.call(IdentifyJournal()).journal_id
    assert is_journal_id(journal_id)
    broker.reopen()
    broker.enqueue("jobs", b"x")
    assert opened_events(broker) == [journal_id, journal_id]
    answer = broker.read_journal()
    assert (answer.journal_id, answer.since) == (journal_id, 0)


def test_two_brokers_have_two_journals() -> None:
    """Brokers whose randomness differs have different ids, though both journals count from 1."""
    ids = {SteppedBroker(entropy=SeededEntropy(seed)).call(IdentifyJournal()).journal_id for seed in range(5)}
    assert len(ids) == 5


def test_the_id_outlives_the_beginning_of_the_journal() -> None:
    """A journal whose first opening was trimmed long ago still knows its id, from its baseline."""
    broker = SteppedBroker(MemoryStore(), settings=SMALL, carry_floor=10)
    broker.create_queue("jobs")
    journal_id = broker.call(IdentifyJournal()).journal_id
    for _ in range(100):
        broker.enqueue("jobs", b"x")
        broker.ack(broker.lease("jobs", 1)[0])
        broker.advance(100)
    assert broker.engine.ledger.trimmed > 20
    assert opened_events(broker) == []
    broker.reopen()
    assert broker.call(IdentifyJournal()).journal_id == journal_id
    assert opened_events(broker) == [journal_id]


def test_a_restored_journal_is_another_one_from_there_on() -> None:
    """A store that is declared restored gets a new id, tells since when, and skips ids that may have been issued."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"before")
    before = broker.call(ReadSlice(after=0))
    broker.reopen()
    broker.engine.renew_journal(skip=1_000)
    after = broker.call(ReadSlice(after=before.end))
    assert after.journal_id != before.journal_id
    assert after.since == before.end + 1_000
    assert numbered(broker.enqueue("jobs", b"after")) > before.end + 1_000
    broker.reopen()
    again = broker.call(ReadSlice(after=0))
    assert (again.journal_id, again.since) == (after.journal_id, after.since)
    assert [message.payload for message in broker.lease("jobs", 5)] == [b"before", b"after"]
