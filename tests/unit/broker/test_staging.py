"""Sinks: staging and publishing, each batch once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.errors import (
    InvalidArgument,
    KeyFull,
    MessageNotFound,
    PayloadTooLarge,
    QueueFull,
    QueueNotFound,
    SinkNotFound,
    StageMismatch,
    StoreFailed,
)
from fairlane.journal.events import rows
from fairlane.model.limits import PARTS_MAX, SINK_SILENCE_MS_MAX, SINKS_MAX
from fairlane.model.staging import PublishResult, StageResult
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.batches import Stage
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads


def stage(broker: SteppedBroker, *bodies: bytes, part: str = "p", batch: int = 1, at: int = 0, **more: Any) -> int:
    """Stage messages for the sink s of q, and return how many its part has."""
    news = [message(body) for body in bodies]
    return broker.stage("q", "s", batch=batch, part=part, at=at, messages=news, **more).count


def publish(broker: SteppedBroker, *parts: str, batch: int = 1) -> PublishResult:
    return broker.publish("q", "s", batch=batch, parts=parts)


def start_stage(broker: SteppedBroker, *bodies: bytes, part: str, batch: int = 1) -> Pending[StageResult]:
    """Stage messages, without waiting for it."""
    news = [message(body) for body in bodies]
    pending = broker.start(Stage(queue="q", sink="s", batch=batch, part=part, at=0, messages=news, wait_ms=10_000))
    broker.step()
    return pending


def test_what_is_staged_is_nowhere_until_it_is_published() -> None:
    """Nobody leases, peeks, finds, purges or counts it; then all of it is there, in the order of the parts."""
    broker = broker_with()
    assert stage(broker, b"1", b"2", part="b") == 2
    assert stage(broker, b"3", part="b", at=2) == 3
    assert stage(broker, b"0", part="a") == 1
    view = broker.queue("q")
    assert (view.waiting, view.leased, view.size, view.staged) == (0, 0, 0, 4)
    assert (broker.lease("q", 10), broker.peek("q"), broker.purge("q")) == ([], [], 0)
    broker.reopen()
    assert publish(broker, "a", "b") == PublishResult(count=4, was_published=False)
    assert payloads(broker.lease("q", 10)) == [b"0", b"1", b"2", b"3"]
    assert (broker.queue("q").staged, broker.queue("q").size) == (0, 4)


def test_a_repeated_request_changes_nothing() -> None:
    """Staging again, in whole or in part, stores nothing; publishing again enqueues nothing."""
    broker = broker_with()
    stage(broker, b"1", b"2")
    before = broker.engine.ledger.next_sequence
    assert (stage(broker, b"1", b"2"), stage(broker, b"2", at=1), stage(broker)) == (2, 2, 0)
    assert broker.engine.ledger.next_sequence == before
    assert publish(broker, "p").count == 2
    before = broker.engine.ledger.next_sequence
    assert publish(broker, "p") == PublishResult(count=2, was_published=True)
    assert publish(broker, "gone", batch=0) == PublishResult(count=0, was_published=True)
    assert stage(broker, b"9", b"9", b"9") == 3
    assert (broker.engine.ledger.next_sequence, broker.queue("q").waiting) == (before, 2)


def test_a_gap_and_a_missing_part_are_refused() -> None:
    """What does not follow on what is there is a mismatch, and so is a part that nobody staged."""
    broker = broker_with()
    stage(broker, b"1")
    for ask in (
        lambda: stage(broker, b"3", at=2),
        lambda: stage(broker, b"1", b"2"),
        lambda: stage(broker, b"1", part="new", at=1),
        lambda: publish(broker, "p", "q"),
        lambda: publish(broker, "p", batch=2),
    ):
        with pytest.raises(StageMismatch):
            ask()
    assert broker.queue("q").staged == 1


def test_publishing_drops_what_is_left_behind() -> None:
    """Parts of tasks that failed, and earlier batches that never came to be, are gone; later ones stay."""
    broker = broker_with()
    stage(broker, b"lost", batch=0)
    stage(broker, b"good", part="t1", batch=1)
    stage(broker, b"retried", part="t1-failed", batch=1)
    stage(broker, b"later", batch=2)
    publish(broker, "t1", batch=1)
    assert payloads(broker.lease("q", 10)) == [b"good"]
    (view,) = broker.sinks("q")
    assert (view.name, view.batch, view.staged_messages, view.staged_bytes) == ("s", 1, 1, 5)
    kinds = [(row["kind"], row.get("reason")) for page in broker.call(ReadSlice()).pages for row in rows(page)]
    assert [kind for kind in kinds if kind[0] == "removed"] == [("removed", "unstaged")] * 2
    assert publish(broker, "p", batch=2).count == 1


def test_an_empty_batch_is_published_too() -> None:
    """It has no messages, is durable, and counts as published."""
    broker = broker_with()
    assert publish(broker, batch=7) == PublishResult(count=0, was_published=False)
    broker.reopen()
    assert publish(broker, batch=7) == PublishResult(count=0, was_published=True)
    assert broker.sinks("q")[0].batch == 7


def test_a_request_is_staged_as_a_whole_or_not_at_all() -> None:
    """The first message that is not sound refuses all, with its own error; a dedup id has no place here."""
    broker = broker_with()
    bad = [
        (InvalidArgument, message(b"x", cost=-1)),
        (InvalidArgument, message(b"x", dedup_id="d")),
        (PayloadTooLarge, message(b"x" * (16 * 1024 * 1024 + 1))),
    ]
    for kind, news in bad:
        with pytest.raises(kind):
            broker.stage("q", "s", batch=1, part="p", at=0, messages=[message(b"good"), news])
    assert (broker.queue("q").staged, broker.sinks("q")) == (0, [])


def test_limits_count_what_is_staged() -> None:
    """A full queue refuses all of a request, and what is staged leaves no room to others; publishing needs none."""
    broker = broker_with({"waiting_max": 3, "key_waiting_max": 2})
    news = [message(b"1", fairness_key="a"), message(b"2", fairness_key="b")]
    broker.stage("q", "s", batch=1, part="p", at=0, messages=news)
    with pytest.raises(QueueFull) as caught:
        broker.stage("q", "s", batch=1, part="p2", at=0, messages=[message(b"3"), message(b"4")])
    assert caught.value.retry_after_ms
    with pytest.raises(KeyFull):
        broker.stage("q", "s", batch=1, part="p2", at=0, messages=[message(b"3", fairness_key="a")] * 2)
    broker.enqueue("q", b"3")
    with pytest.raises(QueueFull):
        broker.enqueue("q", b"4")
    assert publish(broker, "p").count == 2
    assert broker.queue("q").waiting == 3


def test_staging_waits_for_room() -> None:
    """Where the policy is to wait, a request is staged as soon as there is room for all of it, in its turn."""
    broker = broker_with({"waiting_max": 2, "backpressure": "wait"})
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    large, small = start_stage(broker, b"3", b"4", part="large"), start_stage(broker, b"5", part="small")
    broker.ack(lease_one(broker))
    assert (large.done(), small.done()) == (False, False)
    broker.ack(lease_one(broker))
    assert (large.get(), small.done()) == (StageResult(count=2), False)
    broker.advance(10_000)
    with pytest.raises(QueueFull):
        small.get()
    waiting = start_stage(broker, b"6", part="other")
    publish(broker, batch=1)  # everything staged is dropped
    assert waiting.get() == StageResult(count=1)
    broker.enqueue("q", b"7")
    full = start_stage(broker, b"8", b"9", part="never", batch=2)
    broker.close()
    with pytest.raises(QueueFull):
        full.get()


def test_times_count_from_the_publication() -> None:
    """Delay, deadline and age begin when the batch is published, however long it was staged."""
    broker = broker_with()
    news = [message(b"late", delay_ms=1_000), message(b"short", deadline_ms=1_000), message(b"plain")]
    broker.stage("q", "s", batch=1, part="p", at=0, messages=news)
    broker.advance(60_000)
    publish(broker, "p")
    now_ms = broker.clock.now_ms()
    found = {view.payload: view for view in broker.peek("q", with_body=True)}
    assert found[b"late"].due_ms == now_ms + 1_000
    assert found[b"short"].deadline_ms == now_ms + 1_000
    assert {view.enqueued_ms for view in found.values()} == {now_ms}
    broker.reopen()
    broker.advance(1_001)
    assert sorted(payloads(broker.lease("q", 10))) == [b"late", b"plain"]


def test_terms_are_those_of_an_enqueue() -> None:
    """Hooks, declared keys and wishes are taken when staged, and act when published; weights too."""
    script = 'function on_enqueue(m) return { fairness_key = m.headers["t"], weight = 3, throttle_keys = {} } end'
    broker = broker_with({"on_enqueue": script})
    broker.stage("q", "s", batch=1, part="p", at=0, messages=[message(b"1", headers={"t": "acme"}, priority="high")])
    assert broker.inspect("q").keys == ()
    publish(broker, "p")
    (view,) = broker.peek("q")
    assert (view.fairness_key, view.priority) == ("acme", "high")
    (key,) = broker.inspect("q").keys
    assert (key.key, key.weight) == ("acme", 3)


def test_the_journal_tells_a_published_message_whole() -> None:
    """A staged row has sink, batch and part; a published one all that an enqueued one has; both name the message."""
    broker = broker_with()
    news = [message(b"12", fairness_key="acme", cost=4, correlation_id="c")]
    broker.stage("q", "s", batch=6, part="p", at=0, messages=news)
    publish(broker, "p", batch=6)
    found = {row["kind"]: row for page in broker.call(ReadSlice()).pages for row in rows(page)}
    common = {"queue": "q", "size_bytes": 2, "fairness_key": ["acme"], "cost": 4, "name": "s", "position": 6}
    assert found["staged"].items() >= (common | {"value": "p", "correlation_id": "c"}).items()
    assert found["published"].items() >= common.items()
    assert found["published"]["message_id"] == found["staged"]["message_id"]
    assert int(found["staged"]["message_id"], 16) == numbered(lease_one(broker).id)
    assert found["sink_set"]["position"] == 6


def test_a_silent_sink_loses_what_is_staged() -> None:
    """After a week without a word its messages are dropped, and it still knows what it has published."""
    broker = broker_with()
    publish(broker, batch=3)
    stage(broker, b"1", batch=4)
    broker.advance(SINK_SILENCE_MS_MAX - 1)
    assert broker.queue("q").staged == 1
    broker.advance(1)
    assert broker.queue("q").staged == 0
    with pytest.raises(StageMismatch):
        publish(broker, "p", batch=4)
    assert publish(broker, batch=3).was_published


def test_a_sink_is_dropped() -> None:
    """It is forgotten with what is staged; its bodies leave the store, and its batches begin anew."""
    broker = broker_with()
    publish(broker, batch=3)
    stage(broker, b"1", b"2", batch=4)
    assert broker.drop_sink("q", "s", by="me") == 2
    assert (broker.sinks("q"), broker.engine.ledger.size, broker.engine.ledger.chunks) == ([], 0, {})
    with pytest.raises(SinkNotFound):
        broker.drop_sink("q", "s")
    assert not publish(broker, batch=1).was_published


def test_a_deleted_queue_takes_its_sinks_along() -> None:
    """Neither messages nor sinks nor bodies are left."""
    broker = broker_with({"key_waiting_max": 5})
    stage(broker, b"1")
    broker.delete_queue("q")
    assert (broker.engine.ledger.messages, broker.engine.ledger.size, broker.engine.ledger.chunks) == (0, 0, {})
    broker.create_queue("q")
    assert broker.sinks("q") == []
    broker.reopen()


def test_what_makes_no_sense_is_refused() -> None:
    """Names, numbers and counts out of range change nothing."""
    broker = broker_with()
    wrong: list[Callable[[], object]] = [
        lambda: broker.stage("q", "", batch=1, part="p", at=0, messages=[]),
        lambda: broker.stage("q", "s", batch=-1, part="p", at=0, messages=[]),
        lambda: broker.stage("q", "s", batch=1, part="", at=0, messages=[]),
        lambda: broker.stage("q", "s", batch=1, part="p", at=-1, messages=[]),
        lambda: broker.stage("q", "s", batch=1, part="p", at=0, messages=[message()] * 10_001),
        lambda: broker.stage("q", "s", batch=1, part="p", at=0, messages=[], wait_ms=-1),
        lambda: broker.publish("q", "s", batch=1, parts=["p", "p"]),
        lambda: broker.publish("q", "s", batch=1, parts="pq"),
        lambda: broker.publish("q", "s", batch=1, parts=["p"] * (PARTS_MAX + 1)),
        lambda: broker.publish("q", "x" * 200, batch=1, parts=[]),
    ]
    for ask in wrong:
        with pytest.raises(InvalidArgument):
            ask()
    missing: list[Callable[[], object]] = [
        lambda: broker.stage("no", "s", batch=1, part="p", at=0, messages=[]),
        lambda: broker.publish("no", "s", batch=1, parts=[]),
        lambda: broker.sinks("no"),
        lambda: broker.drop_sink("no", "s"),
    ]
    for ask in missing:
        with pytest.raises(QueueNotFound):
            ask()
    with pytest.raises(MessageNotFound):
        broker.get("q", "0" * 16)
    assert broker.sinks("q") == []


def test_sinks_of_a_queue_are_limited() -> None:
    """One more than the limit is refused."""
    broker = broker_with()
    for at in range(SINKS_MAX):
        broker.publish("q", f"s{at}", batch=0, parts=[])
    with pytest.raises(InvalidArgument, match="Drop one"):
        broker.publish("q", "another", batch=0, parts=[])


def test_a_publication_whose_commit_failed_is_settled_by_the_next_call() -> None:
    """The refusal says that nobody knows; asking again enqueues the batch once, whatever became of the first."""
    store = FaultyStore(random.Random(1))
    broker = SteppedBroker(store)
    broker.create_queue("q")
    stage(broker, b"1", b"2")
    store.faults.arm("after_write")
    with pytest.raises(StoreFailed):
        publish(broker, "p")
    broker.advance(2_000)
    assert publish(broker, "p").count == 2
    assert payloads(broker.lease("q", 10)) == [b"1", b"2"]


def test_moving_the_base_keeps_what_is_staged() -> None:
    """Recovery that begins after the staging knows sink, parts, places and bodies."""
    broker = SteppedBroker(carry_floor=1)
    broker.create_queue("q", {"key_waiting_max": 500})
    publish(broker, batch=0)
    stage(broker, b"1", b"2")
    stage(broker, b"3", at=2)
    staged_at = broker.engine.ledger.next_sequence
    for at in range(60):
        broker.enqueue("q", b"%d" % at)
        broker.ack(lease_one(broker))
    assert broker.store.recover().base > staged_at
    broker.reopen()
    assert broker.sinks("q")[0].staged_bytes == 3
    assert stage(broker, b"4", at=3) == 4
    assert publish(broker, "p").count == 4
    broker.reopen()
    assert payloads(broker.lease("q", 10)) == [b"1", b"2", b"3", b"4"]
