"""Backpressure: limits in messages and bytes, per queue, key and broker; reject, wait, drop."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.broker.refusals import RECORDED_EVERY_MS
from fairlane.broker.settings import Settings
from fairlane.errors import (
    FairlaneError,
    GlobalFull,
    InvalidArgument,
    KeyFull,
    QueueFull,
    QueueNotFound,
    StoreFailed,
    UnavailableError,
)
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import Pending
from fairlane.verbs.batches import Stage
from fairlane.verbs.methods.conversions import only
from fairlane.verbs.queues import CreateQueue, DeleteQueue
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads, start_enqueue
from tests.unit.broker.test_refusals import recorded

LIMITS: list[tuple[dict[str, Any], Settings, type[FairlaneError]]] = [
    ({"waiting_max": 2}, Settings(), QueueFull),
    ({"waiting_bytes_max": 20}, Settings(), QueueFull),
    ({"key_waiting_max": 2}, Settings(), KeyFull),
    ({"key_waiting_bytes_max": 20}, Settings(), KeyFull),
    ({}, Settings(waiting_max=2), GlobalFull),
    ({}, Settings(waiting_bytes_max=20), GlobalFull),
]
limited = pytest.mark.parametrize(("policy", "settings", "refusal"), LIMITS, ids=range(6))
TEN = b"0123456789"
SMALL = Settings(waiting_bytes_max=20)


def errors(results: Sequence[object]) -> list[FairlaneError]:
    """Return the errors among results."""
    return [result for result in results if isinstance(result, FairlaneError)]


@limited
def test_beyond_a_limit_the_rest_of_a_batch_is_rejected(
    policy: dict[str, Any], settings: Settings, refusal: type[FairlaneError]
) -> None:
    """Two of three find room, leased ones still count, an ack makes room, and the count holds over a reopen."""
    broker = broker_with(policy, settings=settings)
    results = broker.enqueue_many("q", [message(TEN)] * 3)
    assert codes(results) == [None, None, refusal.code]
    held = lease_one(broker)
    broker.reopen()
    with pytest.raises(refusal):
        broker.enqueue("q", TEN)
    broker.ack(held)
    broker.enqueue("q", TEN)
    with pytest.raises(refusal):
        broker.enqueue("q", TEN)


@limited
def test_a_refusal_says_when_to_come_back(
    policy: dict[str, Any], settings: Settings, refusal: type[FairlaneError]
) -> None:
    """Every kind of full names a time after which coming back may help."""
    broker = broker_with(policy, settings=settings)
    broker.enqueue_many("q", [message(TEN)] * 2)
    with pytest.raises(refusal) as caught:
        broker.enqueue("q", TEN)
    assert isinstance(caught.value, UnavailableError)
    assert caught.value.retry_after_ms is not None
    assert caught.value.retry_after_ms > 0


def test_a_full_key_leaves_room_for_others() -> None:
    """The limit of a key is its own, after retries and over a reopen too."""
    broker = broker_with({"key_waiting_max": 1})
    results = broker.enqueue_many("q", [message(fairness_key=key) for key in ("a", "a", "b", "b")])
    assert codes(results) == [None, "key_full", None, "key_full"]
    broker.nack(lease_one(broker), delay_ms=0)
    broker.reopen()
    assert codes(broker.enqueue_many("q", [message(fairness_key=key) for key in "abc"])) == [
        "key_full",
        "key_full",
        None,
    ]


def test_a_limit_on_keys_set_later_counts_what_is_there() -> None:
    """Keys are counted from the backlog when an update begins to limit them, and no longer when it ends."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key="a")] * 3)
    broker.update_queue("q", {"key_waiting_max": 3})
    assert codes(broker.enqueue_many("q", [message(fairness_key=key) for key in "ab"])) == ["key_full", None]
    broker.update_queue("q", {"key_waiting_max": None})
    assert codes(broker.enqueue_many("q", [message(fairness_key="a")])) == [None]


def test_the_broker_wide_limit_counts_all_queues() -> None:
    """What waits in one queue, dead letters included, takes room from another."""
    broker = broker_with(settings=Settings(waiting_max=2))
    broker.create_queue("r")
    broker.enqueue("r", b"")
    broker.enqueue("q", b"")
    broker.nack(lease_one(broker), intent="dead")
    with pytest.raises(GlobalFull):
        broker.enqueue("q", b"")
    assert broker.purge("q.dlq") == 1
    broker.enqueue("q", b"")


@limited
def test_a_producer_waits_for_room(policy: dict[str, Any], settings: Settings, refusal: type[FairlaneError]) -> None:
    """It is answered as soon as an ack makes room, with the ids of all, and refused when it has waited enough."""
    broker = broker_with({**policy, "backpressure": "wait"}, settings=settings)
    broker.enqueue_many("q", [message(TEN)] * 2)
    pending = start_enqueue(broker, [message(b"x" * 10)], wait_ms=1_000)
    broker.advance(500)
    assert not pending.done()
    broker.ack(lease_one(broker))
    assert codes(pending.get()) == [None]
    late = start_enqueue(broker, [message(TEN)], wait_ms=1_000)
    broker.advance(999)
    assert not late.done()
    broker.advance(1)
    assert codes(late.get()) == [refusal.code]
    assert codes(broker.enqueue_many("q", [message(TEN)], wait_ms=0)) == [refusal.code]
    assert broker.queue("q").waiting == 2


def test_producers_that_wait_get_room_in_the_order_they_came() -> None:
    """Room goes to the first that waits; one that came later does not overtake."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"0")
    first, second = start_enqueue(broker, [message(b"1")]), start_enqueue(broker, [message(b"2")])
    broker.ack(lease_one(broker))
    assert (first.done(), second.done()) == (True, False)
    broker.ack(lease_one(broker))
    assert lease_one(broker).payload == b"2"


def test_a_producer_that_waits_for_its_key_holds_up_no_other_key() -> None:
    """While one tenant's key is full, another tenant's enqueue goes through at once."""
    broker = broker_with({"key_waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"", fairness_key="noisy")
    noisy = start_enqueue(broker, [message(fairness_key="noisy")])
    quiet = start_enqueue(broker, [message(fairness_key="quiet")])
    assert (noisy.done(), quiet.done()) == (False, True)
    assert codes(quiet.get()) == [None]


def test_producers_behind_others_are_refused_by_message() -> None:
    """Behind a line each message is refused with its own key, cost and the numbers, by the limit that was met."""
    for settings, policy, code, whose in (
        (Settings(), {"waiting_max": 1}, "queue_full", "Queue 'q' has"),
        (Settings(waiting_max=1), {}, "global_full", "All queues together have"),
    ):
        broker = broker_with({**policy, "backpressure": "wait"}, settings=settings)
        broker.enqueue("q", b"0", fairness_key="quiet")
        start_enqueue(broker, [message(fairness_key="first", cost=2)], wait_ms=1_000)
        pending = start_enqueue(broker, [message(fairness_key=key, cost=7) for key in ("acme", "beta")], wait_ms=1_000)
        broker.advance(1_000)
        setting = "waiting_max is 1."
        assert [str(result.cause) for result in errors(pending.get())] == [f"{whose} 1 messages, and {setting}"] * 2
        assert codes(pending.get()) == [code] * 2
        broker.advance(RECORDED_EVERY_MS)
        assert [(row["fairness_key"], row["reason"], row["cost"]) for row in recorded(broker)] == [
            (["first"], code, 2),
            (["acme"], code, 7),
            (["beta"], code, 7),
        ]


@pytest.mark.parametrize(
    ("settings", "policy", "whose"),
    [
        (Settings(), {"waiting_bytes_max": 20}, "Queue 'q' has"),
        (Settings(waiting_bytes_max=20), {}, "All queues together have"),
    ],
)
def test_a_small_message_behind_a_large_one_says_why_it_waits(
    settings: Settings, policy: dict[str, Any], whose: str
) -> None:
    """It would fit and still does not overtake; its refusal names the amounts and not the size of another's message."""
    broker = broker_with({**policy, "backpressure": "wait"}, settings=settings)
    broker.enqueue("q", TEN)
    start_enqueue(broker, [message(TEN * 2)], wait_ms=1_000)
    pending = start_enqueue(broker, [message(b"12345", fairness_key="acme")], wait_ms=1_000)
    assert not pending.done()
    broker.advance(1_000)
    assert [str(result.cause) for result in errors(pending.get())] == [
        f"{whose} 1 messages of 10 bytes, and earlier enqueues are waiting for more capacity than is left."
    ]


def test_what_capacity_can_not_help_does_not_wait_behind_others() -> None:
    """An invalid message and a repeated one are answered at once; the rest of the batch waits."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    first = broker.enqueue("q", b"0", dedup_id="a")
    start_enqueue(broker, [message(b"1")])
    assert codes(start_enqueue(broker, [message(weight=0), message(dedup_id="a")]).get()) == ["invalid_argument", None]
    twins = [message(b"2", dedup_id="b"), message(b"2", dedup_id="b"), message(dedup_id="a")]
    pending = start_enqueue(broker, twins, wait_ms=1_000)
    assert not pending.done()
    broker.advance(1_000)
    assert codes(pending.get()) == ["queue_full", "queue_full", None]
    assert pending.get()[2] == first


@pytest.mark.parametrize(
    ("policy", "settings"),
    [({"waiting_bytes_max": 20}, Settings()), ({"key_waiting_bytes_max": 20}, Settings()), ({}, SMALL)],
)
def test_what_can_never_fit_holds_up_no_other(policy: dict[str, Any], settings: Settings) -> None:
    """A message that is larger than all room is refused at once; it does not wait in front of others."""
    broker = broker_with({**policy, "backpressure": "wait"}, settings=settings)
    large = start_enqueue(broker, [message(b"x" * 21, fairness_key="acme")], wait_ms=1_000_000)
    other = start_enqueue(broker, [message(TEN, fairness_key="bigcorp")], wait_ms=1_000_000)
    broker.step()
    assert codes(large.get()) == ["payload_too_large"]
    assert codes(other.get()) == [None]


@pytest.mark.parametrize(
    ("policy", "settings", "words"),
    [
        ({"waiting_max": 2}, Settings(), "waiting_max of queue 'q' is 2"),
        ({"waiting_bytes_max": 20}, Settings(), "waiting_bytes_max of queue 'q' is 20"),
        ({}, Settings(waiting_max=2), "waiting_max of all queues together is 2"),
        ({}, SMALL, "waiting_bytes_max of all queues together is 20"),
    ],
)
def test_a_part_that_can_never_fit_holds_up_no_other(policy: dict[str, Any], settings: Settings, words: str) -> None:
    """Messages to stage that are too many for an empty queue are refused at once."""
    broker = broker_with({**policy, "backpressure": "wait"}, settings=settings)

    def start(sink: str, count: int) -> Pending[Any]:
        new = [message(TEN, fairness_key=sink)] * count
        return broker.start(Stage(queue="q", sink=sink, batch=0, part="p", at=0, messages=new, wait_ms=1_000_000))

    large, other = start("acme", 3), start("bigcorp", 1)
    broker.step()
    with pytest.raises(InvalidArgument, match=words):
        large.get()
    assert other.get().count == 1


def test_a_producer_that_gives_up_takes_no_room() -> None:
    """When room is made after it was cancelled, its message is not enqueued and the next one in line is."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"0")
    gone, stays = start_enqueue(broker, [message(b"1")]), start_enqueue(broker, [message(b"2")])
    gone.cancel()
    broker.ack(lease_one(broker))
    assert stays.done()
    assert payloads(broker.lease("q", 5)) == [b"2"]


def test_a_raised_limit_and_a_deleted_queue_answer_those_who_wait() -> None:
    """An update that makes room lets a producer in; deleting the queue sends it away."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"0")
    pending = start_enqueue(broker, [message(b"1")])
    broker.update_queue("q", {"waiting_max": 2})
    assert codes(pending.get()) == [None]
    doomed = start_enqueue(broker, [message(b"2")])
    broker.delete_queue("q")
    assert doomed.done()
    with pytest.raises(QueueNotFound):
        only(doomed.get())


def test_those_who_wait_at_a_deleted_queue_do_not_get_into_another_of_its_name() -> None:
    """Deleted and created again in one cycle, the queue is another one, with other rules for its messages."""
    broker = broker_with({"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"0")
    doomed = start_enqueue(broker, [message(b"1")])
    part = Stage(queue="q", sink="s", batch=0, part="p", at=0, messages=[message(b"2")], wait_ms=10_000)
    staged = broker.start(part)
    broker.step()
    for change in (DeleteQueue(queue="q"), CreateQueue(queue="q")):
        broker.start(change)
    broker.step()
    with pytest.raises(QueueNotFound):
        only(doomed.get())
    with pytest.raises(QueueNotFound):
        staged.get()
    view = broker.queue("q")
    assert (view.waiting, view.staged) == (0, 0)


def test_a_failed_commit_gives_no_id_to_a_producer_that_waits() -> None:
    """If a batch is partly taken in and the commit fails, no id of it is ever answered that is not in the queue."""
    store = FaultyStore(random.Random(1))
    broker = broker_with({"waiting_max": 2, "backpressure": "wait"}, store=store)
    store.faults.arm("before_write")
    pending = start_enqueue(broker, [message(b"%d" % n) for n in range(3)], wait_ms=1_000)
    broker.advance(2_000)
    assert pending.done()
    answered: list[str] = []
    with contextlib.suppress(StoreFailed):
        answered = [result for result in pending.get() if isinstance(result, str)]
    assert set(answered) <= {view.id for view in broker.peek("q")}


@pytest.mark.parametrize(("backpressure", "left"), [("drop_oldest", [b"2", b"3"]), ("drop_newest", [b"1", b"3"])])
def test_dropping_makes_room_from_either_end(backpressure: str, left: list[bytes]) -> None:
    """With room for two, three messages leave the first or the second behind, singly and in one batch."""
    for batch in (True, False):
        broker = broker_with({"waiting_max": 2, "backpressure": backpressure})
        news = [message(b"%d" % n) for n in (1, 2, 3)]
        results = broker.enqueue_many("q", news) if batch else [broker.enqueue("q", new) for new in news]
        assert codes(results) == [None] * 3
        broker.reopen()
        assert payloads(broker.lease("q", 9)) == left


@limited
def test_dropping_works_for_every_limit_of_the_queue(
    policy: dict[str, Any], settings: Settings, refusal: type[FairlaneError]
) -> None:
    """The oldest goes for each kind of limit; if all is leased nothing is dropped and the newcomer is refused."""
    broker = broker_with({**policy, "backpressure": "drop_oldest"}, settings=settings)
    for n in range(3):
        broker.enqueue("q", b"%010d" % n)
    held = broker.lease("q", 9)
    assert payloads(held) == [b"%010d" % n for n in (1, 2)]
    with pytest.raises(refusal):
        broker.enqueue("q", TEN)
    assert codes(broker.ack_many("q", held)) == [None, None]


def test_nothing_is_dropped_for_what_can_not_be_enqueued() -> None:
    """Neither an invalid message, nor one larger than all room, nor a repeat costs a waiting one its place."""
    broker = broker_with({"waiting_bytes_max": 20, "backpressure": "drop_oldest"})
    first = broker.enqueue("q", TEN, dedup_id="a")
    broker.enqueue("q", TEN)
    results = broker.enqueue_many("q", [message(TEN, weight=0), message(b"x" * 21), message(TEN, dedup_id="a")])
    assert codes(results) == ["invalid_argument", "payload_too_large", None]
    assert results[2] == first
    assert broker.queue("q").waiting == 2


def test_a_full_key_drops_its_own_messages_only() -> None:
    """Making room within a key's limit costs that key, never another."""
    broker = broker_with({"key_waiting_max": 1, "backpressure": "drop_oldest"})
    for name, key in ((b"1", "a"), (b"2", "b"), (b"3", "b")):
        broker.enqueue("q", name, fairness_key=key)
    assert sorted(payloads(broker.lease("q", 9))) == [b"1", b"3"]


def test_low_priority_can_not_push_out_high() -> None:
    """Firq A5.9: in a full queue a high one evicts a low one, and a low one is refused rather than evict a high one."""
    broker = broker_with({"waiting_max": 1, "backpressure": "drop_oldest"})
    broker.enqueue("q", b"low", priority="low")
    broker.enqueue("q", b"high", priority="high")
    with pytest.raises(QueueFull):
        broker.enqueue("q", b"low", priority="low")
    assert payloads(broker.lease("q", 9)) == [b"high"]


def test_each_message_of_a_batch_is_refused_or_taken_by_its_own_size() -> None:
    """Messages that are refused like the one before them hide no smaller one behind them."""
    broker = broker_with({"waiting_bytes_max": 10})
    results = broker.enqueue_many("q", [message(bytes(size)) for size in (6, 6, 6, 4, 4)])
    assert codes(results) == [None, "queue_full", "queue_full", None, "queue_full"]
