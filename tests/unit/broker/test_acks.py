"""Acks: true costs, messages forwarded in the same commit, and workflow state."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.settings import Settings
from fairlane.errors import (
    FairlaneError,
    GlobalFull,
    InvalidArgument,
    LeaseMismatch,
    MessageNotFound,
    QueueFull,
    QueueNotFound,
    StateMismatch,
)
from fairlane.testing.stepped import SteppedBroker
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def test_a_true_cost_above_the_estimate_is_charged_to_the_key() -> None:
    """A key whose first message cost ten turns waits while the other has them."""
    broker = broker_with()
    for key in ("a", "b"):
        broker.enqueue_many("q", [message(fairness_key=key)] * 30)
    first = lease_one(broker)
    assert first.fairness_key == "a"
    broker.ack(first, cost=11)
    assert [d.fairness_key for d in broker.lease("q", 10)].count("b") >= 9


def test_a_true_cost_below_the_estimate_is_given_back() -> None:
    """A key that estimated ten and cost nothing has its turns again."""
    broker = broker_with()
    broker.enqueue("q", b"", fairness_key="a", cost=10)
    for key in ("a", "b"):
        broker.enqueue_many("q", [message(fairness_key=key)] * 30)
    held = broker.lease("q", 30)
    big = next(delivery for delivery in held if delivery.cost == 10)
    broker.ack(big, cost=0)
    assert [d.fairness_key for d in broker.lease("q", 10)].count("a") >= 9


@pytest.mark.parametrize("costs", [[-1], [1_000_001], ["1"], [1.5], [True], [1, 1], []])
def test_bad_costs_are_refused_and_nothing_is_acked(costs: Any) -> None:
    """Out of range, of the wrong type or of the wrong number: the whole request is invalid."""
    broker = broker_with()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    with pytest.raises(InvalidArgument):
        broker.ack_many("q", [held], costs=costs)
    broker.ack(held)


def test_an_ack_forwards_in_the_same_commit() -> None:
    """The message is done and the new ones are there, in one page of the journal, with their cause."""
    broker = broker_with()
    broker.create_queue("next")
    broker.enqueue("q", b"in")
    held = lease_one(broker)
    after = broker.engine.ledger.next_sequence - 1
    ids = broker.ack(held, forward={"next": [message(b"a"), message(b"b")], "q": [message(b"c")]})
    pages = broker.call(ReadSlice(after=after)).pages
    assert [type(record).__name__ for record in pages[0].records] == ["Acked", "Enqueued", "Enqueued"]
    assert all(getattr(record, "cause", held_number(held.id)) == held_number(held.id) for record in pages[0].records)
    broker.reopen()
    assert [view.id for view in [*broker.peek("next"), *broker.peek("q")]] == ids


def held_number(message_id: str) -> int:
    return numbered(message_id)


@pytest.mark.parametrize("kind", ["queue", "message", "full", "large", "lease", "priority", "type"])
def test_if_one_part_of_a_forward_is_refused_nothing_happens(kind: str) -> None:
    """Whatever is wrong, the message stays leased, nothing is enqueued anywhere, nothing is in the journal."""
    broker = broker_with(settings=Settings(payload_bytes_max=10))
    broker.create_queue("next", {"waiting_max": 1})
    broker.enqueue("q", b"in")
    held = lease_one(broker)
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "queue": ({"no": [message()]}, "queue_not_found"),
        "message": ({"next": [message(weight=0)]}, "invalid_argument"),
        "full": ({"next": [message(), message()]}, "queue_full"),
        "large": ({"next": [message(b"x" * 11)]}, "payload_too_large"),
        "lease": ({"next": [message()]}, "lease_mismatch"),
        "priority": ({"next": [message(priority="urgent")]}, "invalid_argument"),
        "type": ({"next": [b"raw"]}, "invalid_argument"),
    }
    forward, code = bad[kind]
    if kind == "lease":
        broker.nack(held, intent="defer", delay_ms=0)
        assert lease_one(broker).id == held.id
    before = broker.engine.ledger.next_sequence
    with pytest.raises(FairlaneError) as caught:
        broker.ack(held, forward={"q": [message(b"first")], **forward})
    assert caught.value.code == code
    assert broker.engine.ledger.next_sequence == before
    assert (broker.queue("q").waiting, broker.queue("q").leased, broker.queue("next").waiting) == (0, 1, 0)


def test_limits_count_all_parts_of_a_forward_together() -> None:
    """Two queues that each have room do not pass the broker's limit together; the ack's own place counts as free."""
    broker = broker_with(settings=Settings(waiting_max=2))
    broker.create_queue("r")
    broker.create_queue("s")
    broker.enqueue_many("q", [message(), message()])
    held = lease_one(broker)
    with pytest.raises(GlobalFull):
        broker.ack(held, forward={"r": [message()], "s": [message()]})
    assert len(broker.ack(held, forward={"r": [message()]})) == 1


def test_a_message_can_be_replaced_in_its_own_full_queue() -> None:
    """Its ack makes the room that what it forwards needs."""
    broker = broker_with({"waiting_max": 1})
    broker.enqueue("q", b"1")
    broker.ack(lease_one(broker), forward={"q": [message(b"2")]})
    assert payloads(broker.lease("q")) == [b"2"]
    with pytest.raises(QueueFull):
        broker.enqueue("q", b"3")


def test_forwarding_is_idempotent_by_dedup_id() -> None:
    """A forward whose dedup id is known already gives its id and still acks."""
    broker = broker_with()
    broker.create_queue("next")
    known = broker.enqueue("next", b"", dedup_id="d")
    broker.enqueue("q", b"")
    assert broker.ack(lease_one(broker), forward={"next": [message(dedup_id="d")]}) == [known]
    assert (broker.queue("q").leased, broker.queue("next").waiting) == (0, 1)


# ------------------------------------------------------------------------------------------------------ workflow state


def with_state(**policy: object) -> tuple[SteppedBroker, str]:
    """Return a broker with one message, deferred, whose state is ``one``; and the state's etag."""
    broker = broker_with({"backoff_ms": 0, **policy})
    broker.enqueue("q", b"")
    held = lease_one(broker)
    etag = broker.set_state(held, b"one", etag=None)
    assert etag is not None
    broker.nack(held, intent="defer", delay_ms=0)
    return broker, etag


def test_state_is_written_only_over_the_version_expected() -> None:
    """Each write gives a new etag; a wrong or missing one is refused and changes nothing; None removes."""
    broker, etag = with_state()
    held = lease_one(broker, with_state=True)
    assert (held.state, held.state_etag) == (b"one", etag)
    wrongs: list[Any] = [None, "0" * 16, "", 5, etag.upper() + " "]
    for wrong in wrongs:
        with pytest.raises(StateMismatch):
            broker.set_state(held, b"two", etag=wrong)
    second = broker.set_state(held, b"two", etag=etag)
    assert second not in (None, etag)
    assert broker.get_state("q", held.id) == (b"two", second)
    with pytest.raises(StateMismatch):
        broker.set_state(held, None, etag=etag)
    assert broker.set_state(held, None, etag=second) is None
    assert broker.get_state("q", held.id) == (None, None)
    assert broker.set_state(held, None, etag=None) is None
    broker.set_state(held, b"", etag=None)
    assert broker.get_state("q", held.id)[0] == b""


def test_state_stays_through_nack_expiry_dead_letters_redrive_and_reopen() -> None:
    """Whatever happens to the message short of its ack, the same version is there."""
    broker, etag = with_state(max_expiries=1)
    broker.nack(lease_one(broker), error="x")
    lease_one(broker)
    broker.advance(30_000)
    broker.reopen()
    dead = lease_one(broker, "q.dlq", with_state=True)
    assert (dead.state, dead.state_etag) == (b"one", etag)
    broker.nack(dead, intent="defer", delay_ms=0)
    broker.redrive("q.dlq")
    broker.advance(100)
    broker.reopen()
    back = lease_one(broker, with_state=True)
    assert (back.state, back.state_etag, back.failures) == (b"one", etag, 0)


@pytest.mark.parametrize("end", ["ack", "cancel", "purge", "delete"])
def test_state_goes_with_its_message(end: str) -> None:
    """Nothing of it is left in the store after ack, cancel, purge or the queue's deletion."""
    broker, etag = with_state()
    if end == "ack":
        broker.ack(lease_one(broker))
    elif end == "cancel":
        broker.cancel("q", broker.peek("q")[0].id)
    elif end == "purge":
        broker.purge("q")
    else:
        broker.delete_queue("q")
    assert broker.store.bodies([int(etag, 16)]) == [None]


def test_an_overwritten_state_leaves_no_bytes_behind() -> None:
    """The store holds the present version only."""
    broker, etag = with_state()
    broker.set_state(lease_one(broker), b"two", etag=etag)
    assert broker.store.bodies([int(etag, 16)]) == [None]


def test_state_has_a_limit_and_needs_a_lease() -> None:
    """A mebibyte is accepted, one byte more or another type is not; without the lease nothing is."""
    broker, etag = with_state()
    held = lease_one(broker)
    bads: list[Any] = [b"x" * (1024 * 1024 + 1), "text", bytearray(b"x")]
    for bad in bads:
        with pytest.raises(InvalidArgument):
            broker.set_state(held, bad, etag=etag)
    second = broker.set_state(held, b"x" * 1024 * 1024, etag=etag)
    broker.nack(held, delay_ms=0)
    with pytest.raises(LeaseMismatch):
        broker.set_state(held, b"", etag=second)
    broker.ack(lease_one(broker))
    with pytest.raises(MessageNotFound):
        broker.set_state(held, b"", etag=second)
    with pytest.raises(MessageNotFound):
        broker.get_state("q", held.id)
    with pytest.raises(QueueNotFound):
        broker.get_state("no", held.id)


def test_a_delivery_brings_its_state_only_if_asked() -> None:
    """The etag is always told; the bytes are read from the store only where they are wanted."""
    broker, etag = with_state()
    held = lease_one(broker)
    assert (held.state, held.state_etag) == (None, etag)
    assert codes(broker.ack_many("q", [held])) == [None]
