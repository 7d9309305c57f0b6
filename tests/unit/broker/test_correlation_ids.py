"""Correlation ids: every answer about a message has its own, and forwarded messages inherit it with key and trace."""

from __future__ import annotations

import random

from fairlane.model.message import Receipt
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Ack, Extend, Forward, Nack, SetState
from fairlane.verbs.messages import Cancel, Enqueue, Explain, GetMessage, GetState
from tests.unit.broker.stepping import broker_with, lease_one, message

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}
OTHER = {"traceparent": "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


def leased(broker: SteppedBroker) -> Receipt:
    """Lease the next message, and return its receipt."""
    held = lease_one(broker)
    return Receipt(held.id, held.token)


def test_an_enqueue_returns_the_correlation_id_of_each_message() -> None:
    """A message without one has its own id; a refused message has none."""
    broker = broker_with()
    request = Enqueue(queue="q", messages=[message(), message(correlation_id="c-1"), message(priority="urgent")])
    plain, named, refused = broker.call(request).results
    assert plain.correlation_id == plain.id is not None
    assert named.correlation_id == "c-1" != named.id
    assert refused.correlation_id is None


def test_a_repeated_message_has_the_correlation_id_of_the_first() -> None:
    """The second is not enqueued, so its own correlation id names nothing; once the first is gone, none is known."""
    broker = broker_with()
    first = Enqueue(queue="q", messages=[message(dedup_id="d", correlation_id="c-1")])
    second = Enqueue(queue="q", messages=[message(dedup_id="d", correlation_id="c-2")])
    broker.call(first)
    assert broker.call(second).results[0].correlation_id == "c-1"
    broker.ack(lease_one(broker))
    assert broker.call(second).results[0].correlation_id is None


def test_answers_about_a_message_have_its_correlation_id() -> None:
    """From reading it to its acknowledgement, also after a restart."""
    broker = broker_with()
    broker.enqueue("q", b"", correlation_id="c-1")
    broker.reopen()
    view = broker.peek("q")[0]
    assert view.correlation_id == "c-1"
    assert broker.call(GetMessage(queue="q", id=view.id, with_body=False)).correlation_id == "c-1"
    assert broker.call(Explain(queue="q", id=view.id)).correlation_id == "c-1"
    receipt = leased(broker)
    assert broker.call(Extend(queue="q", receipts=[receipt])).results[0].correlation_id == "c-1"
    assert broker.call(SetState(queue="q", receipt=receipt, state=b"s")).correlation_id == "c-1"
    assert broker.call(GetState(queue="q", id=view.id)).correlation_id == "c-1"
    assert broker.call(Nack(queue="q", receipts=[receipt], delay_ms=0)).results[0].correlation_id == "c-1"
    assert broker.call(Ack(queue="q", receipts=[leased(broker)])).results[0].correlation_id == "c-1"


def test_a_cancelled_message_is_named_by_its_correlation_id() -> None:
    """Each result has that of its own message, or none where it failed or is the message's id."""
    broker = broker_with()
    one = broker.enqueue("q", b"", correlation_id="c-1")
    two = broker.enqueue("q", b"")
    results = broker.call(Cancel(queue="q", ids=["0" * 16, one, two])).results
    assert [result.correlation_id for result in results] == [None, "c-1", None]


def test_correlation_ids_survive_the_carrying_of_old_messages() -> None:
    """Recovery that begins after the enqueue restores them, for every message of a chunk."""
    broker = broker_with(carry_floor=20)
    broker.create_queue("busy")
    named = [None, "c-1", None, "c-3", None]
    broker.enqueue_many("q", [message(correlation_id=name) for name in named])
    enqueued_before = broker.engine.ledger.next_sequence
    for _ in range(100):
        broker.enqueue("busy", b"")
        broker.ack(lease_one(broker, "busy"))
    assert broker.engine.ledger.base > enqueued_before
    broker.reopen()
    views = broker.peek("q", 5)
    assert [None if view.correlation_id == view.id else view.correlation_id for view in views] == named


# -------------------------------------------------------------------------------------------------------------- forward


def test_forwarded_messages_inherit_correlation_id_key_and_trace() -> None:
    """A chain of queues stays one story: the second hop still has what the first message had."""
    broker = broker_with()
    broker.create_queue("next")
    broker.enqueue("q", b"", fairness_key=("acme", "eu"), headers=TRACE | {"a": "b"}, correlation_id="c-1")
    broker.ack(lease_one(broker), forward={"next": [message()]})
    broker.ack(lease_one(broker, "next"), forward={"q": [message(b"z")]})
    last = lease_one(broker)
    assert (last.correlation_id, last.fairness_key, last.headers) == ("c-1", ("acme", "eu"), TRACE)


def test_a_forwarded_message_is_named_after_one_without_a_correlation_id() -> None:
    """The id of the first message, which is its correlation id, is that of all that follow."""
    broker = broker_with()
    first = broker.enqueue("q", b"")
    answer = broker.call(Forward(queue="q", receipt=leased(broker), messages={"q": [message()]}))
    assert (lease_one(broker).correlation_id, answer.correlation_id) == (first, None)


def test_what_a_forwarded_message_says_itself_counts() -> None:
    """Each of the three for itself."""
    broker = broker_with()
    broker.enqueue("q", b"", fairness_key="acme", headers=TRACE, correlation_id="c-1")
    own = [message(fairness_key="zeta"), message(correlation_id="c-2"), message(headers=OTHER)]
    answer = broker.call(Forward(queue="q", receipt=leased(broker), messages={"q": own}))
    assert answer.correlation_id == "c-1"
    found = {view.id: view for view in broker.peek("q", with_body=True)}
    assert [(found[each].fairness_key, found[each].correlation_id, found[each].headers) for each in answer.ids] == [
        ("zeta", "c-1", TRACE),
        ("acme", "c-2", TRACE),
        ("acme", "c-1", OTHER),
    ]


def test_hooks_and_policies_see_what_is_inherited_and_decide_last() -> None:
    """The key of the target queue comes from its policy, as for every producer's wish."""
    broker = broker_with()
    broker.create_queue("next", {"fairness_key_from": "header:tenant"})
    broker.enqueue("q", b"", fairness_key="acme")
    broker.ack(lease_one(broker), forward={"next": [message(headers={"tenant": "beta"}), message()]})
    assert sorted(str(view.fairness_key) for view in broker.peek("next")) == ["acme", "beta"]


def test_a_forward_without_a_readable_body_goes_on_without_the_trace() -> None:
    """A lost body must not keep a message from being settled."""
    store = FaultyStore(random.Random(1))
    broker = broker_with(store=store)
    broker.enqueue("q", b"", headers=TRACE, correlation_id="c-1")
    held = lease_one(broker)
    broker.reopen()  # nothing is cached
    store.faults.arm("read")
    broker.ack(held, forward={"q": [message()]})
    last = lease_one(broker)
    assert (last.correlation_id, last.headers) == ("c-1", {})
