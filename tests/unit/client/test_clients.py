"""What clients do beside their verbs, with a broker in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fairlane.client import AsyncClient, Client, NewMessage, Retries
from fairlane.embedded import EmbeddedTransport
from fairlane.errors import (
    Closed,
    FairlaneError,
    InvalidArgument,
    LeaseMismatch,
    QueueFull,
    StoreFailed,
    WrongEventLoop,
)
from fairlane.verbs.verb import Shape

QUICK = Retries(patience_s=60.0, first_s=0.0001, longest_s=0.0001)


class Faulty(EmbeddedTransport):
    """A transport whose next calls fail; what they asked is done or not."""

    def __init__(self, faults: int, *, is_done: bool) -> None:
        super().__init__()
        self.faults = faults
        self.is_done = is_done
        self.calls: list[str] = []

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:
        self.calls.append(verb)
        if verb not in ("create_queue", "stats") and self.faults:
            self.faults -= 1
            if self.is_done:
                await super().call(verb, request, wait_ms=wait_ms)
            raise StoreFailed("A bad day.")
        return await super().call(verb, request, wait_ms=wait_ms)


def run(scenario: Callable[[AsyncClient], Awaitable[None]], transport: EmbeddedTransport | None = None) -> None:
    """Run a scenario with a client and a queue."""

    async def main() -> None:
        async with AsyncClient(transport or EmbeddedTransport(), retries=QUICK) as client:
            await client.create_queue("jobs", {"backoff_ms": 0})
            await scenario(client)

    asyncio.run(main())


@pytest.mark.parametrize("is_done", [False, True])
def test_an_enqueue_is_repeated_until_it_is_answered(is_done: bool) -> None:
    """A message whose enqueue fails three times, done or not, is there once in the end."""

    async def scenario(client: AsyncClient) -> None:
        await client.enqueue("jobs", b"x")
        assert (await client.queue("jobs")).waiting == 1

    run(scenario, Faulty(3, is_done=is_done))


def test_what_is_not_safe_is_asked_once() -> None:
    """A purge that fails raises at once, and an ack does, too."""

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(StoreFailed):
            await client.purge("jobs")
        assert transport.calls.count("purge") == 1

    transport = Faulty(1, is_done=False)
    run(scenario, transport)


def test_waits_grow_and_differ() -> None:
    """Each wait is at most twice the one before it could be, none is above the longest, and no two series are alike."""
    retries = Retries(first_s=1.0, factor=2.0, longest_s=5.0)
    series = [list(islice(retries.waits_s(), 5)) for _ in range(2)]
    most = [1.0, 2.0, 4.0, 5.0, 5.0]
    assert all(limit / 2 <= wait <= limit for waits in series for wait, limit in zip(waits, most, strict=True))
    assert series[0] != series[1]


def test_a_stream_is_opened_once_for_many_tasks() -> None:
    """Tasks that iterate a stream without entering it share it, within its credit."""

    async def scenario(client: AsyncClient) -> None:
        await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % number) for number in range(9)])
        stream = client.consume("jobs", credit=3)
        messages = await asyncio.gather(*(anext(stream) for _ in range(3)))
        view = await client.queue("jobs")
        assert (view.leased, view.consumers) == (3, 1)
        assert len({message.id for message in messages}) == 3
        await stream.close()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(scenario)


def test_a_block_keeps_the_exception_of_its_inside() -> None:
    """If the lease is lost, an exception from inside the block wins; without one the loss is raised."""

    async def scenario(client: AsyncClient) -> None:
        await client.enqueue("jobs", b"x")
        (message,) = await client.lease("jobs")
        await client.nack(message, intent="defer", delay_ms=60_000)
        with pytest.raises(ZeroDivisionError):
            async with message:
                raise ZeroDivisionError
        (stale,) = [type(message)(message.delivery, client)]
        with pytest.raises(LeaseMismatch):
            async with stale:
                pass
        assert stale.is_settled

    run(scenario)


def test_a_producer_is_bounded() -> None:
    """With two batches of two buffered and under way, the next send waits until there is room."""

    async def scenario(client: AsyncClient) -> None:
        async with client.producer("jobs", batch=2, linger_ms=60_000, in_flight=1) as producer:
            sent = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(20)]
            await asyncio.sleep(0)
            assert not all(each.done() for each in sent)
            replies = await asyncio.gather(*sent)
        assert len({await reply for reply in replies}) == 20
        with pytest.raises(Closed):
            await producer.send(b"late")

    run(scenario)


def test_a_fault_of_on_failure_hides_nothing() -> None:
    """A callback that raises is reported to the loop, and every message is still reported."""

    async def scenario(client: AsyncClient) -> None:
        await client.create_queue("small", {"waiting_max": 1})
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        def on_failure(message: NewMessage, _: FairlaneError) -> None:
            raise KeyError(message.payload)

        async with client.producer("small", on_failure=on_failure) as producer:
            replies = [await producer.send(b"%d" % number) for number in range(3)]
        assert [type(reply.exception()) for reply in replies] == [type(None), QueueFull, QueueFull]
        assert [context["message"] for context in told] == ["on_failure raised"] * 2

    run(scenario)


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 10_001}, {"linger_ms": -1}, {"in_flight": 0}])
def test_a_producer_takes_sensible_options(options: dict[str, int]) -> None:
    """A producer that could never send is refused."""

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(InvalidArgument):
            client.producer("jobs", **options)  # type: ignore[arg-type]

    run(scenario)


def test_costs_are_told_for_each_or_none() -> None:
    """Acks with too few costs are refused before anything is asked."""

    async def scenario(client: AsyncClient) -> None:
        await client.enqueue("jobs", b"x")
        with pytest.raises(InvalidArgument):
            await client.ack_many("jobs", await client.lease("jobs"), costs=[])

    run(scenario)


def test_an_embedded_client_keeps_its_data(tmp_path: Path) -> None:
    """What is enqueued to a broker in a folder is there for the next client."""
    with Client.embedded(tmp_path) as client:
        client.create_queue("jobs")
        message_id = client.enqueue("jobs", b"x")
    with Client.embedded(tmp_path) as client:
        assert [view.id for view in client.peek("jobs")] == [message_id]


def test_a_client_for_threads_must_be_open() -> None:
    """Before it is connected and after it is closed it refuses; closing twice does no harm."""
    client = Client.embedded()
    with pytest.raises(Closed):
        client.queues()
    with client:
        assert client.queues() == []
    client.close()
    with pytest.raises(Closed):
        client.queues()


def test_a_callback_can_not_wait_for_its_own_thread() -> None:
    """A call from ``on_failure`` in the client's thread is refused rather than waiting for ever."""
    refused: list[type[BaseException]] = []

    def on_failure(message: NewMessage, _: FairlaneError) -> None:
        try:
            client.enqueue("jobs", message.payload)
        except WrongEventLoop as wrong:
            refused.append(type(wrong))

    with Client.embedded() as client, client.producer("none", on_failure=on_failure) as producer:
        producer.send(b"x")
        producer.flush()
    assert refused == [WrongEventLoop]
