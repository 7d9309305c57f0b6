"""One side of a flooded queue, as a process: ``python -m benchmarks.server_flood produce|consume ADDRESS QUEUE S``.

It prints how many messages it has enqueued, or leased and acknowledged, in so many seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from benchmarks.server_works import BATCH, MESSAGES
from fairlane.client import AsyncClient

_IN_FLIGHT = 8


async def produce(client: AsyncClient, queue: str, until: float) -> int:
    async def flood() -> int:
        done = 0
        while time.monotonic() < until:
            done += len(await client.enqueue_many(queue, MESSAGES))
        return done

    return sum(await asyncio.gather(*(flood() for _ in range(_IN_FLIGHT))))


async def consume(client: AsyncClient, queue: str, until: float) -> int:
    done = 0
    while time.monotonic() < until:
        messages = await client.lease(queue, BATCH, wait_ms=100)
        await client.ack_many(queue, messages)
        done += len(messages)
    return done


async def main(role: str, address: str, queue: str, seconds: str) -> None:
    async with AsyncClient(address) as client:
        run = produce if role == "produce" else consume
        print(await run(client, queue, time.monotonic() + float(seconds)))


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main(*sys.argv[1:]))
