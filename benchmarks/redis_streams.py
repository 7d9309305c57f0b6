"""Redis Streams with ``appendfsync always``, as a baseline for the server, where a Redis is installed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias

import redis
import redis.asyncio

from benchmarks.meter import Measured, Meter

BATCH = 100
STREAM, GROUP = "work", "workers"
Client: TypeAlias = Any
"""A client of redis-py, whose methods are typed as if they might not be awaited."""
AsyncWork = Callable[[Client, bytes, Meter, int], Awaitable[None]]
Work = Callable[[int, bytes, Meter, int], Measured]


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextmanager
def server(*, fsync: Literal["always", "everysec"] = "always") -> Iterator[tuple[int, int]]:
    """Start a server on a fresh folder. Yields its port and the id of its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--dir", folder, "--appendonly", "yes", "--appendfsync", fsync]
        command = ["redis-server", *options, "--save", "", "--bind", "127.0.0.1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(port)
                yield port, process.pid
            finally:  # the end of the block waits for the process
                process.terminate()


def _wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)  # noqa: TID251 - another program, which tells nothing else
    raise TimeoutError("Redis does not answer.")


async def connected(port: int) -> Client:
    client: Client = redis.asyncio.Redis(port=port)
    for _ in range(200):
        try:
            await client.delete(STREAM)
            await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.ConnectionError:
            await asyncio.sleep(0.05)
        else:
            return client
    raise TimeoutError("Redis does not answer.")


def asynchronous(work: AsyncWork) -> Work:
    """Return a work for the asyncio client as a plain function."""

    def run(port: int, payload: bytes, meter: Meter, count: int) -> Measured:
        async def once() -> None:
            client = await connected(port)
            await work(client, payload, meter, count)
            await client.aclose()

        asyncio.run(once())
        return meter.measured(count)

    return run


async def add_batches(client: Client, payload: bytes, meter: Meter, count: int) -> None:
    async def add() -> None:
        for _ in range(0, count // 8, BATCH):
            async with client.pipeline(transaction=False) as pipeline:
                for _ in range(BATCH):
                    pipeline.xadd(STREAM, {"p": payload})
                await pipeline.execute()

    with meter:
        await asyncio.gather(*(add() for _ in range(8)))


async def take_batches(client: Client, payload: bytes, meter: Meter, count: int) -> None:
    await add_batches(client, payload, meter, count)
    left = [count]

    async def take() -> None:
        while left[0] > 0:
            left[0] -= BATCH
            [[_, entries]] = await client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=BATCH)
            ids = [entry_id for entry_id, _ in entries]
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.xack(STREAM, GROUP, *ids)
                pipeline.xdel(STREAM, *ids)
                await pipeline.execute()

    with meter:
        await asyncio.gather(*(take() for _ in range(8)))


async def add_one_at_a_time(client: Client, payload: bytes, meter: Meter, count: int) -> None:
    with meter:
        for _ in range(count):
            await client.xadd(STREAM, {"p": payload})


def add_one_at_a_time_blocking(port: int, payload: bytes, meter: Meter, count: int) -> Measured:
    asyncio.run(_prepare(port))
    with redis.Redis(port=port) as client, meter:
        for _ in range(count):
            client.xadd(STREAM, {"p": payload})
    return meter.measured(count)


async def _prepare(port: int) -> None:
    await (await connected(port)).aclose()


def latency(port: int, payload: bytes, count: int) -> list[float]:
    """Return the latency of each entry from XADD to the reader, in ms, at 200 a second; see ``server.latency``."""

    async def once() -> list[float]:
        client, reader = await connected(port), redis.asyncio.Redis(port=port)
        sent: dict[bytes, float] = {}
        receiving = asyncio.create_task(_receive(reader, sent, count))
        begun = time.perf_counter()
        for at in range(count):
            await asyncio.sleep(max(0.0, begun + 0.2 + at / 200 - time.perf_counter()))
            entry = at.to_bytes(8) + payload[8:]
            sent[entry] = time.perf_counter()
            asyncio.ensure_future(client.xadd(STREAM, {"p": entry}))  # noqa: RUF006 - its entry is awaited
        waits = await receiving
        await client.aclose()
        await reader.aclose()
        return sorted(waits)

    return asyncio.run(once())


async def _receive(reader: Client, sent: dict[bytes, float], count: int) -> list[float]:
    waits: list[float] = []
    while len(waits) < count:
        for _, entries in await reader.xreadgroup(GROUP, "one", {STREAM: ">"}, count=32, block=5_000):
            now = time.perf_counter()
            waits += [(now - sent[fields[b"p"]]) * 1000 for _, fields in entries]
            ids = [entry_id for entry_id, _ in entries]
            async with reader.pipeline(transaction=False) as pipeline:
                pipeline.xack(STREAM, GROUP, *ids)
                pipeline.xdel(STREAM, *ids)
                await pipeline.execute()
    return waits
