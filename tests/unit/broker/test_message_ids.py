"""Message ids of whole brokers: unique among stores, the same after restarts and restores, and known from others."""

from __future__ import annotations

import uuid

import pytest

from fairlane.errors import MessageNotFound
from fairlane.model.message import Receipt
from fairlane.testing.clock import SeededEntropy
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Cancel
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, lease_one, message


def other_broker() -> SteppedBroker:
    """Return a broker whose store was created by other dice."""
    return broker_with(entropy=SeededEntropy(2))


def test_two_stores_never_give_the_same_id() -> None:
    """The messages have the same number, and yet different ids and default correlation ids."""
    brokers = broker_with(), other_broker()
    ids = [broker.enqueue("q", b"") for broker in brokers]
    assert numbered(ids[0]) == numbered(ids[1])
    assert ids[0] != ids[1]
    assert [lease_one(broker).correlation_id for broker in brokers] == ids
    assert [uuid.UUID(each).version for each in ids] == [8, 8]


def test_an_id_of_another_store_is_not_found() -> None:
    """Whatever is asked about it, although a message with its number is here; nothing happens to that one."""
    broker, other = broker_with(), other_broker()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    strange = other.enqueue("q", b"")
    assert numbered(strange) == numbered(held.id)
    for ask in (broker.get, broker.explain, broker.get_state):
        with pytest.raises(MessageNotFound, match=strange):
            ask("q", strange)
    answers = (
        broker.call(Ack(queue="q", receipts=[Receipt(strange, held.token)])),
        broker.call(Cancel(queue="q", ids=[strange])),
    )
    assert [answer.results[0].error.code for answer in answers if answer.results[0].error] == ["message_not_found"] * 2
    broker.ack(held)


def test_a_number_of_the_journal_names_the_message_too() -> None:
    """What an event says can be looked up as it is."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    number = broker.read_journal(after=0).events[-1]["message_id"]
    assert (broker.get("q", number).id, len(number)) == (message_id, 16)
    assert broker.explain("q", number).id == message_id


def test_ids_are_sorted_by_age() -> None:
    """Over batches, as text."""
    broker = broker_with()
    ids = [broker.enqueue("q", b"") for _ in range(20)]
    ids += [str(each) for each in broker.enqueue_many("q", [message()] * 30)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


@pytest.mark.parametrize("carry_floor", [10_000, 20])
def test_ids_survive_restarts_and_restores(carry_floor: int) -> None:
    """A restored store has a new journal id, in new ids only, also when recovery begins after the restore."""
    broker = broker_with(carry_floor=carry_floor)
    broker.create_queue("busy")
    before = broker.enqueue("q", b"before")
    broker.reopen()
    assert broker.get("q", before).id == before
    broker.reopen()
    broker.engine.renew_journal(skip=100)
    after = broker.enqueue("q", b"after")
    for _ in range(60):
        broker.enqueue("busy", b"")
        broker.ack(lease_one(broker, "busy"))
    assert (broker.engine.ledger.base > numbered(after)) == (carry_floor == 20)
    broker.reopen()
    assert [view.id for view in broker.peek("q")] == [before, after]
    assert before[18:] != after[18:]
    for payload, message_id in ((b"before", before), (b"after", after)):
        held = lease_one(broker)
        assert (held.payload, held.id) == (payload, message_id)
        broker.ack(held)
