"""One side of a queue as a process: ``python -m benchmarks.server_sides ROLE ADDRESS QUEUE AMOUNT``.

It prints ``ready``, begins with the first line of its input, prints how many messages it has enqueued, or leased and
acknowledged, and ends with its input.

| role | what it does | amount |
|---|---|---|
| flood | enqueue with eight requests in flight | seconds |
| ask | lease and acknowledge with one request in flight | seconds |
| produce | enqueue with four requests in flight | messages |
| consume | lease and acknowledge with four requests in flight | messages |
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop

from benchmarks.server_works import BATCH, MESSAGES
from fairlane.client import AsyncClient


class Side:
    """What one side does, with the number of messages it has done."""

    def __init__(self, client: AsyncClient, queue: str, amount: float) -> None:
        self._client = client
        self._queue = queue
        self._amount = amount
        self._until_s = time.monotonic() + amount
        self._begun = 0
        self.done = 0

    async def flood(self) -> None:
        while time.monotonic() < self._until_s:
            await self._enqueue()

    async def produce(self) -> None:
        while self._begun < self._amount:
            self._begun += BATCH
            await self._enqueue()

    async def ask(self) -> None:
        while time.monotonic() < self._until_s:
            await self._take(wait_ms=100)

    async def consume(self) -> None:
        while self.done < self._amount:
            await self._take(wait_ms=100)

    async def _enqueue(self) -> None:
        results = await self._client.enqueue_many(self._queue, MESSAGES)
        assert all(type(result) is str for result in results)
        self.done += len(results)

    async def _take(self, *, wait_ms: int) -> None:
        messages = await self._client.lease(self._queue, BATCH, wait_ms=wait_ms)
        results = await self._client.ack_many(self._queue, messages)
        assert results.count(None) == len(messages)
        self.done += len(messages)


ROLES: Final[dict[str, tuple[Callable[[Side], Awaitable[None]], int]]] = {
    "flood": (Side.flood, 8),
    "ask": (Side.ask, 1),
    "produce": (Side.produce, 4),
    "consume": (Side.consume, 4),
}
"""What each role does, and how often at the same time."""


async def main(role: str, address: str, queue: str, amount: str) -> None:
    work, in_flight = ROLES[role]
    async with AsyncClient(address) as client:
        await client.queue(queue)  # connects
        print("ready", flush=True)
        sys.stdin.readline()
        side = Side(client, queue, float(amount))
        await asyncio.gather(*(work(side) for _ in range(in_flight)))
        print(side.done, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main(*sys.argv[1:]))
