"""A real server and a Python client in two processes on loopback: ``python -m benchmarks.server [--quick] [--check]``.

Payloads have 1 KB, a message counts after it is synced to disk, and ten tenants share the queue. The baselines of the
same run are a bare ASGI echo on the same web server, and Redis Streams with ``appendfsync always`` if Redis is
installed. Rates are per second of wall time, the best of several runs; on a shared machine ratios say more.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvloop
from websockets.asyncio.client import connect

from benchmarks import redis_streams
from benchmarks.report import Options, Report, parse_options
from fairlane.client import AsyncClient, NewMessage
from fairlane.worker import Worker

BATCH = 100
PAYLOAD = random.Random(1).randbytes(1024)
KEYS = [f"tenant-{number}" for number in range(10)]
MESSAGES = [NewMessage(payload=PAYLOAD, fairness_key=KEYS[at % 10]) for at in range(BATCH)]
ADDRESS = re.compile(r"listens on (http://\S+)")
Work = Callable[[AsyncClient, int], Awaitable[float]]


def main() -> None:
    options = parse_options(__doc__ or "")
    report = Report(options)
    uvloop.install()
    compare_rates(report, options)
    measure_latency(report, options)
    report.finish()


# ------------------------------------------------------------------------------------------------------------ processes


@contextmanager
def server_process() -> Iterator[tuple[str, int]]:
    """Start a server on a fresh folder. Yields its address and the id of its process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fairlane.server", "--port", "0", "--data", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            found = next(match for line in process.stdout if (match := ADDRESS.search(line)) is not None)
            try:
                yield found.group(1), process.pid
            finally:
                process.terminate()
                process.stdout.close()


@contextmanager
def server() -> Iterator[str]:
    with server_process() as (address, _):
        yield address


ECHO = """
async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "bytes": event["bytes"]})
import uvicorn
uvicorn.run(app, port=PORT, log_level="error", lifespan="off", ws_per_message_deflate=False, loop="uvloop")
"""


@contextmanager
def echo() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", ECHO.replace("PORT", str(port))]) as process:
        yield f"ws://127.0.0.1:{port}"
        process.terminate()


@asynccontextmanager
async def fresh_client() -> AsyncIterator[AsyncClient]:
    with server() as address:
        async with AsyncClient(address) as client:
            await client.create_queue("work")
            yield client


# --------------------------------------------------------------------------------------------------------------- works


async def enqueue_batches(client: AsyncClient, count: int) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(_produce(client, count // 8) for _ in range(8)))
    return count / (time.perf_counter() - begun)


async def _produce(client: AsyncClient, count: int) -> None:
    for _ in range(0, count, BATCH):
        results = await client.enqueue_many("work", MESSAGES)
        assert all(type(result) is str for result in results)


async def _drain(client: AsyncClient, left: list[int]) -> None:
    while left[0] > 0:
        left[0] -= BATCH
        messages = await client.lease("work", BATCH, wait_ms=5_000)
        left[0] += BATCH - len(messages)
        results = await client.ack_many("work", messages)
        assert results.count(None) == len(messages)


async def lease_and_ack_batches(client: AsyncClient, count: int) -> float:
    await enqueue_batches(client, count)
    begun = time.perf_counter()
    await asyncio.gather(*(_drain(client, left) for left in [[count]] for _ in range(8)))
    return count / (time.perf_counter() - begun)


async def both_at_once(client: AsyncClient, count: int) -> float:
    begun = time.perf_counter()
    producers = [_produce(client, count // 4) for _ in range(4)]
    await asyncio.gather(*producers, *(_drain(client, left) for left in [[count]] for _ in range(4)))
    return count / (time.perf_counter() - begun)


async def one_at_a_time(client: AsyncClient, count: int, *, in_flight: int = 1) -> float:
    async def send() -> None:
        for _ in range(count // in_flight):
            await client.enqueue("work", MESSAGES[0])

    begun = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(in_flight)))
    return count / (time.perf_counter() - begun)


async def consume_one_by_one(client: AsyncClient, count: int) -> float:
    await enqueue_batches(client, count)
    begun = time.perf_counter()
    done = 0
    async with client.consume("work", credit=1_000) as stream:
        async for message in stream:
            client.ack_soon(message)
            done += 1
            if done == count:
                break
    assert not await client.flush()
    return count / (time.perf_counter() - begun)


async def work_with_handlers(client: AsyncClient, count: int) -> float:
    await enqueue_batches(client, count)
    worker = Worker(client)
    done = 0

    @worker.handler("work", concurrency=256, credit=1_000)
    async def handle(_message: object) -> None:
        nonlocal done
        done += 1
        if done == count:
            worker.stop()

    begun = time.perf_counter()
    await worker.run(client)
    return count / (time.perf_counter() - begun)


async def echoes(address: str, count: int) -> float:
    frame = PAYLOAD * BATCH
    for _ in range(200):
        try:
            connection = await connect(address, compression=None, max_size=None)
            break
        except OSError:
            await asyncio.sleep(0.05)

    async with connection:
        begun = time.perf_counter()
        for _ in range(8):
            await connection.send(frame)
        for at in range(count // BATCH):
            await connection.recv()
            if at < count // BATCH - 8:
                await connection.send(frame)
        return count / (time.perf_counter() - begun)


# ------------------------------------------------------------------------------------------------------------ measuring


def run(work: Work, count: int) -> float:
    async def once() -> float:
        async with fresh_client() as client:
            return await work(client, count)

    return asyncio.run(once())


def compare_rates(report: Report, options: Options) -> None:
    repeats = 2 if options.quick else 3
    report.heading("Server and client in two processes, 1 KB, fsync, ten tenants", repeats=repeats)
    scale = 1 if options.quick else 4
    goals: list[tuple[str, Work, int, float]] = [
        (f"enqueue, batches of {BATCH}", enqueue_batches, 40_000, 100_000),
        (f"lease and ack, batches of {BATCH}", lease_and_ack_batches, 40_000, 80_000),
        ("both at once, to the ack", both_at_once, 40_000, 50_000),
        ("enqueue, one at a time", one_at_a_time, 3_000, 3_500),
        ("enqueue, 32 in flight", partial(one_at_a_time, in_flight=32), 16_000, 15_000),
        ("consume one by one, prefetched", consume_one_by_one, 20_000, 20_000),
        ("worker with async handlers", work_with_handlers, 20_000, 15_000),
    ]
    with echo() as address:
        bare = max(asyncio.run(echoes(address, 40_000 * scale)) for _ in range(2))
    rates = {name: max(run(work, count * scale) for _ in range(repeats)) for name, work, count, _ in goals}
    rows = [["bare ASGI echo of the same bytes", f"{bare:,.0f}", "1.00"]]
    rows += [[name, f"{rate:,.0f}", f"{rate / bare:.2f}"] for name, rate in rates.items()]
    if redis_streams.is_installed():
        redis_rates = redis_streams.rates(PAYLOAD, 40_000 * scale)
        rows += [[name, f"{rate:,.0f}", f"{rate / bare:.2f}"] for name, rate in redis_rates.items()]
    else:
        rows.append(["Redis Streams: no redis-server is installed here", "", ""])
    report.table(["what", "messages/s", "x echo"], rows)
    for name, _, _, least in goals:
        report.goal(name, measured=rates[name], least=least, unit="/s")


async def latency(client: AsyncClient, count: int) -> list[float]:
    """Return the latency of each message from the call of enqueue to the handler, in ms, at 200 a second."""
    waits: list[float] = []
    sent: dict[bytes, float] = {}

    async def receive() -> None:
        async with client.consume("work") as stream:
            async for message in stream:
                waits.append((time.perf_counter() - sent[message.payload]) * 1000)
                client.ack_soon(message)
                if len(waits) == count:
                    return

    receiving = asyncio.create_task(receive())
    begun = time.perf_counter()
    for at in range(count):
        await asyncio.sleep(max(0.0, begun + 0.2 + at / 200 - time.perf_counter()))
        payload = at.to_bytes(8) + PAYLOAD[8:]
        sent[payload] = time.perf_counter()
        asyncio.ensure_future(client.enqueue("work", payload))  # noqa: RUF006 - its message is awaited
    await receiving
    return sorted(waits)


def measure_latency(report: Report, options: Options) -> None:
    report.heading("From the call of enqueue to the handler, at 200 a second", repeats=2)

    async def once() -> list[float]:
        async with fresh_client() as client:
            return await latency(client, 800 if options.quick else 4_000)

    waits = min((asyncio.run(once()) for _ in range(2)), key=lambda found: found[len(found) // 2])
    middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    report.table(["p50", "p99", "max"], [[f"{middle:.2f} ms", f"{late:.2f} ms", f"{waits[-1]:.2f} ms"]])
    report.goal("p50, as times in 0.6 ms", measured=0.6 / middle, least=1)
    report.goal("p99, as times in 2 ms", measured=2 / late, least=1)


if __name__ == "__main__":
    main()
