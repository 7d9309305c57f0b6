"""Redis Streams with ``appendfsync always``, as a baseline for the server, where a Redis is installed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import redis.asyncio as redis

BATCH = 100
STREAM, GROUP = "work", "workers"
Client: TypeAlias = Any
"""A client of redis-py, whose methods are typed as if they might not be awaited."""


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextmanager
def server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--dir", folder, "--appendonly", "yes", "--appendfsync", "always"]
        command = ["redis-server", *options, "--save", "", "--bind", "127.0.0.1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            yield port
            process.terminate()


async def connected(port: int) -> Client:
    client = redis.Redis(port=port)
    for _ in range(200):
        try:
            await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.ConnectionError:
            await asyncio.sleep(0.05)
        else:
            return client
    raise TimeoutError("Redis does not answer.")


async def add_batches(client: Client, payload: bytes, count: int) -> float:
    async def add() -> None:
        for _ in range(0, count // 8, BATCH):
            async with client.pipeline(transaction=False) as pipeline:
                for _ in range(BATCH):
                    pipeline.xadd(STREAM, {"p": payload})
                await pipeline.execute()

    begun = time.perf_counter()
    await asyncio.gather(*(add() for _ in range(8)))
    return count / (time.perf_counter() - begun)


async def take_batches(client: Client, count: int) -> float:
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

    begun = time.perf_counter()
    await asyncio.gather(*(take() for _ in range(8)))
    return count / (time.perf_counter() - begun)


async def add_one_at_a_time(client: Client, payload: bytes, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        await client.xadd(STREAM, {"p": payload})
    return count / (time.perf_counter() - begun)


def rates(payload: bytes, count: int) -> dict[str, float]:
    """Return the messages per second that Redis accepts, and delivers and acknowledges."""

    async def once(port: int) -> dict[str, float]:
        client = await connected(port)
        try:
            return {
                f"Redis Streams: XADD, pipelines of {BATCH}": await add_batches(client, payload, count),
                f"Redis Streams: XREADGROUP, XACK, XDEL by {BATCH}": await take_batches(client, count),
                "Redis Streams: XADD, one at a time": await add_one_at_a_time(client, payload, count // 20),
            }
        finally:
            await client.aclose()

    with server() as port:
        return asyncio.run(once(port))
