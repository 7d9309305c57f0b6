"""The broker for threads and for asyncio, on real threads, loops and stores: the same verbs, and nothing lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from fairlane.assembly import BrokerConfig, open_async_broker, open_broker
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.frontends.threads import Broker
from fairlane.errors import Closed, InvalidArgument, LeaseMismatch, QueueNotFound
from fairlane.model.message import NewMessage
from tests.kit.waiting import PATIENCE_S
from tests.unit.broker.brokers import Background, engine_on, run, store_of

stores = pytest.mark.parametrize("kind", ["memory", "folder"])


def test_the_verbs_of_both_faces_are_made_from_one_source() -> None:
    """``tools/sync_verbs.py --check`` finds nothing to do."""
    root = Path(__file__).parents[3]
    command = [sys.executable, str(root / "tools" / "sync_verbs.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@stores
def test_threads_lifecycle(kind: str, tmp_path: Path) -> None:
    """Enqueue, lease, extend, state, nack, ack, dead letters and config, and what is left is there after a reopen."""
    config = BrokerConfig(path=None if kind == "memory" else tmp_path / "data")
    with open_broker(config) as broker:
        broker.create_queue("q", {"backoff_ms": 0, "max_attempts": 2})
        first, second = broker.enqueue_many("q", [NewMessage(payload=b"1"), NewMessage(payload=b"2")])
        (one,) = broker.lease("q", owner="me")
        assert (one.id, one.payload) == (first, b"1")
        assert broker.extend(one, visibility_ms=60_000) > one.expires_ms
        etag = broker.set_state(one, b"state", etag=None)
        assert broker.get_state("q", one.id) == (b"state", etag)
        broker.nack(one, error="no", delay_ms=0)
        with pytest.raises(LeaseMismatch):
            broker.ack(one)
        for delivery in broker.lease("q", 9):
            (broker.ack if delivery.id == second else broker.nack)(delivery)
        assert [view.id for view in broker.peek("q.dlq")] == [first]
        broker.set_config("a", "b")
        assert broker.explain("q.dlq", one.id).reason == "no_consumer"
    with pytest.raises(Closed):
        broker.queues()
    broker.close()
    if kind == "folder":
        with open_broker(config) as broker:
            assert broker.get_config("a") == "b"
            assert broker.get("q.dlq", one.id).payload == b"1"


@stores
def test_asyncio_lifecycle(kind: str, tmp_path: Path) -> None:
    """The same as for threads, awaited."""
    config = BrokerConfig(path=None if kind == "memory" else tmp_path / "data")

    async def main() -> None:
        async with await open_async_broker(config) as broker:
            await broker.create_queue("q", {"backoff_ms": 0, "max_attempts": 2})
            first, second = await broker.enqueue_many("q", [NewMessage(payload=b"1"), NewMessage(payload=b"2")])
            (one,) = await broker.lease("q", owner="me")
            assert (one.id, one.payload) == (first, b"1")
            assert await broker.extend(one, visibility_ms=60_000) > one.expires_ms
            etag = await broker.set_state(one, b"state", etag=None)
            assert await broker.get_state("q", one.id) == (b"state", etag)
            await broker.nack(one, error="no", delay_ms=0)
            with pytest.raises(LeaseMismatch):
                await broker.ack(one)
            for delivery in await broker.lease("q", 9):
                await (broker.ack(delivery) if delivery.id == second else broker.nack(delivery))
            assert [view.id for view in await broker.peek("q.dlq")] == [first]
            await broker.set_config("a", "b")
        with pytest.raises(Closed):
            await broker.queues()
        await broker.close()
        if kind == "folder":
            async with await open_async_broker(config) as broker:
                assert await broker.get_config("a") == "b"
                assert (await broker.get("q.dlq", one.id)).payload == b"1"

    run(main())


@stores
def test_eight_threads_lose_and_repeat_nothing(kind: str, tmp_path: Path) -> None:
    """Four produce and four consume a thousand messages: each is acked once, none is left."""
    with Broker(engine_on(store_of(kind, tmp_path))) as broker:
        broker.create_queue("q")
        seen: Counter[str] = Counter()
        lock = threading.Lock()

        def produce() -> list[str]:
            return [broker.enqueue("q", b"x", fairness_key=f"k{n % 5}") for n in range(250)]

        def consume() -> None:
            while deliveries := broker.lease("q", 7, wait_ms=500):
                assert broker.ack_many("q", deliveries) == [None] * len(deliveries)
                with lock:
                    seen.update(delivery.id for delivery in deliveries)

        consumers = [Background(consume) for _ in range(4)]
        producers = [Background(produce) for _ in range(4)]
        sent = [message_id for producer in producers for message_id in producer.get()]
        for consumer in consumers:
            consumer.get()
        assert seen == Counter(sent)
        assert len(sent) == 1_000
        view = broker.queue("q")
        assert (view.waiting, view.leased, view.waiters) == (0, 0, 0)


@stores
@pytest.mark.parametrize("slow_sync_s", [0.0, 60.0])
def test_fifty_tasks_lose_and_repeat_nothing(kind: str, slow_sync_s: float, tmp_path: Path) -> None:
    """Syncing in the loop or always in a thread: twenty-five tasks produce, twenty-five consume, each message once."""

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of(kind, tmp_path)), slow_sync_s=slow_sync_s) as broker:
            await broker.create_queue("q")
            seen: Counter[str] = Counter()

            async def produce() -> list[str]:
                return [await broker.enqueue("q", b"x") for _ in range(20)]

            async def consume() -> None:
                while deliveries := await broker.lease("q", 5, wait_ms=500):
                    assert await broker.ack_many("q", deliveries) == [None] * len(deliveries)
                    seen.update(delivery.id for delivery in deliveries)

            tasks = [asyncio.create_task(consume()) for _ in range(25)]
            produced = await asyncio.gather(*(produce() for _ in range(25)))
            await asyncio.gather(*tasks)
            assert seen == Counter(message_id for ids in produced for message_id in ids)
            assert sum(seen.values()) == 500

    run(main())


def test_time_moves_things_by_itself() -> None:
    """Delays, expiry and the end of a wait come without anybody asking, for threads and in a loop."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        broker.create_queue("q", {"visibility_timeout_ms": 50, "backoff_ms": 0})
        broker.enqueue("q", b"x", delay_ms=30)
        assert broker.lease("q", wait_ms=20_000)[0].attempt == 1
        assert broker.lease("q", wait_ms=20_000)[0].attempt == 2
        assert broker.lease("q", visibility_ms=20_000, wait_ms=20_000)[0].attempt == 3
        assert broker.lease("q", wait_ms=20) == []

    async def main() -> None:
        async with AsyncBroker(engine_on(store_of("memory", Path()))) as broker:
            await broker.create_queue("q", {"visibility_timeout_ms": 50, "backoff_ms": 0})
            await broker.enqueue("q", b"x", delay_ms=30)
            assert (await broker.lease("q", wait_ms=20_000))[0].attempt == 1
            assert (await broker.lease("q", wait_ms=20_000))[0].attempt == 2
            assert (await broker.lease("q", visibility_ms=20_000, wait_ms=20_000))[0].attempt == 3
            assert await broker.lease("q", wait_ms=20) == []

    run(main())


def test_closing_answers_everybody_in_threads() -> None:
    """A lease, an enqueue that waits for room and a stream end when the broker is closed, without an hour's wait."""
    broker = Broker(engine_on(store_of("memory", Path())))
    broker.create_queue("q")
    broker.create_queue("full", {"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("full", b"")
    inside = threading.Event()

    def stream() -> list[bytes]:
        with broker.consume("q") as deliveries:
            inside.set()
            return [delivery.payload for delivery in deliveries]

    lease = Background(lambda: broker.lease("q", wait_ms=3_600_000))
    enqueue = Background(lambda: broker.enqueue_many("full", [NewMessage()], wait_ms=3_600_000))
    streamed = Background(stream)
    assert inside.wait(PATIENCE_S)
    while not (broker.queue("q").waiters and broker.queue("q").consumers):
        pass
    broker.close()
    assert lease.get() == []
    assert [result.code for result in enqueue.get()] == ["queue_full"]
    assert streamed.get() == []


def test_closing_answers_everybody_in_a_loop() -> None:
    """The same for tasks."""

    async def main() -> None:
        broker = AsyncBroker(engine_on(store_of("memory", Path())))
        await broker.create_queue("q")
        await broker.create_queue("full", {"waiting_max": 1, "backpressure": "wait"})
        await broker.enqueue("full", b"")

        async def stream() -> list[bytes]:
            async with broker.consume("q") as deliveries:
                return [delivery.payload async for delivery in deliveries]

        lease = asyncio.create_task(broker.lease("q", wait_ms=3_600_000))
        enqueue = asyncio.create_task(broker.enqueue_many("full", [NewMessage()], wait_ms=3_600_000))
        streamed = asyncio.create_task(stream())
        while not ((await broker.queue("q")).waiters and (await broker.queue("q")).consumers):
            pass
        await broker.close()
        assert await lease == []
        assert [getattr(result, "code", None) for result in await enqueue] == ["queue_full"]
        assert await streamed == []

    run(main())


def test_a_call_that_meets_a_closing_broker_is_answered() -> None:
    """If the broker closes just after the call has begun, it is refused and does not wait for ever."""
    broker = Broker(engine_on(store_of("memory", Path())))
    broker.create_queue("q")

    def call() -> object:
        original = broker._engine.submit

        def submit(submission: object) -> None:
            broker.close()
            original(submission)  # type: ignore[arg-type] # as it came

        broker._engine.submit = submit  # type: ignore[method-assign] # so that the race is always lost
        return broker.queues()

    with pytest.raises(Closed):
        Background(call).get()


def test_closing_a_stream_that_could_not_begin_is_nothing() -> None:
    """The stream of a queue that is not there refuses to begin; closing it then, or never beginning, is no error."""
    with Broker(engine_on(store_of("memory", Path()))) as broker:
        stream = broker.consume("no")
        with pytest.raises(QueueNotFound):
            stream.__enter__()
        stream.close()
        broker.create_queue("q")
        broker.consume("q").close()
        for bad in (0, -1, 10_001):
            with pytest.raises(InvalidArgument):
                broker.consume("q", credit=bad)
