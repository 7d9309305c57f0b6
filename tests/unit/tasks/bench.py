"""An app on a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fairlane.client import AsyncClient
from fairlane.embedded import EmbeddedTransport
from fairlane.tasks import App
from tests.kit.waiting import PATIENCE_S
from tests.unit.worker.bench import Tapped


class AppBench:
    """A client of a broker, and an app whose worker runs on it."""

    def __init__(self, client: AsyncClient, tap: Tapped) -> None:
        self.client = client
        self.tap = tap
        self.app = App(client)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the worker until the end of the block."""
        async with self.app:
            await self.tap.until(lambda: len(self.tap.sinks) == len(self.app.queues))
            yield

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        await self.tap.until(is_true)

    async def settled(self, count: int) -> None:
        """Wait until this many messages were acknowledged or returned."""
        await self.until(lambda: self.tap.count("ack") + self.tap.count("nack") >= count)


def on_app(test: Callable[[AppBench], Awaitable[None]]) -> None:
    """Run a test on a new bench."""

    async def run() -> None:
        tap = Tapped(EmbeddedTransport())
        async with asyncio.timeout(PATIENCE_S), AsyncClient(tap) as client:
            await test(AppBench(client, tap))

    asyncio.run(run())
