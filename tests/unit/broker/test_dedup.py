"""Dedup ids: an enqueue that is repeated within the window happens once."""

from __future__ import annotations

from fairlane.journal.records import AnyRecord, Carried
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def test_a_repeated_dedup_id_is_answered_with_the_first_id() -> None:
    """Within a batch, across batches, over a reopen and after the ack, the answer stays the same and one is stored."""
    broker = broker_with()
    first, again, other = broker.enqueue_many(
        "q", [message(b"1", dedup_id="a"), message(b"2", dedup_id="a"), message()]
    )
    assert first == again != other
    assert broker.enqueue("q", b"3", dedup_id="a") == first
    broker.reopen()
    assert broker.enqueue("q", b"4", dedup_id="a") == first
    broker.ack(lease_one(broker))
    assert broker.enqueue("q", b"5", dedup_id="a") == first
    assert payloads(broker.lease("q", 9)) == [b""]


def test_after_the_window_the_same_dedup_id_is_a_new_message() -> None:
    """One millisecond before the end of the window it is still known, at its end it is new."""
    broker = broker_with({"dedup_window_ms": 1_000})
    first = broker.enqueue("q", b"1", dedup_id="a")
    broker.advance(999)
    assert broker.enqueue("q", b"2", dedup_id="a") == first
    broker.advance(1)
    second = broker.enqueue("q", b"3", dedup_id="a")
    assert second != first
    broker.advance(999)
    broker.reopen()
    assert broker.enqueue("q", b"4", dedup_id="a") == second


def test_dedup_ids_are_each_queues_own() -> None:
    """The same dedup id in another queue is another message."""
    broker = broker_with()
    broker.create_queue("r")
    assert broker.enqueue("q", b"", dedup_id="a") != broker.enqueue("r", b"", dedup_id="a")


def test_a_refused_message_leaves_no_dedup_id_behind() -> None:
    """What met a limit or was invalid can be enqueued later under the same dedup id."""
    broker = broker_with({"waiting_max": 1})
    results = broker.enqueue_many(
        "q", [message(weight=0, dedup_id="a"), message(b"1", dedup_id="b"), message(b"2", dedup_id="c")]
    )
    assert codes(results) == ["invalid_argument", None, "queue_full"]
    broker.ack(lease_one(broker))
    taken = broker.enqueue("q", b"3", dedup_id="c")
    assert taken != results[1]
    broker.ack(lease_one(broker))
    assert broker.enqueue("q", b"4", dedup_id="a") != taken


def test_a_repeat_within_a_batch_shares_the_refusal_of_the_first() -> None:
    """Where the first of a dedup id finds no room, its repeat is not taken in its place."""
    broker = broker_with({"waiting_max": 1})
    results = broker.enqueue_many("q", [message(b"0"), message(b"1", dedup_id="a"), message(b"2", dedup_id="a")])
    assert codes(results) == [None, "queue_full", "queue_full"]
    assert broker.queue("q").waiting == 1


def test_a_repeat_finds_no_limit_in_its_way() -> None:
    """Repeating an enqueue in a full queue is answered with the first id, not with a refusal."""
    broker = broker_with({"waiting_max": 1})
    first = broker.enqueue("q", b"1", dedup_id="a")
    assert broker.enqueue("q", b"1", dedup_id="a") == first


def test_expired_dedup_ids_are_forgotten() -> None:
    """Memory does not grow with dedup ids whose window is over, also where the journal's base moves."""
    broker = broker_with({"dedup_window_ms": 100}, carry_floor=50)
    for n in range(300):
        broker.enqueue("q", b"", dedup_id=str(n))
        broker.ack(lease_one(broker))
        broker.advance(10)
    assert len(broker.engine.ledger.queues["q"].dedups) < 50


def test_a_long_window_does_not_keep_the_base_moving() -> None:
    """Known ids count as alive: while they pile up, they are written down again now and then, and not all the time."""
    broker = broker_with(carry_floor=20)
    seen: list[AnyRecord] = []
    broker.engine.taps.append(lambda records, _now_ms: seen.extend(records))
    for at in range(300):
        broker.enqueue("q", b"", dedup_id=f"id-{at}")
        broker.ack(lease_one(broker))
    carried = sum(len(home.numbers) for record in seen if isinstance(record, Carried) for home in record.dedups)
    assert 0 < carried < 3 * 300


def test_dedup_ids_survive_a_moved_base() -> None:
    """Ids within their window are known after the journal they were written in has been passed by the base."""
    broker = broker_with(carry_floor=20)
    first = broker.enqueue("q", b"", dedup_id="a")
    broker.ack(lease_one(broker))
    for _ in range(100):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
    assert broker.engine.ledger.base > numbered(first)
    broker.reopen()
    assert broker.enqueue("q", b"", dedup_id="a") == first
