"""How many bytes one answer carries: a lease, a delivery to a consumer that stays, a peek with bodies."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.requests import Attach, AttachedConsumer
from fairlane.broker.settings import Settings
from fairlane.journal.events import rows
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Peek
from tests.unit.broker.stepping import broker_with, lease_one, message

MOST = 1_000


def broker_of(*sizes: int) -> SteppedBroker:
    """Return a broker with messages of these sizes, whose answers end with a thousand bytes."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST))
    broker.enqueue_many("q", [message(bytes(size)) for size in sizes])
    return broker


def sizes_of(deliveries: list[Delivery]) -> list[int]:
    return [len(delivery.payload) for delivery in deliveries]


def test_a_lease_has_no_more_once_it_has_so_many_bytes() -> None:
    """It has fewer than were asked for, in the same order; the others come with the next."""
    broker = broker_of(300, 301, 302, 303, 304, 305)
    assert sizes_of(broker.lease("q", 10)) == [300, 301, 302, 303]
    assert sizes_of(broker.lease("q", 10)) == [304, 305]


def test_a_lease_always_has_one() -> None:
    """A payload that is larger than an answer should be goes alone."""
    broker = broker_of(5_000, 6_000, 1)
    assert [sizes_of(broker.lease("q", 10)) for _ in range(4)] == [[5_000], [6_000], [1], []]


def test_one_large_message_cuts_one_answer_short() -> None:
    """Small ones before and after it go together."""
    broker = broker_of(1, 2, 5_000, 3, 4, 5)
    assert [sizes_of(broker.lease("q", 10)) for _ in range(2)] == [[1, 2, 5_000], [3, 4, 5]]


def test_small_messages_that_come_later_hide_no_large_ones() -> None:
    """What waited before still counts."""
    broker = broker_of(600, 601, 602)
    broker.enqueue("q", b"x")
    assert [sizes_of(broker.lease("q", 4)) for _ in range(2)] == [[600, 601], [602, 1]]


def test_as_many_as_are_asked_for_come_where_they_have_few_bytes() -> None:
    """Neither their number nor what has come before makes an answer shorter."""
    broker = broker_of(5_000)
    broker.ack(broker.lease("q", 1)[0])
    broker.enqueue_many("q", [message(b"x")] * 900)
    assert len(broker.lease("q", 800)) == 800
    assert len(broker.lease("q", 800)) == 100


def test_the_bound_holds_after_a_reopening_and_for_what_comes_back() -> None:
    """What is known of sizes is known again by a broker that opens the store, and by the dead letters."""
    broker = broker_of(400, 401, 402, 403)
    for delivery in broker.lease("q", 3):
        broker.nack(delivery, intent="dead")
    broker.nack(broker.lease("q", 1)[0], delay_ms=0)
    assert sizes_of(broker.lease("q.dlq", 3)) == [400, 401, 402]
    broker.enqueue_many("q", [message(bytes(404)), message(bytes(405))])
    broker.reopen()
    assert sizes_of(broker.lease("q", 10)) == [403, 404, 405]
    broker.enqueue_many("q", [message(bytes(406))] * 4)
    assert sizes_of(broker.lease("q", 10)) == [406, 406, 406]


def test_a_consumer_that_stays_gets_all_of_its_credit_in_several_deliveries() -> None:
    """Each is bounded, and nothing is held back."""
    broker = broker_of(300, 301, 302, 303, 304, 305)
    got: list[list[int]] = []
    consumer = AttachedConsumer(queue="q", credit=10, deliver=lambda deliveries: got.append(sizes_of(deliveries)))
    broker.submit(lambda reply: Attach(consumer, reply))
    broker.step()
    assert got == [[300, 301, 302, 303], [304, 305]]


def test_a_peek_with_bodies_goes_on_after_its_last() -> None:
    """It is as short as a lease would be; without bodies it shows all."""
    broker = broker_of(300, 301, 302, 303, 304, 305)
    first = broker.peek("q", 10, with_body=True)
    assert [view.size for view in first] == [300, 301, 302, 303]
    assert [view.size for view in broker.peek("q", 10, after=first[-1].id, with_body=True)] == [304, 305]
    assert len(broker.peek("q", 10)) == 6


def test_what_held_messages_up_is_told_of_each() -> None:
    """The journal has for each message how long a throttle held it up, also where they are picked one by one."""
    broker = broker_of()
    broker.set_config("throttle:t:rate", "10")
    broker.set_config("throttle:t:burst", "2")
    broker.enqueue_many("q", [message(bytes(400), throttles=("t",)) for _ in range(4)])
    assert len(broker.lease("q", 4)) == 2
    broker.advance(500)
    assert len(broker.lease("q", 4)) == 2
    told = [row for page in broker.call(ReadSlice(after=0)).pages for row in rows(page) if row["kind"] == "leased"]
    assert [row.get("throttled_ms", 0) for row in told] == [0, 0, 100, 100]


def test_a_cycle_hands_out_no_more_bytes_than_one_answer_has() -> None:
    """Consumers that wait for large messages are served in cycles of their own, so that others come in between."""
    broker = broker_of(*[600] * 6)
    leases = [broker.start(Lease(queue="q", count=10)) for _ in range(3)]
    served = []
    for _ in leases:
        broker.cycle()
        served.append(sum(lease.done() for lease in leases))
    assert served == [1, 2, 3]
    assert [sizes_of(lease.get().deliveries) for lease in leases] == [[600, 600]] * 3


def test_a_cycle_answers_one_question_with_bodies() -> None:
    """Others are answered in later cycles, in their order; questions without bodies don't wait for them."""
    broker = broker_of(600)
    large = [broker.start(Peek(queue="q", with_body=True)) for _ in range(3)]
    small = broker.start(Peek(queue="q"))
    broker.cycle()
    assert ([peek.done() for peek in large], small.done()) == ([True, False, False], True)
    broker.cycle()
    assert [peek.done() for peek in large] == [True, True, False]
    broker.step()
    assert [len(peek.get().messages) for peek in large] == [1, 1, 1]


# ------------------------------------------------------------------------------------------- more than the payloads


def headed(size: int, count: int, **terms: Any) -> list[NewMessage]:
    """Return messages with a header of a size, and no payload."""
    return [message(headers={"a": "x" * size}, **terms) for _ in range(count)]


@pytest.mark.parametrize("rows_from", [0, None], ids=["rows", "objects"])
def test_headers_count(rows_from: int | None) -> None:
    """Messages with large headers are as many as messages with payloads of that size, after a reopening, too."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST), rows_from=rows_from)
    broker.enqueue_many("q", headed(300, 14))
    assert len(broker.lease("q", 14)) == 4
    assert len(broker.peek("q", 14, with_body=True)) == 4
    broker.reopen()
    assert len(broker.lease("q", 14)) == 4
    for delivery in broker.lease("q", 14):
        broker.nack(delivery, intent="dead")
    assert len(broker.lease("q", 14)) == 2
    assert len(broker.lease("q.dlq", 14)) == 4


@pytest.mark.parametrize("rows_from", [0, None], ids=["rows", "objects"])
def test_headers_count_once_their_journal_is_gone(rows_from: int | None) -> None:
    """What is carried over the base is known with the size of its headers."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST), rows_from=rows_from, carry_floor=20)
    broker.create_queue("other")
    broker.enqueue_many("q", headed(300, 8))
    before = broker.engine.ledger.next_sequence
    for _ in range(100):
        broker.enqueue("other", b"")
        broker.ack(lease_one(broker, "other"))
    assert broker.engine.ledger.base > before
    broker.reopen()
    assert [len(broker.lease("q", 8)) for _ in range(2)] == [4, 4]


def test_headers_of_staged_messages_count() -> None:
    """Messages that a sink publishes are bounded like those that are enqueued."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST))
    broker.stage("q", "sink", batch=1, part="p", at=0, messages=headed(300, 8))
    broker.publish("q", "sink", batch=1, parts=["p"])
    assert len(broker.lease("q", 8)) == 4


def test_a_row_counts_with_the_largest_headers_of_its_chunk() -> None:
    """Small messages that lie beside one with large headers may come in more answers than they need, but not fewer."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST))
    broker.enqueue_many("q", [message(b"1"), *headed(600, 1), message(b"2"), message(b"3")])
    assert [len(broker.lease("q", 4)) for _ in range(2)] == [2, 2]
    broker.enqueue_many("q", [message(b"1")] * 4)
    assert len(broker.lease("q", 4)) == 4


@pytest.mark.parametrize("reopens", [False, True])
def test_state_and_errors_count(*, reopens: bool) -> None:
    """Workflow state and the errors of failed attempts are part of what comes with a message."""
    broker = broker_with({"backoff_ms": 0, "backoff_jitter": 0.0}, settings=Settings(answer_bytes_max=MOST))
    broker.enqueue_many("q", [message()] * 8)
    for delivery in broker.lease("q", 8):
        broker.set_state(delivery, bytes(300), etag=None)
        broker.nack(delivery, error="e" * 100)
    if reopens:
        broker.reopen()
    found = broker.lease("q", 8, with_state=True)
    assert [(len(each.state or b""), len(each.errors[0].error)) for each in found] == [(300, 100)] * 3
    for delivery in found:
        broker.set_state(delivery, None, etag=delivery.state_etag)
        broker.nack(delivery, intent="defer", delay_ms=0)
    assert [len(broker.lease("q", 8)) for _ in range(3)] == [3, 4, 1]


def test_a_consumer_that_stays_gets_messages_with_large_headers_in_several_deliveries() -> None:
    """Each of them is bounded by headers as it is by payloads."""
    broker = broker_with(settings=Settings(answer_bytes_max=MOST))
    broker.enqueue_many("q", headed(300, 6))
    got: list[int] = []
    consumer = AttachedConsumer(queue="q", credit=10, deliver=lambda deliveries: got.append(len(deliveries)))
    broker.submit(lambda reply: Attach(consumer, reply))
    broker.step()
    assert got == [4, 2]
