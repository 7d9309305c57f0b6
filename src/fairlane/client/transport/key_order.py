"""Keeps the order of messages where requests can overtake each other.

Messages of one fairness key are enqueued in the order in which they were sent. One WebSocket guarantees that. Separate
HTTP or gRPC requests do not, so each waits here for earlier requests that share a fairness key with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlane.model.message import Key
from fairlane.verbs.messages import Enqueue


class KeyOrder:
    """Serializes enqueue requests that share a fairness key."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Key | None], asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, request: Enqueue) -> AsyncIterator[None]:
        """Wait for earlier requests with a common key, and hold back later ones inside the block."""
        lanes = {(request.queue, message.fairness_key) for message in request.messages}
        before = {self._last[lane] for lane in lanes if lane in self._last}
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last |= dict.fromkeys(lanes, mine)
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            mine.set_result(None)
            for lane in lanes:
                if self._last.get(lane) is mine:
                    del self._last[lane]
