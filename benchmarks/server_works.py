"""The workloads of the server benchmark. Each enqueues to a queue of its own and runs inside a ``Meter``."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import count as counter
from typing import IO

from benchmarks.meter import Measured, Meter
from fairlane.client import AsyncClient, Client, NewMessage
from fairlane.worker import Worker

BATCH = 100
PAYLOAD = random.Random(1).randbytes(1024)
KEYS = [f"tenant-{number}" for number in range(10)]
MESSAGES = [NewMessage(payload=PAYLOAD, fairness_key=KEYS[at % 10]) for at in range(BATCH)]
_FLOOD_S = 2.0
_numbers = counter()

AsyncWork = Callable[[AsyncClient, str, Meter, int], Awaitable[None]]
Work = Callable[[str, Meter, int], Measured]


@asynccontextmanager
async def fresh_queue(address: str) -> AsyncIterator[tuple[AsyncClient, str]]:
    """Yield a client and a queue that exists only inside the block."""
    queue = f"work-{next(_numbers)}"
    async with AsyncClient(address) as client:
        await client.create_queue(queue)
        yield client, queue
        await client.delete_queue(queue)


def asynchronous(work: AsyncWork) -> Work:
    """Return a work for the asyncio client as a plain function."""

    def run(address: str, meter: Meter, count: int) -> Measured:
        async def once() -> None:
            async with fresh_queue(address) as (client, queue):
                await work(client, queue, meter, count)

        asyncio.run(once())
        return meter.measured(count)

    return run


# ------------------------------------------------------------------------------------------------------------- batches


async def enqueue_batches(client: AsyncClient, queue: str, meter: Meter, count: int) -> None:
    with meter:
        await asyncio.gather(*(_produce(client, queue, count // 8) for _ in range(8)))


async def _produce(client: AsyncClient, queue: str, count: int) -> None:
    for _ in range(0, count, BATCH):
        results = await client.enqueue_many(queue, MESSAGES)
        assert all(type(result) is str for result in results)


async def _drain(client: AsyncClient, queue: str, left: list[int]) -> None:
    while left[0] > 0:
        left[0] -= BATCH
        messages = await client.lease(queue, BATCH, wait_ms=5_000)
        left[0] += BATCH - len(messages)
        results = await client.ack_many(queue, messages)
        assert results.count(None) == len(messages)


async def lease_and_ack_batches(client: AsyncClient, queue: str, meter: Meter, count: int) -> None:
    await enqueue_batches(client, queue, meter, count)
    with meter:
        await asyncio.gather(*(_drain(client, queue, left) for left in [[count]] for _ in range(8)))


# -------------------------------------------------------------------------------------------------------- one by one


async def one_at_a_time(client: AsyncClient, queue: str, meter: Meter, count: int, *, in_flight: int = 1) -> None:
    async def send() -> None:
        for _ in range(count // in_flight):
            await client.enqueue(queue, MESSAGES[0])

    with meter:
        await asyncio.gather(*(send() for _ in range(in_flight)))


thirty_two_in_flight: AsyncWork = partial(one_at_a_time, in_flight=32)


def one_at_a_time_blocking(address: str, meter: Meter, count: int) -> Measured:
    queue = f"work-{next(_numbers)}"
    with Client(address) as client:
        client.create_queue(queue)
        with meter:
            for _ in range(count):
                client.enqueue(queue, MESSAGES[0])
        client.delete_queue(queue)
    return meter.measured(count)


async def consume_one_by_one(client: AsyncClient, queue: str, meter: Meter, count: int) -> None:
    await enqueue_batches(client, queue, meter, count)
    done = 0
    with meter:
        async with client.consume(queue, credit=1_000) as stream:
            async for message in stream:
                client.ack_soon(message)
                done += 1
                if done == count:
                    break
        assert not await client.flush()


async def work_with_handlers(client: AsyncClient, queue: str, meter: Meter, count: int) -> None:
    await enqueue_batches(client, queue, meter, count)
    worker = Worker(client)
    done = 0

    @worker.handler(queue, concurrency=256, credit=1_000)
    async def handle(_message: object) -> None:
        nonlocal done
        done += 1
        if done == count:
            worker.stop()

    with meter:
        await worker.run(client)


# ------------------------------------------------------------------------------------------------------- more processes

_WORKER = """
import sys
from fairlane.worker import Worker
worker, left = Worker(sys.argv[1]), int(sys.argv[3])

@worker.handler(sys.argv[2])
async def handle(_message):
    global left
    left -= 1
    if not left:
        print("done", flush=True)

@worker.on_start
def say_ready():
    print("ready", flush=True)

worker.run_forever()
"""


def task_loop(address: str, meter: Meter, count: int) -> Measured:
    """Call the blocking client's ``enqueue`` in a loop, while a worker process runs handlers that do nothing."""
    queue = f"work-{next(_numbers)}"
    with Client(address) as client:
        client.create_queue(queue)
        with subprocess.Popen(
            [sys.executable, "-c", _WORKER, address, queue, str(count)], stdout=subprocess.PIPE
        ) as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            meter.clients = (worker.pid,)
            with meter:
                for _ in range(count):
                    client.enqueue(queue, MESSAGES[0])
                worker.stdout.readline()
            meter.clients = ()
            worker.terminate()
        client.delete_queue(queue)
    return meter.measured(count)


def both_at_once(address: str, meter: Meter, count: int) -> Measured:
    """Let a producer process and a consumer process work at the same time, until all messages are acknowledged."""
    _two_sides(address, meter, ("produce", "consume"), count)
    return meter.measured(count)


def flooded_consumer(address: str, meter: Meter) -> tuple[Measured, float]:
    """Return what a producer process achieves, and which part of it a consumer process does that asks one by one."""
    enqueued, acked = _two_sides(address, meter, ("flood", "ask"), _FLOOD_S)
    return meter.measured(enqueued), acked / enqueued


def _two_sides(address: str, meter: Meter, roles: Sequence[str], amount: float) -> list[int]:
    """Run a process for each role on a fresh queue, and return how many messages each of them has done."""
    queue = f"work-{next(_numbers)}"
    with Client(address) as client, ExitStack() as running:
        client.create_queue(queue)
        sides = [running.enter_context(_side(role, address, queue, str(amount))) for role in roles]
        meter.clients = [side.pid for side in sides]
        with meter:
            for side in sides:
                _stdin(side).write("begin\n")
                _stdin(side).flush()
            counts = [int(_line(side)) for side in sides]
        meter.clients = ()
        client.delete_queue(queue)
    return counts


@contextmanager
def _side(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a side, and wait until it is ready."""
    command = [sys.executable, "-m", "benchmarks.server_sides", role, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as side:
        assert _line(side) == "ready\n"
        yield side
        _stdin(side).close()


def _stdin(side: subprocess.Popen[str]) -> IO[str]:
    assert side.stdin is not None
    return side.stdin


def _line(side: subprocess.Popen[str]) -> str:
    assert side.stdout is not None
    return side.stdout.readline()
