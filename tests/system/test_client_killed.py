"""Clients of servers that are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fairlane.client import AsyncClient, AsyncStream, Client, NewMessage, Retries
from fairlane.errors import (
    Disconnected,
    FairlaneError,
    InvalidArgument,
    LeaseMismatch,
    MessageNotFound,
    PayloadTooLarge,
    Unauthenticated,
)
from tests.unit.client.serving import ServerProcess, free_port

QUICK = Retries(patience_s=60.0, first_s=0.01, longest_s=0.1)
HASTY = Retries(patience_s=0.05, first_s=0.01)


def freeze(server: ServerProcess) -> None:
    """Suspend a server, so that requests stay unanswered."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)


async def handle_until(stream: AsyncStream, wanted: set[bytes]) -> dict[bytes, str]:
    """Ack deliveries until all expected ones have come; return the ids by payload."""
    seen: dict[bytes, str] = {}
    while not wanted <= seen.keys():
        message = await anext(stream)
        try:
            await message.ack()
        except (Disconnected, LeaseMismatch, MessageNotFound):
            continue  # it comes again, or was acked before the answer was lost
        finally:
            assert seen.setdefault(message.payload, message.id) == message.id, "enqueued twice"
    return seen


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """Through three kills under load every message sent is handled, and none was enqueued twice."""
    payloads = {b"%d" % number for number in range(1_500)}

    async def produce(client: AsyncClient, server: ServerProcess) -> None:
        async with client.producer("jobs", batch=20, linger_ms=1, in_flight=4) as producer:
            for number, payload in enumerate(sorted(payloads)):
                reply = await producer.send(payload)
                if number % 400 == 399:
                    await reply
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=QUICK) as sender, AsyncClient(server.url, retries=QUICK) as taker:
            await sender.create_queue("jobs", {"backoff_ms": 0, "max_attempts": 0, "visibility_timeout_ms": 500})
            async with taker.consume("jobs", credit=64) as stream:
                _, seen = await asyncio.gather(produce(sender, server), handle_until(stream, payloads))
            assert len(set(seen.values())) == len(payloads)

    with ServerProcess(tmp_path) as server:
        asyncio.run(main(server))


def test_only_what_is_safe_is_repeated(tmp_path: Path) -> None:
    """Without an answer an enqueue and a read are repeated; a purge raises, since its outcome is unknown."""

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=QUICK) as client:
            await client.create_queue("jobs")
            await asyncio.to_thread(freeze, server)
            one = asyncio.ensure_future(client.enqueue("jobs", b"x"))
            many = asyncio.ensure_future(client.enqueue_many("jobs", [NewMessage()]))
            read = asyncio.ensure_future(client.queue("jobs"))
            unsafe = asyncio.ensure_future(client.purge("jobs"))
            await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with pytest.raises(Disconnected):
                await unsafe
            await asyncio.to_thread(server.start)
            assert (await read).name == "jobs"
            assert {await one, *await many} == {view.id for view in await client.peek("jobs")}

    with ServerProcess(tmp_path) as server:
        asyncio.run(main(server))


def test_without_dedup_ids_an_enqueue_is_not_repeated(tmp_path: Path) -> None:
    """With dedup=False an enqueue without an answer raises, unless its message has a dedup id."""

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=QUICK, dedup=False) as client:
            await client.create_queue("jobs")
            await asyncio.to_thread(freeze, server)
            asked = [
                asyncio.ensure_future(client.enqueue_many("jobs", [NewMessage(dedup_id=name)])) for name in (None, "a")
            ]
            await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with pytest.raises(Disconnected):
                await asked[0]
            await asyncio.to_thread(server.start)
            assert [view.id for view in await client.peek("jobs")][-1:] == await asked[1]

    with ServerProcess(tmp_path) as server:
        asyncio.run(main(server))


def test_a_server_that_goes_down_in_good_order_loses_no_work(tmp_path: Path) -> None:
    """After SIGTERM running messages can still be acknowledged, unseen ones go back, and the client reconnects."""

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=QUICK) as client:
            await client.create_queue("jobs")
            await client.enqueue_many("jobs", [NewMessage(payload=b"%d" % number) for number in range(10)])
            async with client.consume("jobs") as stream:
                message = await anext(stream)
                ending = asyncio.ensure_future(asyncio.to_thread(server.terminate))
                while not stream.is_interrupted:
                    await client.queues()
                await message.ack()
                assert await ending == 0
                await asyncio.to_thread(server.start)
                others = [await anext(stream) for _ in range(9)]
                assert [other.failures for other in others] == [0] * 9
                assert {other.payload for other in others} == {b"%d" % number for number in range(1, 10)}

    with ServerProcess(tmp_path) as server:
        asyncio.run(main(server))


def test_patience_ends() -> None:
    """When no server comes back in time, calls and streams raise."""

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=HASTY) as client:
            await client.create_queue("jobs")
            async with client.consume("jobs") as stream:
                await asyncio.to_thread(server.kill)
                with pytest.raises(Disconnected):
                    await client.queues()
                with pytest.raises(Disconnected):
                    await anext(stream)

    with ServerProcess() as server:
        asyncio.run(main(server))


def test_no_answer_in_time_is_an_error() -> None:
    """A call to a server that does not answer fails after the timeout, although the connection stands."""

    async def main(server: ServerProcess) -> None:
        async with AsyncClient(server.url, retries=HASTY, timeout=0.1) as client:
            await asyncio.to_thread(freeze, server)
            with pytest.raises(Disconnected, match="did not answer 'purge' in time"):
                await client.purge("jobs")
            await asyncio.to_thread(server.kill)

    with ServerProcess() as server:
        asyncio.run(main(server))


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host", "ws:///path", ""])
def test_an_address_must_be_one(url: str) -> None:
    """An invalid server address is refused before anything is sent."""
    with pytest.raises(InvalidArgument):
        Client(url)


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    """The first connection is not retried, so that a wrong address fails at once."""
    with pytest.raises(Disconnected, match="Cannot connect to"):
        Client(f"http://127.0.0.1:{free_port()}").connect()


def test_keys_let_in(tmp_path: Path) -> None:
    """A server with authentication accepts a client with an API key, and refuses one without."""
    with ServerProcess(tmp_path, "--auth", "true") as server:
        key = (tmp_path / "admin.key").read_text().strip()
        with Client(server.url, api_key=key) as client:
            client.create_queue("jobs")
        for wrong in (None, "fl_wrong"):
            with pytest.raises(Unauthenticated):
                Client(server.url, api_key=wrong).connect()


def test_a_closed_client_answers_nothing() -> None:
    """A closed client refuses calls instead of retrying them."""

    async def main(server: ServerProcess) -> None:
        client = AsyncClient(server.url)
        async with client:
            await client.create_queue("jobs")
        for call in (client.queues(), client.enqueue("jobs", b"")):
            with pytest.raises(FairlaneError, match="is closed"):
                await call

    with ServerProcess() as server:
        asyncio.run(main(server))


def test_a_request_too_large_for_the_server_harms_nobody_else() -> None:
    """A batch larger than a request may be is refused at once, and the connection stays open."""
    with ServerProcess() as server, Client(server.url) as client:
        client.create_queue("jobs")
        with pytest.raises(PayloadTooLarge, match=r"The request has \d+ bytes"):
            client.enqueue_many("jobs", [NewMessage(payload=bytes(1 << 20))] * 30)
        assert client.queue("jobs").waiting == 0


def test_payloads_of_any_size_the_server_takes_go_through() -> None:
    """Sixteen megabytes arrive as they were sent, beside a crowd of small ones."""
    large = bytes(range(256)) * (1 << 16)
    with ServerProcess() as server, Client(server.url) as client:
        client.create_queue("jobs")
        client.enqueue("jobs", large)
        with client.consume("jobs") as stream:
            message = next(stream)
            assert message.payload == large
            message.ack()
