"""Many waiters and connections at once: each is served, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.kit.waiting import PATIENCE_S

from .server_process import ROOT, ServerProcess, resident_bytes, serving

WAITERS = 1_000
CONNECTIONS = 500
ROUNDS = 2
MEGABYTE = 1 << 20
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Run a server with the queue ``orders``."""
    with serving(tmp_path / "data", "--durability", "os") as process:
        with process.stream() as stream:
            stream.call("create_queue", queue="orders", policy={"backoff_ms": 0, "backoff_jitter": 0.0})
        yield process


class HttpConnection:
    """One HTTP connection on a plain socket, for one request after another."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, **request: Any) -> Any:
        """Return the answer to a request."""
        body = json.dumps(request).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answered.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return json.loads(await self._reader.readexactly(length))


class StreamConnection:
    """One stream connection with many calls in flight."""

    def __init__(self, address: str) -> None:
        self._address = f"ws://{address}/v1/stream"
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Self:
        options: dict[str, Any] = {"subprotocols": ["fairlane.v1"], "compression": None, "max_size": None}
        self._socket: ClientConnection = await connect(self._address, **options)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            assert isinstance(message, bytes)
            kind, number, answer = decode(message)
            assert kind in (1, 2)
            self._waiting.pop(number).set_result(answer)

    async def post(self, verb: str, **request: Any) -> Any:
        """Return the answer to a call."""
        number = len(self._waiting) + 1
        while number in self._waiting:
            number += 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(encode([0, number, verb, request]))
        return await answer


async def until_waiting(ask: Callable[..., Awaitable[Any]], verb: str, count: int) -> None:
    """Wait until a number of consumers wait at the queue."""
    while (await ask(verb, queue="orders"))["waiters"] < count:
        pass


async def everybody_gets_one(server: ServerProcess, leases: list[Any], ask: Any, names: tuple[str, str]) -> None:
    """Enqueue as many messages as there are waiters, in batches, and check that each gets one."""
    stats, enqueue = names
    waiting = [asyncio.ensure_future(lease) for lease in leases]
    await until_waiting(ask, stats, len(leases))
    for at in range(0, len(leases), 100):
        await ask(enqueue, queue="orders", messages=[{"fairness_key": f"tenant-{at % 7}"}] * 100)
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*waiting)
    assert {len(answer["deliveries"]) for answer in answers} == {1}
    assert len({answer["deliveries"][0]["id"] for answer in answers}) == len(leases)
    left = await ask(stats, queue="orders")
    assert (left["waiting"], left["leased"], left["waiters"]) == (0, len(leases), 0)
    assert resident_bytes(server) < 300 * MEGABYTE


def test_a_thousand_long_polls_on_as_many_connections_get_one_message_each(server: ServerProcess) -> None:
    """Each of a thousand waiting HTTP requests gets exactly one message."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(HttpConnection(server.address)) for _ in range(WAITERS)]
            other = await stack.enter_async_context(HttpConnection(server.address))
            leases = [each.post("queue/dequeue", queue="orders", wait_ms=60_000) for each in connections]
            await everybody_gets_one(server, leases, other.post, ("queue/stats", "queue/enqueue"))

    asyncio.run(main())


def test_a_thousand_waiting_leases_on_ten_connections_get_one_message_each(server: ServerProcess) -> None:
    """Each of a hundred calls on each of ten stream connections gets exactly one message."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(StreamConnection(server.address)) for _ in range(10)]
            leases = [
                each.post("lease", queue="orders", wait_ms=60_000) for each in connections for _ in range(WAITERS // 10)
            ]
            other = await stack.enter_async_context(StreamConnection(server.address))
            await everybody_gets_one(server, leases, other.post, ("stats", "enqueue"))

    asyncio.run(main())


def test_five_hundred_connections_work_at_once(server: ServerProcess) -> None:
    """Half over HTTP, half over the stream, all enqueue, lease and ack at the same time: every message once."""
    seen: Counter[str] = Counter()

    async def work(ask: Any, names: tuple[str, str, str]) -> None:
        enqueue, lease, ack = names
        for _ in range(ROUNDS):
            await ask(enqueue, queue="orders", messages=[{}])
            (delivery,) = (await ask(lease, queue="orders", wait_ms=60_000))["deliveries"]
            seen[delivery["id"]] += 1
            receipt = {"id": delivery["id"], "token": delivery["token"]}
            assert await ask(ack, queue="orders", receipts=[receipt]) == {"results": [{}]}

    async def main() -> None:
        async with AsyncExitStack() as stack:
            http = [await stack.enter_async_context(HttpConnection(server.address)) for _ in range(CONNECTIONS // 2)]
            streams = [
                await stack.enter_async_context(StreamConnection(server.address)) for _ in range(CONNECTIONS // 2)
            ]
            jobs = [work(each.post, ("queue/enqueue", "queue/dequeue", "queue/ack")) for each in http]
            jobs += [work(each.post, ("enqueue", "lease", "ack")) for each in streams]
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*jobs)
            assert (await http[0].post("queue/stats", queue="orders"))["size"] == 0

    asyncio.run(main())
    assert len(seen) == ROUNDS * CONNECTIONS
    assert set(seen.values()) == {1}
    assert resident_bytes(server) < 300 * MEGABYTE


# --------------------------------------------------------------------------------- those who read slowly or are gone


def test_clients_that_read_nothing_do_not_affect_others(server: ServerProcess) -> None:
    """Each gets no more than its credit, others get theirs, and everything arrives once it is read."""
    slow = [server.stream() for _ in range(4)]
    with server.stream() as quick:
        for stream in slow:
            stream.send("consume", queue="orders", credit=4)
            assert stream.frame()[0] == 1
        before = resident_bytes(server)
        for _ in range(4):
            quick.call("enqueue", queue="orders", messages=[{"payload": bytes(MEGABYTE)} for _ in range(10)])
        stats = quick.call("stats", queue="orders")
        assert (stats["leased"], stats["waiting"]) == (16, 24)
        for _ in range(24):
            (delivery,) = quick.call("lease", queue="orders")["deliveries"]
            receipt = {"id": delivery["id"], "token": delivery["token"]}
            assert quick.call("ack", queue="orders", receipts=[receipt]) == {"results": [{}]}
        assert resident_bytes(server) - before < 200 * MEGABYTE
        assert len({delivery["id"] for stream in slow for delivery in stream.deliveries(4)}) == 16
    for stream in slow:
        stream.close()


def test_answers_are_not_built_while_the_client_does_not_read(server: ServerProcess) -> None:
    """Of a hundred calls for two megabytes each, few are answered until the client reads; then all."""
    with server.stream() as greedy, server.stream() as quick:
        payload = bytes(2 * MEGABYTE)
        (enqueued,) = quick.call("enqueue", queue="orders", messages=[{"payload": payload}])["results"]
        before = resident_bytes(server)
        look = {"queue": "orders", "id": enqueued["id"]}
        greedy.socket.send(encode([[0, number, "get", look] for number in range(1, 101)]))
        for _ in range(300):
            assert quick.call("stats", queue="orders")["waiting"] == 1
        assert resident_bytes(server) - before < 100 * MEGABYTE
        answered: list[int] = []
        while len(answered) < 100:
            message = greedy.socket.recv(timeout=PATIENCE_S)
            assert isinstance(message, bytes)
            assert len(message) < 10 * MEGABYTE
            answered += [number for _, number, _ in decode(message)]
        assert sorted(answered) == list(range(1, 101))


CLIENT = """
import asyncio, sys
from fairlane.client import AsyncClient

async def main():
    async with AsyncClient(sys.argv[1]) as client, client.consume("orders", credit=5, visibility_ms=1000) as stream:
        async for message in stream:
            print(message.id, flush=True)
            sys.stdin.readline()
            print(await client.ack_many("orders", [message]), flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_messages_of_a_vanished_process_go_to_others(server: ServerProcess, number: int) -> None:
    """A suspended process keeps connection and messages until their leases expire; a dead one keeps neither."""
    command = [sys.executable, "-c", CLIENT, f"ws://{server.address}"]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client,
        server.stream() as stream,
    ):
        assert client.stdout is not None
        assert client.stdin is not None
        ids = [result["id"] for result in stream.call("enqueue", queue="orders", messages=[{}] * 5)["results"]]
        assert client.stdout.readline().strip() == ids[0]
        os.kill(client.pid, number)
        stream.send("consume", queue="orders")
        assert stream.frame()[0] == 1
        deliveries = stream.deliveries(5)
        assert sorted(delivery["id"] for delivery in deliveries) == sorted(ids)
        receipts = [{"id": delivery["id"], "token": delivery["token"]} for delivery in deliveries]
        assert stream.call("ack", queue="orders", receipts=receipts) == {"results": [{}] * 5}
        if number == signal.SIGSTOP:
            os.kill(client.pid, signal.SIGCONT)
            client.stdin.write("\n")
            client.stdin.flush()
            assert "MessageNotFound" in client.stdout.readline()
        client.kill()
