"""How many bytes one answer carries: a lease, a delivery to a consumer that stays, a peek with bodies."""

from __future__ import annotations

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.requests import Attach, AttachedConsumer
from fairlane.broker.settings import Settings
from fairlane.journal.events import rows
from fairlane.model.message import Delivery
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Peek
from tests.unit.broker.stepping import broker_with, message

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
