"""The journal: read by position, kept for its readers, sealed and trimmed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fairlane.broker.handlers.internal import ListSegments, ReadSlice
from fairlane.broker.settings import Settings
from fairlane.errors import InvalidArgument, JournalTrimmed, ReaderNotFound
from fairlane.journal.records import AnyRecord, Leased, Picking, Sealed, Trimmed
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads

SMALL = Settings(journal_retention_ms=1_000, segment_events=20, reader_hold_ms=10_000)


def busy(broker: SteppedBroker, rounds: int, *, ms: int = 10) -> None:
    """Enqueue, lease and acknowledge messages."""
    for _ in range(rounds):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
        broker.advance(ms)


def records_after(broker: SteppedBroker, after: int) -> list[AnyRecord]:
    """Read to the end, page by page."""
    found: list[AnyRecord] = []
    while (part := broker.call(ReadSlice(after=after, count=3))).pages:
        found += [record for page in part.pages for record in page.records if record.sequence > after]
        after = part.position
    return found


def test_the_journal_tells_all_that_happened_in_order() -> None:
    """Every decision is there once, under one sequence without gaps."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    broker.ack(lease_one(broker), cost=3)
    broker.nack(lease_one(broker), error="no", intent="dead")
    broker.set_config("a", "b", by="me")
    records = records_after(broker, 0)
    kinds = [type(record).__name__ for record in records]
    assert kinds == ["Opened", "QueueSet", "QueueSet", "Enqueued", "Leased", "Acked", "Leased", "Dead", "ConfigSet"]
    sequence = 1
    for record in records:
        assert record.sequence == sequence
        sequence += record.count
    assert broker.call(ReadSlice(after=sequence - 1)).pages == []


def test_reading_goes_on_from_the_position_returned() -> None:
    """Small reads give the same as one large; the end is where nothing more comes."""
    broker = broker_with()
    busy(broker, 20)
    everything = [r for page in broker.call(ReadSlice(after=0)).pages for r in page.records]
    assert records_after(broker, 0) == everything
    assert records_after(broker, 17)[0].sequence <= 18


@pytest.mark.parametrize("bad", [{"after": -1}, {"after": 10**9}, {"after": "0"}, {"count": 0}, {"count": 10**7}])
def test_a_position_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    """Before the beginning, after the end, or no number."""
    with pytest.raises(InvalidArgument):
        broker_with().read_journal(**bad)


def test_readers_are_registered_moved_listed_and_removed() -> None:
    """An observer sees how far behind each is; a bad name or position is refused; it all survives a reopen."""
    broker = broker_with()
    end = broker.engine.ledger.next_sequence - 1
    broker.set_reader("spark", 0)
    broker.set_reader("audit", end)
    broker.set_reader("spark", 2)
    broker.reopen()
    last = broker.call(ReadSlice(after=0)).position
    assert [(r.name, r.position, r.behind, r.is_passed) for r in broker.readers()] == [
        ("audit", end, last - end, False),
        ("spark", 2, last - 2, False),
    ]
    bad: list[tuple[Any, Any]] = [("", 0), ("x" * 129, 0), (5, 0), ("x", -1), ("x", 10**9), ("x", "0"), ("\n", 0)]
    for name, position in bad:
        with pytest.raises(InvalidArgument):
            broker.set_reader(name, position)
    broker.remove_reader("audit")
    with pytest.raises(ReaderNotFound):
        broker.remove_reader("audit")
    assert [reader.name for reader in broker.readers()] == ["spark"]


def test_segments_are_sealed_by_events_and_by_age() -> None:
    """Sealed segments follow on one another without a gap and end where the next begins."""
    broker = broker_with(settings=Settings(segment_events=10, segment_ms=60_000))
    busy(broker, 20)
    segments = broker.call(ListSegments())
    assert len(segments) >= 4
    assert segments[0].first == 1
    assert all(one.end == two.first for one, two in itertools.pairwise(segments))
    broker.advance(61_000)
    busy(broker, 1)
    after = broker.call(ListSegments())
    assert len(after) > len(segments)
    broker.reopen()
    assert broker.call(ListSegments()) == after


def test_the_journal_is_trimmed_by_age_in_whole_segments() -> None:
    """What is older than the retention goes, the rest stays, and asking for what is gone says where it begins."""
    broker = broker_with(settings=SMALL, carry_floor=10)
    busy(broker, 300)
    trimmed = broker.engine.ledger.trimmed
    assert trimmed > 1
    with pytest.raises(JournalTrimmed, match=str(trimmed - 1)):
        broker.call(ReadSlice(after=0))
    first = broker.call(ReadSlice(after=trimmed - 1)).pages[0]
    assert broker.clock.now_ms() - first.at_ms <= 2_500
    assert records_after(broker, trimmed - 1)
    for segment in broker.call(ListSegments()):
        assert segment.end > trimmed
    broker.reopen()
    assert broker.engine.ledger.trimmed == trimmed


def test_the_journal_is_trimmed_by_size() -> None:
    """Though nothing is old, no more than about so many bytes of sealed segments stay."""
    settings = Settings(journal_bytes_max=5_000, segment_events=50)
    broker = broker_with(settings=settings, carry_floor=10)
    busy(broker, 300)
    assert broker.engine.ledger.trimmed > 1
    assert sum(segment.size for segment in broker.call(ListSegments())) <= 10_000


def test_a_queue_can_ask_for_longer_retention() -> None:
    """The longest retention of all queues counts."""
    broker = broker_with({"journal_retention_ms": 3_600_000}, settings=SMALL, carry_floor=10)
    busy(broker, 300)
    assert broker.call(ReadSlice(after=0)).pages


def test_nothing_is_trimmed_past_a_reader_that_is_waited_for() -> None:
    """While it moves, however slowly, all that it has not read is there."""
    broker = broker_with(settings=SMALL, carry_floor=10)
    position = 3
    broker.set_reader("slow", position)
    for _ in range(8):
        busy(broker, 80)
        part = broker.call(ReadSlice(after=position, count=10))
        assert part.pages
        position = part.position
        broker.set_reader("slow", position)
    assert not any(reader.is_passed for reader in broker.readers())


def test_a_reader_that_is_passed_is_named() -> None:
    """One that has not moved for longer than it is waited for is passed, and the record that does it says so."""
    broker = broker_with(settings=SMALL, carry_floor=10)
    broker.set_reader("lost", 3)
    busy(broker, 1_300)
    assert [(reader.name, reader.is_passed) for reader in broker.readers()] == [("lost", True)]
    begin = broker.engine.ledger.trimmed - 1
    named = [record.passed for record in records_after(broker, begin) if isinstance(record, Trimmed)]
    assert ["lost"] in named
    with pytest.raises(JournalTrimmed):
        broker.call(ReadSlice(after=3))


def test_a_moved_base_and_a_trimmed_journal_lose_no_message() -> None:
    """Messages older than all that is left of the journal are there after a reopen, with leases, state and errors."""
    broker = broker_with({"backoff_ms": 0}, settings=SMALL, carry_floor=10)
    broker.create_queue("old", {"key_waiting_max": 5, "visibility_timeout_ms": 10_000_000})
    broker.enqueue_many("old", [message(b"%d" % n, fairness_key="k", headers={"n": str(n)}) for n in range(4)])
    held = broker.lease("old", 3)
    etag = broker.set_state(held[0], b"state", etag=None)
    broker.nack(held[1], error="no", delay_ms=0)
    broker.nack(held[2], intent="dead", error="gone")
    broker.pause("old", key="k")
    busy(broker, 300)
    before = [broker.peek(name, with_body=True) for name in ("old", "old.dlq")]
    assert broker.engine.ledger.trimmed > numbered(held[0].id)
    broker.reopen()
    assert [broker.peek(name, with_body=True) for name in ("old", "old.dlq")] == before
    assert broker.get_state("old", held[0].id) == (b"state", etag)
    broker.ack(held[0])
    broker.resume("old", key="k")
    assert payloads(broker.lease("old", 9)) == [b"3", b"1"]


def test_a_seal_names_what_it_covers() -> None:
    """The record of a seal is the first of the next segment."""
    broker = broker_with(settings=Settings(segment_events=10))
    busy(broker, 10)
    seals = [record for record in records_after(broker, 0) if isinstance(record, Sealed)]
    assert [(seal.first, seal.sequence) for seal in seals] == [(s.first, s.end) for s in broker.call(ListSegments())]


def test_a_lease_tells_what_held_its_message_up() -> None:
    """A message that waited for a token says how long, and one that did not says nothing."""
    broker = broker_with()
    broker.set_throttle("api", rate=1, burst=1)
    broker.advance(1_000)
    broker.enqueue_many("q", [message(b"1", throttles=["api"]), message(b"2", throttles=["api"])])
    broker.lease("q", count=2)
    broker.advance(1_000)
    at_ms = broker.clock.now_ms()
    broker.lease("q", count=2)
    leased = [record for record in records_after(broker, 0) if isinstance(record, Leased)]
    assert leased[0].picking == Picking(2)
    assert leased[1].picking == Picking(2, [1_000], [0], [(leased[1].sequence, at_ms, 0, "")])
