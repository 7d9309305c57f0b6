"""Streams: credit, leaving them whole or by an exception, and cancelled calls, in threads and loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.errors import QueueNotFound
from fairlane.model.message import NewMessage
from fairlane.verbs import handler_count
from tests.kit.waiting import PATIENCE_S
from tests.unit.broker.brokers import Background, MoodyStore, engine_on, run, store_of

POLICY = {"backoff_ms": 0, "max_attempts": 9}
TWENTY = [NewMessage(payload=b"%d" % n) for n in range(20)]


class Boom(Exception):
    """What a handler may raise."""


def test_threads_leaving_a_stream_loses_what_was_seen_and_nothing_else() -> None:
    """Of twenty with credit five, two seen and one of them acked: one is noted, eighteen are as if never touched."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q", POLICY)
        broker.enqueue_many("q", TWENTY)
        with contextlib.suppress(Boom), broker.consume("q", credit=5, owner="w") as stream:
            broker.ack(next(stream))
            assert broker.queue("q").leased == 5
            next(stream)
            raise Boom
        views = broker.peek("q", 99)
        assert len(views) == 19
        assert [error.reason for view in views for error in view.errors] == ["release"]
        assert {view.failures for view in views} == {0}
        assert (broker.queue("q").leased, broker.queue("q").consumers) == (0, 0)
        assert stream.next(0.0) is None


def test_threads_a_stream_has_as_many_handlers_as_its_reader_shows() -> None:
    """Prompt messages come one at a time to a reader that settles each, and as it asks to one that keeps them."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q")
        broker.enqueue_many("q", [NewMessage(deadline_ms=3_600_000) for _ in range(5)])
        with broker.consume("q", credit=8) as stream:
            broker.ack(next(stream))
            kept = next(stream)
            assert broker.queue("q").leased == 1
            broker.ack_many("q", [kept, next(stream)])
            assert broker.queue("q").waiting == 0
            assert len([next(stream), next(stream)]) == 2


def test_asyncio_a_stream_has_as_many_handlers_as_its_reader_shows() -> None:
    """The same in a loop; with a number of handlers, that many come at once."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q")
            await broker.enqueue_many("q", [NewMessage(deadline_ms=3_600_000) for _ in range(7)])
            async with broker.consume("q", credit=8) as stream:
                await broker.ack(await anext(stream))
                kept = await anext(stream)
                assert (await broker.queue("q")).leased == 1
                await broker.ack_many("q", [kept, await anext(stream)])
            async with broker.consume("q", credit=8, handlers=3) as stream:
                await anext(stream)
                assert (await broker.queue("q")).leased == 3

    run(main())


@pytest.fixture
def no_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the number of handlers fall as soon as it is measured again."""
    monkeypatch.setattr(handler_count, "PERIOD_MS", 0)


@pytest.mark.usefixtures("no_period")
def test_threads_a_reader_that_keeps_fewer_messages_has_fewer_handlers() -> None:
    """After a phase with four in hand, one that settles each message gets prompt messages one by one again."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q")
        broker.enqueue_many("q", [NewMessage(deadline_ms=3_600_000) for _ in range(50)])
        with broker.consume("q", credit=4) as stream:
            broker.ack_many("q", [next(stream) for _ in range(4)])
            assert broker.queue("q").leased == 4
            for _ in range(30):
                broker.ack(next(stream))
            next(stream)
            assert broker.queue("q").leased == 1


@pytest.mark.usefixtures("no_period")
def test_asyncio_a_reader_that_keeps_fewer_messages_has_fewer_handlers() -> None:
    """The same in a loop."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q")
            await broker.enqueue_many("q", [NewMessage(deadline_ms=3_600_000) for _ in range(50)])
            async with broker.consume("q", credit=4) as stream:
                await broker.ack_many("q", [await anext(stream) for _ in range(4)])
                assert (await broker.queue("q")).leased == 4
                for _ in range(30):
                    await broker.ack(await anext(stream))
                await anext(stream)
                assert (await broker.queue("q")).leased == 1

    run(main())


def test_asyncio_leaving_a_stream_loses_what_was_seen_and_nothing_else() -> None:
    """The same in a loop."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q", POLICY)
            await broker.enqueue_many("q", TWENTY)
            with contextlib.suppress(Boom):
                async with broker.consume("q", credit=5) as stream:
                    await broker.ack(await anext(stream))
                    await anext(stream)
                    raise Boom
            views = await broker.peek("q", 99)
            assert (len(views), sum(len(view.errors) for view in views)) == (19, 1)
            assert (await broker.queue("q")).leased == 0
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    run(main())


def test_asyncio_leaving_a_stream_while_a_commit_is_on_its_way_fails_nothing_unseen() -> None:
    """Messages that are being handed to it when it is closed were never seen, and have not failed."""

    async def main() -> None:
        store = MoodyStore()
        async with AsyncBroker(engine_on(store), slow_sync_s=0.0) as broker:
            await broker.create_queue("q", POLICY)
            stream = broker.consume("q", credit=5)
            await stream.__aenter__()
            store.may_sync.clear()
            store.is_syncing.clear()
            enqueue = asyncio.create_task(broker.enqueue("q", b"x"))
            await asyncio.to_thread(store.is_syncing.wait, PATIENCE_S)
            close = asyncio.create_task(stream.close())
            await asyncio.sleep(0)
            store.may_sync.set()
            message_id = await enqueue
            await close
            view = await broker.get("q", message_id)
            assert (view.failures, view.status) == (0, "waiting")

    run(main())


def test_threads_leaving_a_stream_while_a_commit_is_on_its_way_fails_nothing_unseen() -> None:
    """The same for threads."""
    store = MoodyStore()
    with Broker(engine_on(store)) as broker:
        broker.create_queue("q", POLICY)
        stream = broker.consume("q", credit=5).__enter__()
        store.may_sync.clear()
        store.is_syncing.clear()
        enqueue = Background(lambda: broker.enqueue("q", b"x"))
        assert store.is_syncing.wait(PATIENCE_S)
        close = Background(stream.close)
        while not stream._is_over:
            pass
        store.may_sync.set()
        message_id = enqueue.get()
        close.get()
        view = broker.get("q", message_id)
        assert (view.failures, view.status) == (0, "waiting")


def test_several_threads_iterate_one_stream() -> None:
    """Each message comes to one of them; closing the stream ends all."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q", POLICY)
        seen: list[bytes] = []
        done = threading.Event()
        with broker.consume("q", credit=4) as stream:

            def work() -> None:
                for delivery in stream:
                    seen.append(delivery.payload)
                    broker.ack(delivery)
                    if len(seen) == 20:
                        done.set()

            workers = [Background(work) for _ in range(4)]
            broker.enqueue_many("q", TWENTY)
            assert done.wait(PATIENCE_S)
        for worker in workers:
            worker.get()
        assert sorted(seen) == sorted(message.payload for message in TWENTY)


def test_a_deleted_queue_ends_its_streams() -> None:
    """Whoever iterates is let go, in threads and in a loop."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q")
        with broker.consume("q") as stream:
            iterating = Background(lambda: list(stream))
            broker.delete_queue("q")
            assert iterating.get() == []

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q")
            async with broker.consume("q") as stream:
                iterating = asyncio.create_task(anext(stream, None))
                await asyncio.sleep(0)
                await broker.delete_queue("q")
                assert await iterating is None

    run(main())


def test_a_cancelled_lease_loses_nothing() -> None:
    """Cancelled while it waits, and cancelled after its message was there but before it could take it."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q", {"max_attempts": 1})
            waiting = asyncio.create_task(broker.lease("q", wait_ms=3_600_000))
            await broker.queues()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            late = asyncio.create_task(broker.lease("q", wait_ms=3_600_000))
            await broker.queues()
            broker._engine.taps.append(lambda *_: (late.cancel(), None)[1])
            message_id = await broker.enqueue("q", b"x")
            with pytest.raises(asyncio.CancelledError):
                await late
            (delivery,) = await broker.lease("q", wait_ms=20_000)
            assert (delivery.id, delivery.failures) == (message_id, 0)

    run(main())


def test_a_lease_that_times_out_from_outside_loses_nothing() -> None:
    """``asyncio.timeout`` around a lease, again and again, while messages come: all are acked once in the end."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q", {"max_attempts": 1})
            sent: set[str] = set()
            seen: list[str] = []
            while len(seen) < 50:
                if len(sent) < 50:
                    sent.add(await broker.enqueue("q", b"x"))
                try:
                    async with asyncio.timeout(0):
                        deliveries = await broker.lease("q", wait_ms=3_600_000)
                except TimeoutError:
                    deliveries = await broker.lease("q") if len(sent) % 3 else []
                for delivery in deliveries:
                    await broker.ack(delivery)
                    seen.append(delivery.id)
            assert set(seen) == sent

    run(main())


def test_a_stream_creates_the_queue_of_a_template() -> None:
    """A consumer that attaches before the first producer gets what is enqueued later."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.set_queue_template("jobs.*", auto_create=True)
        with broker.consume("jobs.mail", credit=5) as stream:
            broker.enqueue("jobs.mail", b"x")
            assert next(stream).payload == b"x"
        with pytest.raises(QueueNotFound), broker.consume("other") as stream:
            next(stream)
