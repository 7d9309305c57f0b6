"""Dead letters: why they are there, and looking through them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidArgument, NotADlq, QueueNotFound
from fairlane.model.message import MessageStatus
from fairlane.model.views import DeadLetterFilter
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, buried, bury, lease_one, message, payloads


def test_a_dead_letter_keeps_where_it_came_from_and_what_went_wrong() -> None:
    """CallContext, reason, instant, payload, headers, correlation id and the errors of its attempts are all there."""
    broker = broker_with({"max_attempts": 2, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"x", headers={"a": "b"}, correlation_id="c", fairness_key="k")
    broker.nack(lease_one(broker), error="first")
    broker.advance(10)
    broker.nack(lease_one(broker), error="second")
    broker.reopen()
    view = broker.get("q.dlq", message_id)
    assert view.dead is not None
    assert (view.dead.origin, view.dead.reason, view.dead.at_ms) == ("q", "max_attempts", broker.clock.now_ms())
    assert [(e.attempt, e.reason, e.error) for e in view.errors] == [(1, "failure", "first"), (2, "failure", "second")]
    assert (view.payload, view.headers, view.correlation_id, view.fairness_key) == (b"x", {"a": "b"}, "c", "k")
    assert broker.queue("q").dead == 1


def test_the_history_keeps_the_latest_ten_errors() -> None:
    """Of twelve failures the first two are forgotten, live and after a reopen."""
    broker = broker_with({"max_attempts": 12, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"")
    for n in range(12):
        broker.nack(lease_one(broker), error=str(n))
    for _ in range(2):
        view = broker.get("q.dlq", message_id)
        assert ([e.error for e in view.errors], view.failures) == ([str(n) for n in range(2, 12)], 12)
        broker.reopen()


def test_a_dead_letter_can_be_leased_acked_and_failed_but_not_die_again() -> None:
    """Its queue is one like any other, but a letter that fails there, even with intent dead, stays there."""
    broker, (message_id,) = buried(1)
    for intent in ("failure", "dead", "failure"):
        dead = lease_one(broker, "q.dlq", wait_ms=400_000)
        arguments: dict[str, Any] = {"intent": intent}
        broker.nack(dead, **arguments)
    assert broker.get("q.dlq", message_id).dead is not None
    broker.ack(lease_one(broker, "q.dlq", wait_ms=400_000))
    assert broker.queue("q.dlq").waiting == 0


def test_dead_letters_wait_for_no_throttle_delay_or_deadline() -> None:
    """Whoever looks through them gets them at once, though their throttle is shut, and they do not run out."""
    broker = broker_with()
    message_id = bury(broker, throttles=("t",), deadline_ms=50)
    broker.set_config("throttle:t:rate", "0")
    broker.advance(1_000)
    assert lease_one(broker, "q.dlq").id == message_id


# ---------------------------------------------------------------------------------------------------------- browsing


def test_browsing_goes_page_by_page_in_the_order_of_death() -> None:
    """Paging after the last id seen gives each letter once, though they died in another order than they came."""
    broker = broker_with()
    ids = [str(i) for i in broker.enqueue_many("q", [message(b"%d" % n) for n in range(6)])]
    held = {delivery.id: delivery for delivery in broker.lease("q", 6)}
    order = [ids[n] for n in (3, 1, 5, 0, 4, 2)]
    for message_id in order:
        broker.nack(held[message_id], intent="dead")
    seen: list[str] = []
    while page := broker.peek("q.dlq", 2, after=seen[-1] if seen else None):
        seen += [view.id for view in page]
    assert seen == order


def test_paging_goes_on_though_the_last_one_seen_has_left() -> None:
    """Nothing is skipped when the letter that a page ended with was purged or redriven meanwhile."""
    broker = broker_with()
    ids = [str(i) for i in broker.enqueue_many("q", [message()] * 4)]
    held = {delivery.id: delivery for delivery in broker.lease("q", 4)}
    for n in (3, 0, 1, 2):
        broker.nack(held[ids[n]], intent="dead")
    seen = broker.peek("q.dlq", 1)[0].id
    broker.cancel("q.dlq", seen)
    rest: list[str] = []
    try:
        rest = [view.id for view in broker.peek("q.dlq", 9, after=seen)]
    except InvalidArgument:  # to say so is as good as to go on
        return
    assert rest == [ids[0], ids[1], ids[2]]


@pytest.mark.parametrize("bad", [{"after": "nonsense"}, {"after": 5}, {"count": 0}, {"count": 10_001}, {"count": "1"}])
def test_a_bad_page_is_refused(bad: dict[str, Any]) -> None:
    """A position or a size that is none is invalid, rather than the first page again."""
    broker, _ = buried(1)
    with pytest.raises(InvalidArgument):
        broker.peek("q.dlq", **bad)


def test_filters_find_by_key_error_reason_and_age() -> None:
    """Each criterion alone and two together give just the letters they mean."""
    broker = broker_with({"max_attempts": 1, "backoff_ms": 0})
    first = bury(broker, fairness_key="a", error="timeout of db")
    broker.advance(1_000)
    second = broker.enqueue("q", b"", fairness_key=("a", "b"))
    broker.nack(lease_one(broker), error="timeout of api")
    third = bury(broker, fairness_key="a", error="refused")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [first, second, third]),
        ({"fairness_key": "a"}, [first, third]),
        ({"fairness_key": ("a", "b")}, [second]),
        ({"error": "timeout"}, [first, second]),
        ({"error": "timeout", "fairness_key": "a"}, [first]),
        ({"reason": "max_attempts"}, [second]),
        ({"reason": "requested"}, [first, third]),
        ({"older_than_ms": 1_000}, [first]),
        ({"newer_than_ms": 999}, [second, third]),
        ({"error": "nothing like it"}, []),
    ]
    for fields, expected in wanted:
        assert [view.id for view in broker.peek("q.dlq", wanted=DeadLetterFilter(**fields))] == expected, fields


@pytest.mark.parametrize(
    "fields",
    [{"error": 5}, {"older_than_ms": "1"}, {"newer_than_ms": []}, {"fairness_key": ["a"]}, {"reason": 5}],
    ids=repr,
)
def test_a_filter_of_the_wrong_types_is_refused(fields: dict[str, Any]) -> None:
    """Neither browsing nor a redrive takes it, and the dead letters stay."""
    broker, _ = buried(1)
    wanted = DeadLetterFilter(**fields)
    with pytest.raises(InvalidArgument):
        broker.peek("q.dlq", wanted=wanted)
    with pytest.raises(InvalidArgument):
        broker.redrive("q.dlq", wanted=wanted)
    assert broker.queue("q.dlq").waiting == 1


def test_peek_takes_nothing() -> None:
    """B5.3: looking three times, at the queue or at one message, hides and counts nothing."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    for _ in range(3):
        assert broker.peek("q", with_body=True)[0].payload == b"x"
        assert broker.peek("q")[0].payload is None
        assert broker.get("q", message_id).attempts == 0
        assert broker.queue("q").waiting == 1
    assert lease_one(broker).attempt == 1


def test_peek_shows_the_messages_of_one_status() -> None:
    """Each message has one status; ``after`` and ``count`` apply to those that are shown."""
    broker = broker_with()
    sent = [broker.enqueue("q", b"x", delay_ms=delay_ms) for delay_ms in (0, 0, 60_000, 0)]
    lease_one(broker)

    def shown(status: MessageStatus, **options: Any) -> list[int]:
        return [sent.index(view.id) for view in broker.peek("q", status=status, **options)]

    assert [shown("leased"), shown("waiting"), shown("delayed")] == [[0], [1, 3], [2]]
    assert shown("waiting", count=1) == [1]
    assert shown("waiting", after=sent[1]) == [3]
    broker.advance(60_000)
    assert shown("delayed") == []


def shared() -> SteppedBroker:
    """Return a broker whose queues a and b share the dead letters of a third, with one dead letter of each."""
    broker = broker_with()
    broker.create_queue("failures")
    for name in ("a", "b"):
        broker.create_queue(name, {"dead_letter_queue": "failures.dlq", "max_attempts": 1})
        broker.enqueue(name, name.encode())
        broker.nack(lease_one(broker, name))
    return broker


def test_queues_can_share_a_dead_letter_queue() -> None:
    """Over a reopen each dead letter knows its origin, and goes back there, unless a target is named."""
    broker = shared()
    broker.reopen()
    dead = broker.peek("failures.dlq", 9)
    assert [(view.dead.origin, view.failures) for view in dead if view.dead] == [("a", 1), ("b", 1)]
    assert (broker.queue("a").dead, broker.queue("a.dlq").waiting) == (2, 0)
    broker.redrive("failures.dlq", wanted=DeadLetterFilter(ids=(dead[0].id,)), target="q")
    broker.redrive("failures.dlq")
    broker.advance(1_000)
    broker.reopen()
    assert [(name, payloads(broker.lease(name, 9))) for name in ("q", "a", "b")] == [
        ("q", [b"a"]),
        ("a", []),
        ("b", [b"b"]),
    ]


def test_a_dead_letter_whose_queue_was_deleted_stays() -> None:
    """The redrive is done, and says what stayed; with a target it goes."""
    broker = shared()
    broker.delete_queue("a")
    first = broker.redrive("failures.dlq")
    broker.advance(1_000)
    view = broker.redrive_view(first.id)
    assert (view.status, view.moved, (view.error or "").split(".")[0]) == (
        "done",
        1,
        "Dead letters not moved (queue deleted): 1",
    )
    broker.redrive("failures.dlq", target="b")
    broker.advance(1_000)
    assert (broker.queue("failures.dlq").waiting, broker.queue("b").waiting) == (0, 2)


def chained() -> SteppedBroker:
    """Return a broker in which ``slow`` is the dead-letter queue of a and b, with a letter of each and one of its own.

    A message that fails there twice goes to the dead letters of ``slow``.
    """
    broker = broker_with()
    broker.create_queue("slow", {"max_attempts": 2})
    broker.enqueue("slow", b"own")
    for name in ("a", "b"):
        broker.create_queue(name, {"dead_letter_queue": "slow", "max_attempts": 1})
        broker.enqueue(name, name.encode(), deadline_ms=60_000)
        broker.nack(lease_one(broker, name), error="first")
    return broker


def test_any_queue_can_be_a_dead_letter_queue() -> None:
    """Dead letters wait there among others, count in both queues' views, and keep origin and errors over a reopen."""
    broker = chained()
    broker.reopen()
    view = broker.queue("slow")
    assert (view.waiting, view.dead_letters, broker.queue("a").dead, broker.queue("a.dlq").waiting) == (3, 2, 2, 0)
    where = {name: broker.queue(name).dead_letter_queue for name in ("a", "a.dlq", "slow")}
    assert where == {"a": "slow", "a.dlq": "a.dlq", "slow": "slow.dlq"}
    held = broker.lease("slow", 9)
    assert sorted(payloads(held)) == [b"a", b"b", b"own"]
    assert {d.payload: d.dead.origin for d in held if d.dead is not None} == {b"a": "a", b"b": "b"}
    broker.ack(held[0])
    for delivery in held[1:]:
        broker.nack(delivery)
    broker.advance(120_000)
    assert broker.queue("slow").waiting == 2


def test_a_dead_letter_begins_anew_in_a_queue_with_a_policy() -> None:
    """The failures in its own queue don't count; by the policy of the other queue it dies there again, and returns."""
    broker = chained()
    for _ in range(2):
        for delivery in broker.lease("slow", 9):
            broker.nack(delivery, error="again")
    assert (broker.queue("slow").dead_letters, broker.queue("slow").dead) == (0, 3)
    letters = {view.dead.origin for view in broker.peek("slow.dlq", 9) if view.dead is not None}
    assert letters == {"slow"}
    broker.redrive("slow.dlq")
    broker.advance(1_000)
    assert (broker.queue("slow").waiting, broker.queue("slow").dead_letters) == (3, 0)


def test_a_redrive_takes_only_the_dead_letters_of_a_queue() -> None:
    """The queue's own messages stay; a filter selects the letters of one origin; each goes back to its own queue."""
    broker = chained()
    broker.redrive("slow", wanted=DeadLetterFilter(origin="b"))
    broker.advance(1_000)
    assert [broker.queue(name).waiting for name in ("slow", "a", "b")] == [2, 0, 1]
    broker.redrive("slow")
    broker.advance(1_000)
    broker.reopen()
    assert [payloads(broker.lease(name, 9)) for name in ("slow", "a", "b")] == [[b"own"], [b"a"], [b"b"]]
    with pytest.raises(NotADlq):
        broker.redrive("q")
    with pytest.raises(InvalidArgument, match="already"):
        broker.redrive("slow", target="slow")


def test_dead_letters_do_not_go_round() -> None:
    """A circle of dead-letter queues is refused with its names, whether of one queue or of several."""
    broker = chained()
    broker.create_queue("c", {"dead_letter_queue": "a"})
    for name, dlq, way in (
        ("a", "a", "a to a"),
        ("slow", "a", "slow to a to slow"),
        ("slow", "c", "slow to c to a to slow"),
    ):
        with pytest.raises(InvalidArgument, match=way):
            broker.update_queue(name, {"dead_letter_queue": dlq})
    with pytest.raises(InvalidArgument, match="of a, b"):
        broker.delete_queue("slow")


def test_a_dead_letter_brings_no_weight_to_its_dead_letter_queue() -> None:
    """Whether the broker is opened again or not, the weight of a message counts in its own queue only."""
    broker = broker_with()
    broker.create_queue("failures")
    broker.create_queue("a", {"dead_letter_queue": "failures"})
    broker.enqueue("a", b"x", fairness_key="t", weight=7)
    broker.nack(lease_one(broker, "a"), intent="dead")
    weights = [broker.queue("failures", keys_max=9).keys[0].weight]
    broker.reopen()
    assert [*weights, broker.queue("failures", keys_max=9).keys[0].weight] == [1, 1]


def test_a_dead_letter_queue_that_can_not_be_is_refused() -> None:
    """It must exist, can't be that of another dead-letter queue, and can't go while it is named."""
    broker = shared()
    for name in ("missing.dlq", "missing", "", "no such/name"):
        with pytest.raises(InvalidArgument, match=r"[Dd]ead.letter"):
            broker.update_queue("a", {"dead_letter_queue": name})
    with pytest.raises(InvalidArgument, match="cannot have one itself"):
        broker.update_queue("a.dlq", {"dead_letter_queue": "failures.dlq"})
    with pytest.raises(InvalidArgument, match="of a, b"):
        broker.delete_queue("failures")
    with pytest.raises(QueueNotFound):
        broker.redrive("failures.dlq", target="missing")
    with pytest.raises(InvalidArgument, match="is a dead-letter queue"):
        broker.redrive("failures.dlq", target="a.dlq")
    for name in ("a", "b"):
        broker.update_queue(name, {"dead_letter_queue": None})
    broker.delete_queue("failures")
