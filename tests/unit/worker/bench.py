"""A worker on a broker in this process, with a transport that tests can observe and interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlane.client import AsyncClient, NewMessage
from fairlane.client.transport import Channel, Transport
from fairlane.client.transport.protocol import Sink
from fairlane.embedded import EmbeddedTransport
from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery
from fairlane.verbs.verb import Reply, Shape
from fairlane.wire.frames import Consume
from fairlane.worker import Worker
from tests.kit.waiting import PATIENCE_S


class Tapped:
    """A transport that counts calls, lets tests wait for them and refuse them, and knows the sinks of its channels."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._changed = asyncio.Event()
        self.calls: list[tuple[str, Shape]] = []
        self.answered: list[str] = []
        self.sinks: list[Sink] = []
        self.refusals: dict[str, list[FairlaneError]] = {}
        self.on_deliver: Callable[[Delivery], Delivery] | None = None

    async def connect(self) -> None:
        await self._inner.connect()

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:
        self.calls.append((verb, request))
        self._notify()
        if self.refusals.get(verb):
            raise self.refusals[verb].pop(0)
        answer = await self._inner.call(verb, request, wait_ms=wait_ms)
        self.answered.append(verb)
        self._notify()
        return answer

    def submit(self, verb: str, request: Shape, reply: Reply, *, wait_ms: int = 0) -> bool:
        return self._inner.submit(verb, request, reply, wait_ms=wait_ms)

    async def open(self, request: Consume, sink: Sink) -> Channel:
        self.calls.append(("open", request))
        self._notify()
        if self.refusals.get("open"):
            raise self.refusals["open"].pop(0)
        self.sinks.append(sink)
        if self.on_deliver is not None:
            sink = Changed(sink, self.on_deliver)
        return await self._inner.open(request, sink)

    async def close(self) -> None:
        await self._inner.close()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition holds, checking it after each call."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()

    def count(self, verb: str) -> int:
        """Return how many calls of a verb were answered."""
        return self.answered.count(verb)

    def _notify(self) -> None:
        self._changed.set()


class Changed:
    """A sink whose deliveries a test changes."""

    def __init__(self, inner: Sink, change: Callable[[Delivery], Delivery]) -> None:
        self._inner = inner
        self._change = change
        self.ended, self.withdraw, self.cancelled = inner.ended, inner.withdraw, inner.cancelled

    def deliver(self, deliveries: list[Delivery]) -> None:
        self._inner.deliver([self._change(delivery) for delivery in deliveries])


class WorkerBench:
    """A broker with a queue, a client of it, and a worker."""

    def __init__(self, client: AsyncClient, tap: Tapped) -> None:
        self.client = client
        self.tap = tap
        self.app = Worker(client, grace_s=5)

    async def enqueue(self, *payloads: bytes, queue: str = "jobs") -> list[str]:
        """Enqueue payloads, and return their ids."""
        return [await self.client.enqueue(queue, NewMessage(payload=payload)) for payload in payloads]

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        await self.tap.until(is_true)

    async def settled(self, verb: str, count: int = 1) -> None:
        """Wait until a number of calls of a verb are answered."""
        await self.until(lambda: self.tap.count(verb) >= count)


@asynccontextmanager
async def opened(**policy: Any) -> AsyncIterator[WorkerBench]:
    """Open a bench with a queue ``jobs`` that retries at once, unless the policy says otherwise."""
    tap = Tapped(EmbeddedTransport())
    async with AsyncClient(tap) as client:
        await client.create_queue("jobs", {"backoff_ms": 0, "backoff_jitter": 0.0} | policy)
        yield WorkerBench(client, tap)


def on_bench(test: Callable[[WorkerBench], Awaitable[None]], **policy: Any) -> None:
    """Run a test on a new bench."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), opened(**policy) as bench:
            await test(bench)

    asyncio.run(run())
