"""The consumers that messages of a watched queue are streamed to: their credit, and how old their oldest lease is.

A fencing token is the journal's sequence of its lease, so the journal knows when a lease began, however often it has
been extended since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from fairlead.broker.aio import AsyncBroker

STREAMS_MAX: Final = 50
_REMEMBERED_MAX: Final = 1_000


class StreamNow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One consumer: how many messages it may have in flight, how many it has, and since when the oldest of these."""

    credit: int
    leased: int
    owner: str | None = None
    lease_ms: int | None = None


class Streams:
    """The consumers of one queue, for one viewer."""

    def __init__(self, queue: str, find: Callable[[str], Awaitable[AsyncBroker]]) -> None:
        self._find = find
        self._queue = queue
        self._begun_ms: dict[int, int | None] = {}

    async def now(self) -> list[StreamNow]:
        """Return those with the oldest leases.

        Raises:
            QueueNotFound: the queue is gone.
        """
        broker = await self._find(self._queue)
        views = (await broker.streams(self._queue))[:STREAMS_MAX]
        if len(self._begun_ms) > _REMEMBERED_MAX:
            self._begun_ms.clear()
        return [
            StreamNow(
                owner=view.owner,
                credit=view.credit,
                leased=view.leased,
                lease_ms=None if view.oldest_token is None else await self._begun(broker, view.oldest_token),
            )
            for view in views
        ]

    async def _begun(self, broker: AsyncBroker, token: int) -> int | None:
        """Return when a lease began; None if the journal does not reach back so far."""
        if token not in self._begun_ms:
            pages = (await broker.read_journal(token - 1, count=1, skips_trimmed=True)).pages
            is_there = bool(pages) and any(record.sequence <= token for record in pages[0].records)
            self._begun_ms[token] = pages[0].at_ms if is_there else None
        return self._begun_ms[token]
