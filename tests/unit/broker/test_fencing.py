"""A broker whose store another process has taken over answers nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.shared.ownership import Ownership
from fairlane.assembly import open_async_broker, open_broker
from fairlane.errors import StoreCorrupt, StoreFenced, StoreLocked
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.testing.store_contract import commit_of
from fairlane.verbs.batches import Stage
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Enqueue
from tests.contract.owned_stores import KINDS, HandClock, Place, place_on
from tests.kit.servers.stores import PostgresServer


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return place_on(request.param, request.getfixturevalue(request.param))


def test_the_old_owner_changes_nothing_and_the_new_one_has_everything(place: Place) -> None:
    """What was answered before is with the new owner, leases and tokens included; the old one is refused."""
    old = SteppedBroker(place.store())
    old.create_queue("mail", {"max_attempts": 0, "backoff_ms": 0})
    old.enqueue("mail", b"first")
    old.enqueue("mail", b"second")
    (leased,) = old.lease("mail")
    new = SteppedBroker(place.store(force=True), clock=old.clock)
    calls: list[Callable[[], object]] = [
        lambda: old.enqueue("mail", b"third"),
        lambda: old.ack(leased),
        lambda: old.lease("mail"),
        lambda: old.create_queue("other"),
        old.queues,
    ]
    for call in calls:
        with pytest.raises(StoreFenced):
            call()
    assert [view.payload for view in new.peek("mail", with_body=True)] == [b"first", b"second"]
    new.ack(leased)
    (second,) = new.lease("mail")
    assert (second.payload, second.token > leased.token) == (b"second", True)
    old.close()
    new.close()


def test_everybody_who_waits_is_told(place: Place) -> None:
    """Whoever waits at the old owner for messages or for room is let go as soon as the takeover is noticed."""
    old = SteppedBroker(place.store())
    old.create_queue("mail")
    old.create_queue("full", {"waiting_max": 1, "backpressure": "wait"})
    old.enqueue("full", b"first")
    news = [NewMessage(payload=b"second")]
    pending: list[Pending[Any]] = [
        old.start(Lease(queue="mail", count=1, wait_ms=60_000)),
        old.start(Enqueue(queue="full", messages=news, wait_ms=60_000)),
        old.start(Stage(queue="full", sink="s", batch=1, part="p", at=0, messages=news, wait_ms=60_000)),
    ]
    old.step()
    assert not any(each.done() for each in pending)
    consumer, got = old.attach("mail")
    new = SteppedBroker(place.store(force=True))
    with pytest.raises(StoreFenced):
        old.create_queue("other")
    for each in pending:
        assert each.done()
        with pytest.raises(StoreFenced):
            each.get()
    assert (consumer.is_closed, got) == (True, [])
    assert old.engine.next_event_at() is None
    old.close()
    new.close()


def test_who_was_stopped_does_not_even_answer_questions(place: Place) -> None:
    """After a pause longer than its lease the old owner notices the takeover before it answers from memory."""
    clock = HandClock()
    old = SteppedBroker(place.store(clock=clock))
    old.create_queue("mail")
    new = SteppedBroker(place.store(force=True))
    clock.now_s += 60
    with pytest.raises(StoreFenced):
        old.queues()
    old.close()
    new.close()


def test_a_pause_without_a_takeover_is_survived(place: Place) -> None:
    """An owner that was silent for long and finds the store still its own goes on with what it has in memory."""
    clock = HandClock()
    broker = SteppedBroker(place.store(clock=clock))
    broker.create_queue("mail")
    ledger = broker.engine.ledger
    clock.now_s += 60
    broker.enqueue("mail", b"still here")
    assert broker.engine.ledger is ledger
    broker.close()


def test_both_faces_refuse_after_a_takeover(postgres: PostgresServer) -> None:
    """A broker opened by URL, for threads or asyncio, is refused a live store, takes it by force, and is fenced."""
    url = f"{postgres.url}&namespace=faces"
    with open_broker(url) as first:
        first.create_queue("mail")
        with pytest.raises(StoreLocked):
            open_broker(url)

        async def run() -> None:
            async with await open_async_broker(f"{url}&force=true") as second:
                with pytest.raises(StoreFenced):
                    first.enqueue("mail", b"late")
                await second.enqueue("mail", b"hello")
                third = PostgresStore(postgres.url, namespace="faces", ownership=Ownership(force=True))
                third.recover()
                with pytest.raises(StoreFenced):
                    await second.enqueue("mail", b"too late")
                third.close()

        asyncio.run(run())
    with open_broker(url) as last:
        assert [view.payload for view in last.peek("mail", with_body=True)] == [b"hello"]


def test_a_broker_that_could_not_be_opened_leaves_the_store_free(postgres: PostgresServer) -> None:
    """A journal that can't be read is told, and keeps nobody from looking into it."""
    store = PostgresStore(postgres.url, namespace="unreadable")
    store.recover()
    store.write(commit_of(1, 1))
    store.close()
    with pytest.raises(StoreCorrupt):
        open_broker(f"{postgres.url}&namespace=unreadable")
    store.recover()
    store.close()
