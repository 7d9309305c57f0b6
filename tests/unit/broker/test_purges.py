"""Purges and deletions of large queues: each cycle removes a bounded number of messages, and others go on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.purges import PART
from fairlane.errors import InvalidArgument, MessageNotFound, QueueNotFound
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import DeleteQueue, MessageCount, PurgeQueue
from tests.unit.broker.stepping import broker_with, bury, message, payloads

COUNT = 2 * PART + 100
ROWS = pytest.mark.parametrize("rows_from", [0, None], ids=["rows", "objects"])


def fill(broker: SteppedBroker, queue: str = "q", count: int = COUNT) -> None:
    for _ in range(0, count, 100):
        broker.enqueue_many(queue, [message(fairness_key="ab"[at % 2]) for at in range(100)])


def left_after_each_cycle(broker: SteppedBroker, pending: Pending[Any], queue: str = "q") -> list[int]:
    """Return how many messages are left after each cycle, until the request is answered."""
    left = []
    while not pending.done():
        broker.cycle()
        known = broker.engine.ledger.queues.get(queue)
        left.append(0 if known is None else len(known.messages))
        assert len(left) < 100
    return left


@ROWS
def test_a_purge_takes_as_many_cycles_as_it_has_parts(rows_from: int | None) -> None:
    """Each cycle removes a part, another request is answered meanwhile, and the answer counts all messages."""
    broker = broker_with(rows_from=rows_from)
    fill(broker)
    purge = broker.start(PurgeQueue(queue="q"))
    broker.cycle()
    other = broker.start(Enqueue(queue="q", messages=[message(b"later")]))
    assert left_after_each_cycle(broker, other) == [COUNT - 2 * PART + 1]
    assert left_after_each_cycle(broker, purge) == [1, 1]
    assert purge.get() == MessageCount(count=COUNT)
    broker.reopen()
    assert payloads(broker.lease("q", 10)) == [b"later"]


@ROWS
def test_a_purge_keeps_what_is_leased_unless_it_is_meant(rows_from: int | None) -> None:
    """Leases are valid after a purge of many messages, and gone after one that includes leased messages."""
    broker = broker_with(rows_from=rows_from)
    fill(broker)
    first, second = broker.lease("q", 2)
    assert broker.purge("q") == COUNT - 2
    broker.ack(first)
    fill(broker)
    assert broker.purge("q", with_leased=True) == COUNT + 1
    with pytest.raises(MessageNotFound):
        broker.ack(second)


def test_a_deletion_removes_what_came_meanwhile_and_leaves_nothing() -> None:
    """A large queue and its dead letters go part by part, then the queue with what was enqueued since."""
    store = MemoryStore()
    broker = broker_with(store=store)
    bury(broker, b"dead")
    fill(broker)
    deletion = broker.start(DeleteQueue(queue="q"))
    broker.cycle()
    broker.start(Enqueue(queue="q", messages=[message(b"later")]))
    assert left_after_each_cycle(broker, deletion) == [COUNT - 2 * PART + 1, 1, 1, 0]
    numbers = range(1, broker.engine.ledger.next_sequence)
    assert store.bodies(numbers) == [None] * len(numbers)
    broker.reopen()
    with pytest.raises(QueueNotFound):
        broker.queue("q")


def test_a_deletion_that_is_refused_purges_nothing() -> None:
    """A large queue that another one uses for its dead letters keeps its messages."""
    broker = broker_with()
    broker.create_queue("mail", {"dead_letter_queue": "q"})
    fill(broker)
    with pytest.raises(InvalidArgument):
        broker.delete_queue("q")
    assert broker.queue("q").waiting == COUNT


def test_large_purges_take_turns() -> None:
    """Of two purges that come at once, the second begins when the first is done."""
    broker = broker_with()
    broker.create_queue("other")
    fill(broker)
    fill(broker, "other")
    first, second = broker.start(PurgeQueue(queue="q")), broker.start(PurgeQueue(queue="other"))
    assert left_after_each_cycle(broker, first, "other")[:-1] == [COUNT] * (COUNT // PART + 1)
    assert len(left_after_each_cycle(broker, second, "other")) >= COUNT // PART
    assert (first.get().count, second.get().count) == (COUNT, COUNT)


@pytest.mark.parametrize("fault", ["before_write", "sync"])
def test_a_purge_goes_on_when_a_commit_has_failed(fault: Any) -> None:
    """A part whose commit failed is removed again if it is still there, and counts once."""
    store = FaultyStore(random.Random(1))
    broker = broker_with(store=store)
    fill(broker)
    purge = broker.start(PurgeQueue(queue="q"))
    broker.cycle()
    store.faults.arm(fault)
    assert broker.wait(purge).count == COUNT
    assert broker.queue("q").waiting == 0


def test_a_purge_ends_with_its_queue() -> None:
    """A deletion that comes during a purge goes ahead once few messages are left, and the purge counts its own."""
    broker = broker_with()
    fill(broker)
    purge, deletion = broker.start(PurgeQueue(queue="q")), broker.start(DeleteQueue(queue="q"))
    broker.step()
    assert purge.get().count == 2 * PART
    deletion.get()
    with pytest.raises(QueueNotFound):
        broker.queue("q")
