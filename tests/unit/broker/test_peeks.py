"""Long peeks: a cycle looks at a bounded number of messages, and the list goes on in later cycles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.broker.waiting.peeks import FOUND, SCAN
from fairlane.core.rows.messages import Messages
from fairlane.errors import Closed, InvalidArgument, QueueNotFound, TooManyWaiters
from fairlane.model.message import MessageView
from fairlane.model.views import DeadLetterFilter
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Cancel, Enqueue, MessageList, Peek
from tests.unit.broker.stepping import broker_with, buried, message

COUNT = 2 * SCAN + 100
NONE = DeadLetterFilter(error="zzz")
ROWS = pytest.mark.parametrize("rows_from", [0, None], ids=["rows", "objects"])


def filled(rows_from: int | None, count: int = COUNT) -> tuple[SteppedBroker, list[str]]:
    """Return a broker with messages of two keys in turn, and their ids."""
    broker = broker_with(rows_from=rows_from)
    ids = []
    for _ in range(0, count, 100):
        results = broker.enqueue_many("q", [message(fairness_key="ab"[at % 2]) for at in range(100)])
        ids += [result for result in results if isinstance(result, str)]
    return broker, ids


def cycles_of(broker: SteppedBroker, pending: Pending[MessageList]) -> int:
    """Return how many cycles a request takes."""
    count = 0
    while not pending.done():
        broker.cycle()
        count += 1
        assert count < 100
    return count


def ids_of(views: list[MessageView]) -> list[str]:
    return [view.id for view in views]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the numbers of messages that are looked up."""
    seen: list[int] = []
    get = Messages.get

    def noted(messages: Messages, number: int) -> object:
        seen.append(number)
        return get(messages, number)

    monkeypatch.setattr(Messages, "get", noted)
    return seen


@ROWS
def test_a_filter_that_matches_nothing_goes_on_in_later_cycles(rows_from: int | None, looked: list[int]) -> None:
    """Each cycle looks at a bounded number of messages, and a small peek beside it is answered at once."""
    broker, _ = filled(rows_from)
    looked.clear()
    pending = broker.start(Peek(queue="q", wanted=NONE))
    broker.cycle()
    assert len(looked) <= SCAN
    small = broker.start(Peek(queue="q"))
    broker.cycle()
    assert (small.done(), pending.done()) == (True, False)
    assert cycles_of(broker, pending) == 1
    assert pending.get().messages == []
    assert len(looked) == COUNT + 10


@ROWS
def test_a_long_list_is_made_in_parts(rows_from: int | None) -> None:
    """The list is complete and in order, and a cycle adds a bounded number of messages."""
    broker, ids = filled(rows_from)
    pending = broker.start(Peek(queue="q", count=COUNT))
    assert cycles_of(broker, pending) == -(-COUNT // FOUND)
    assert ids_of(pending.get().messages) == ids


@ROWS
def test_a_page_begins_at_its_cursor(rows_from: int | None, looked: list[int]) -> None:
    """What comes before the cursor is not looked at, so reading page after page takes time in proportion."""
    broker, ids = filled(rows_from)
    looked.clear()
    found, after = [], None
    while views := broker.peek("q", 300, after=after):
        found += ids_of(views)
        after = views[-1].id
    assert found == ids
    assert len(looked) == COUNT


@ROWS
def test_what_changes_meanwhile_is_neither_lost_nor_repeated(rows_from: int | None) -> None:
    """Messages that are leased between two parts are in the list; those that are gone or came later are not."""
    broker, ids = filled(rows_from)
    wanted = DeadLetterFilter(fairness_key="b")
    pending = broker.start(Peek(queue="q", count=COUNT, wanted=wanted))
    broker.cycle()
    lease = broker.start(Lease(queue="q", count=2_000))
    broker.start(Enqueue(queue="q", messages=[message(fairness_key="b")]))
    broker.start(Cancel(queue="q", ids=[ids[-1], ids[-3]]))
    assert cycles_of(broker, pending) >= 3
    assert len(lease.get().deliveries) == 2_000
    assert ids_of(pending.get().messages) == [id_ for id_ in ids[1::2] if id_ not in (ids[-1], ids[-3])]


@ROWS
def test_the_page_after_a_message_that_is_gone_has_the_later_ones(rows_from: int | None) -> None:
    """The ids of messages ascend, so the place is known."""
    broker, ids = filled(rows_from, 200)
    broker.cancel("q", ids[149])
    assert ids_of(broker.peek("q", 100, after=ids[149])) == ids[150:]


@ROWS
def test_named_messages_are_looked_up(rows_from: int | None, looked: list[int]) -> None:
    """Only they are looked at, and they come in their order in the queue."""
    broker, ids = filled(rows_from)
    looked.clear()
    wanted = DeadLetterFilter(ids=(ids[-1], ids[7], ids[900], "nonsense"))
    assert ids_of(broker.peek("q", 10, wanted=wanted)) == [ids[7], ids[900], ids[-1]]
    assert ids_of(broker.peek("q", 10, wanted=wanted, after=ids[7])) == [ids[900], ids[-1]]
    assert len(looked) < 20


def test_dead_letters_keep_the_order_in_which_they_died() -> None:
    """Also those that are named."""
    broker, ids = buried(3)
    first, second, third = ids
    broker.redrive("q.dlq", wanted=DeadLetterFilter(ids=(first,)))
    broker.step()
    (delivery,) = broker.lease("q")
    broker.nack(delivery, intent="dead")
    assert ids_of(broker.peek("q.dlq")) == [second, third, first]
    assert ids_of(broker.peek("q.dlq", after=third)) == [first]
    assert ids_of(broker.peek("q.dlq", wanted=DeadLetterFilter(ids=(first, third)))) == [third, first]


def waiting(broker: SteppedBroker, count: int) -> Iterator[Pending[MessageList]]:
    for _ in range(count):
        yield broker.start(Peek(queue="q", wanted=NONE))


def test_a_list_ends_with_its_queue_or_its_broker() -> None:
    """Its caller gets the error that any request would."""
    broker, ids = filled(None)
    *_, last = [broker.start(Peek(queue="q", wanted=NONE)) for _ in range(16)]  # a large queue is deleted in parts
    broker.cycle()
    broker.delete_queue("q")
    with pytest.raises(QueueNotFound):
        last.get()
    broker, ids = filled(None)
    pending = broker.start(Peek(queue="q", wanted=NONE))
    broker.cycle()
    broker.close()
    with pytest.raises(Closed):
        pending.get()
    assert ids


def test_lists_of_one_queue_wait_for_each_other_and_not_for_those_of_others() -> None:
    """Queues take turns, and few lists of one queue may wait."""
    broker, _ = filled(None)
    broker.create_queue("other")
    broker.enqueue_many("other", [message()] * (SCAN + 1))
    many = list(waiting(broker, 30))
    other = broker.start(Peek(queue="other", wanted=NONE))
    cycles_of(broker, other)
    for pending in many:
        cycles_of(broker, pending)
    refused = 0
    for pending in many:
        try:
            assert pending.get().messages == []
        except TooManyWaiters:
            refused += 1
    assert 0 < refused < 20


def test_a_caller_that_has_gone_is_not_searched_for() -> None:
    """The next cycle forgets the list."""
    broker, _ = filled(None)
    pending = broker.start(Peek(queue="q", wanted=NONE))
    broker.cycle()
    pending.cancel()
    broker.cycle()
    assert not broker.engine.peeks.jobs


def test_a_cursor_that_is_no_id_is_refused() -> None:
    broker, _ = filled(None, 100)
    with pytest.raises(InvalidArgument, match="after must be the id of a message"):
        broker.peek("q", after="nonsense!")
