"""The broker of one partition of a queue: it counts from far above, and goes by the config of the whole queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.assembly import export_events
from fairlane.broker.handlers.internal import ListSegments, ReadSlice
from fairlane.broker.settings import Settings
from fairlane.errors import InvalidArgument, JournalTrimmed
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.journal import Events
from tests.kit.ids import numbered
from tests.unit.broker.stepping import message, payloads

FIRST = 3 << 47
"""What the journal of the third partition after the first begins after."""
NAME = "orders~3"
SMALL = Settings(journal_retention_ms=1_000, segment_events=20, reader_hold_ms=10_000)


def partition_with(policy: dict[str, object] | None = None, **opened: Any) -> SteppedBroker:
    """Return the broker of a partition."""
    broker = SteppedBroker(NumberedStore(MemoryStore(), first=FIRST), **opened)
    broker.create_queue(NAME, policy)
    return broker


def busy(broker: SteppedBroker, rounds: int) -> None:
    """Enqueue, lease and acknowledge messages."""
    for _ in range(rounds):
        broker.enqueue(NAME, b"")
        broker.ack(*broker.lease(NAME))
        broker.advance(10)


def sequences_after(broker: SteppedBroker, after: int) -> list[int]:
    """Read the journal to its end, in small slices."""
    found: list[int] = []
    while (part := broker.call(ReadSlice(after=after, count=3))).pages:
        found += [record.sequence for page in part.pages for record in page.records if record.sequence > after]
        after = part.position
    return found


def test_ids_and_tokens_are_above_where_the_journal_begins() -> None:
    """They tell the partition, also of what comes after a recovery, and old ones stay good."""
    broker = partition_with()
    first = broker.enqueue(NAME, b"1")
    (held,) = broker.lease(NAME)
    broker.reopen()
    second = broker.enqueue(NAME, b"2")
    (other,) = broker.lease(NAME)
    assert FIRST < numbered(first) < held.token < numbered(second) < other.token < FIRST + 100
    broker.extend(held)
    broker.ack(held)
    broker.nack(other, intent="dead")
    assert [dead.id for dead in broker.peek(f"{NAME}.dlq")] == [second]


def test_what_a_partition_holds_is_there_after_recovery() -> None:
    """Messages, dead letters, state and pauses, after the base has moved and the journal was trimmed."""
    broker = partition_with({"backoff_ms": 0, "visibility_timeout_ms": 10_000_000}, settings=SMALL, carry_floor=10)
    broker.enqueue_many(NAME, [message(b"%d" % n, fairness_key="old") for n in range(3)])
    held = broker.lease(NAME, 2)
    etag = broker.set_state(held[0], b"state", etag=None)
    broker.nack(held[1], intent="dead", error="gone")
    broker.pause(NAME, key="old")
    busy(broker, 300)
    assert broker.engine.ledger.trimmed > numbered(held[0].id)
    before = [broker.peek(name, with_body=True) for name in (NAME, f"{NAME}.dlq")]
    broker.reopen()
    assert [broker.peek(name, with_body=True) for name in (NAME, f"{NAME}.dlq")] == before
    assert broker.get_state(NAME, held[0].id) == (b"state", etag)
    broker.resume(NAME, key="old")
    assert payloads(broker.lease(NAME, 9)) == [b"2"]


def test_a_new_journal_is_neither_sealed_nor_trimmed_before_it_is_long_enough() -> None:
    """That its numbers are great makes no segment long and no recovery far."""
    broker = partition_with()
    busy(broker, 20)
    ledger = broker.engine.ledger
    assert broker.call(ListSegments()) == []
    assert (ledger.base, ledger.trimmed) == (FIRST + 1, FIRST + 1)


def test_the_journal_is_read_from_its_beginning_by_zero() -> None:
    """Who knows nothing of partitions reads all of it, without gaps; so does who begins where it does."""
    broker = partition_with()
    busy(broker, 5)
    part = broker.call(ReadSlice(after=0))
    assert (part.beginning, part.end) == (FIRST, part.position)
    found = sequences_after(broker, 0)
    assert found[0] == FIRST + 1
    assert found == sequences_after(broker, FIRST)
    assert sequences_after(broker, found[-1] - 1)[-1] == found[-1]


def test_an_export_covers_what_the_journal_has(tmp_path: Path) -> None:
    """The names of its files begin where the journal does, not at 1, and a second export goes on after them."""
    ends = {0: FIRST + 3, FIRST + 3: FIRST + 5, FIRST + 5: FIRST + 5}

    def read(after: int, _on_trimmed: str) -> Events:
        event = {"sequence": ends[after], "at_ms": 0, "kind": "opened", "record": ends[after]}
        return Events(events=[event], position=ends[after], journal_id="00000000000000aa", since=FIRST)

    (path,) = export_events(read, tmp_path)
    assert path.name == f"journal-00000000000000aa-{FIRST + 1:020}-{FIRST + 5:020}.parquet"
    assert export_events(read, tmp_path) == []


def test_a_trimmed_journal_says_so() -> None:
    """Also to who asks from 0; and what is left is whole."""
    broker = partition_with(settings=SMALL, carry_floor=10)
    busy(broker, 300)
    trimmed = broker.engine.ledger.trimmed
    assert FIRST + 20 < trimmed < FIRST + 2_000
    for gone in (0, FIRST, trimmed - 2):
        with pytest.raises(JournalTrimmed, match=str(trimmed - 1)):
            broker.call(ReadSlice(after=gone))
    assert sequences_after(broker, trimmed - 1)[0] == trimmed
    assert all(trimmed <= segment.first for segment in broker.call(ListSegments()))
    broker.reopen()
    assert broker.engine.ledger.trimmed == trimmed


def test_a_reader_at_zero_is_at_the_beginning() -> None:
    """It is as far behind as there are events, and what it has not read is kept for it."""
    broker = partition_with(settings=SMALL, carry_floor=10)
    broker.set_reader("spark", 0)
    (reader,) = broker.readers()
    assert (reader.position, reader.is_passed) == (FIRST, False)
    assert reader.behind == 4  # opened, the queue and its dead letters, and the reader
    busy(broker, 80)
    assert sequences_after(broker, reader.position)[0] == FIRST + 1
    broker.set_reader("spark", broker.call(ReadSlice(after=0)).position)
    with pytest.raises(InvalidArgument):
        broker.set_reader("spark", FIRST * 2)


def test_weights_and_caps_of_config_are_those_of_the_whole_queue() -> None:
    """They are said for ``orders``, act on what waits in a partition at once, and survive."""
    broker = partition_with()
    for key in ("a", "b"):
        broker.enqueue_many(NAME, [message(fairness_key=key)] * 100)
    broker.set_config("weight:orders:a", "5")
    assert [found.fairness_key for found in broker.lease(NAME, 12)].count("a") == 10
    broker.set_config("cap:orders:a", "10")
    broker.reopen()
    assert {found.fairness_key for found in broker.lease(NAME, 12)} == {"b"}


def test_a_throttle_of_the_queues_own_is_that_of_the_whole_queue() -> None:
    """Its bucket is named after ``orders`` in every partition, so one rate is set for all of them."""
    broker = partition_with({"throttle_scope": "queue"})
    broker.set_config("throttle:orders/api:burst", "1")
    broker.set_config("throttle:orders/api:rate", "0")
    broker.enqueue_many(NAME, [message(throttles=("api",))] * 2)
    assert len(broker.lease(NAME, 9)) == 1
    assert [throttle.name for throttle in broker.inspect(NAME).throttles] == ["orders/api"]


def test_a_redrive_in_a_partition_keeps_the_throttle_of_the_whole_queue() -> None:
    """A message names `orders/api` before it dies and after it is redriven."""
    broker = partition_with({"throttle_scope": "queue"})
    broker.enqueue(NAME, b"", throttles=("api",))
    broker.nack(*broker.lease(NAME), intent="dead")
    for name in ("orders/api", "orders/orders/api"):
        broker.set_throttle(name, rate=1)
    broker.redrive(f"{NAME}.dlq")
    broker.advance(1_000)
    assert [throttle.name for throttle in broker.inspect(NAME).throttles] == ["orders/api"]


@pytest.mark.parametrize("name", ["orders~0", "orders~1", "orders~63", "orders~1.dlq", "orders~", "orders~x"])
def test_a_broker_of_whole_queues_has_no_partitions(name: str) -> None:
    """Splitting makes them; nobody makes one by its name."""
    broker = SteppedBroker()
    with pytest.raises(InvalidArgument):
        broker.create_queue(name)
    assert broker.queues() == []


@pytest.mark.parametrize("name", ["orders~1", "orders~0", "mail"])
def test_a_broker_has_nothing_that_its_ids_would_not_tell(name: str) -> None:
    """Where ids tell the third partition, only a third can be, and no queue as a whole."""
    broker = partition_with()
    with pytest.raises(InvalidArgument):
        broker.create_queue(name)
