"""In which order cycles take requests, and how many, while producers flood a broker and consumers ask."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.broker.intake import SHORT_CYCLES_MS, arrange, enqueued_by
from fairlane.broker.requests import Call, Submission
from fairlane.model.message import NewMessage, Receipt
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Enqueue


class From:
    """A reply to a connection."""

    def __init__(self, source: str | None) -> None:
        if source is not None:
            self.source = source

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        """Drop the answer."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Drop the refusal."""


def enqueue(source: str | None, count: int = 1) -> Call:
    return Call(Enqueue(queue="jobs", messages=[NewMessage()] * count), From(source))


def ack(source: str | None) -> Call:
    return Call(Ack(queue="jobs", receipts=[]), From(source))


def arranged(*asked: Submission) -> tuple[list[Submission], bool]:
    """Return a new inbox as it is arranged, and whether requests of consumers are in front."""
    inbox = deque(asked)
    has_consumers = arrange(inbox)
    return list(inbox), has_consumers


def test_consumers_go_before_enqueues_of_others() -> None:
    """An acknowledgement passes enqueues of other connections; one of its own holds up it and what follows."""
    flood, own, passing, staying, next_one = enqueue("p"), enqueue("c"), ack("d"), ack("c"), ack("d")
    expected = [passing, flood, own, staying, next_one]
    assert arranged(flood, own, passing, staying, next_one) == (expected, True)


def test_callers_without_a_connection_keep_one_order() -> None:
    """Requests whose connection is not known are taken as they came: their callers may be one."""
    asked = [enqueue(None), ack(None), enqueue(None)]
    assert arranged(*asked) == (asked, False)


def test_a_flood_alone_is_taken_at_once() -> None:
    """Without consumers nothing is moved, and the cycle is as long as it can be."""
    asked = [enqueue("p") for _ in range(8)]
    assert arranged(*asked) == (asked, False)


@given(st.lists(st.tuples(st.sampled_from(["p", "q", None]), st.booleans()), max_size=12))
def test_the_order_of_each_connection_stays(asked: list[tuple[str | None, bool]]) -> None:
    """Whatever comes, nothing is lost; connections, all enqueues and all requests of consumers keep their order."""
    made: list[Submission] = [enqueue(source) if is_enqueue else ack(source) for source, is_enqueue in asked]
    inbox, _ = arranged(*made)
    assert len(inbox) == len(made)
    for source in ("p", "q", None):
        mine = [one for one in made if getattr(one.reply, "source", None) == source]
        assert [one for one in inbox if getattr(one.reply, "source", None) == source] == mine
    assert [one for one in inbox if enqueued_by(one)] == [one for one in made if enqueued_by(one)]
    assert [one for one in inbox if not enqueued_by(one)] == [one for one in made if not enqueued_by(one)]


@pytest.mark.parametrize(("later_ms", "messages"), [(0, 100), (SHORT_CYCLES_MS - 1, 100), (SHORT_CYCLES_MS, 800)])
def test_cycles_are_short_while_consumers_ask(later_ms: int, messages: int) -> None:
    """Of eight enqueues of a hundred the next commit has one, while a consumer that was just answered may come back."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    broker.engine.submit(enqueue("producer"))
    broker.engine.submit(ack("consumer"))
    broker.cycle()
    broker.clock.advance(later_ms)
    for _ in range(8):
        broker.engine.submit(enqueue("producer", 100))
    broker.cycle()
    assert len(broker.engine.ledger.queues["jobs"].messages) == 1 + messages


def test_producers_and_consumers_both_make_progress() -> None:
    """With eight enqueues of a hundred in the inbox, an acknowledgement shares the first commit with one of them."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"first")
    (held,) = broker.lease("jobs")
    for _ in range(8):
        broker.engine.submit(enqueue("producer", 100))
    broker.engine.submit(Call(Ack(queue="jobs", receipts=[Receipt(held.id, held.token)]), From("consumer")))
    broker.cycle()
    assert len(broker.engine.ledger.queues["jobs"].messages) == 100
    broker.step()
    assert broker.queue("jobs").waiting == 800
