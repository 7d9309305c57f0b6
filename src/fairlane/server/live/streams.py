"""The consumers that messages of a watched queue are streamed to: their credit, and how old their oldest lease is.

A fencing token is the journal's sequence of its lease. So whoever notes now and then how far the journal is can tell to
within a moment when a lease began, however often it was extended since; for what is older the journal itself is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.handlers.internal import ReadSlice
from fairlane.model.partitions import served_name

STREAMS_MAX: Final = 50
_MARKS_MAX: Final = 600
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
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MARKS_MAX)
        """How far the journal was, and when."""
        self._begun_ms: dict[int, int | None] = {}

    async def now(self, now_ms: int) -> list[StreamNow]:
        """Return those with the oldest leases; when these began is told to within the time between two looks.

        Raises:
            QueueNotFound: the queue is gone.
        """
        broker = await self._find(self._queue)
        views = (await broker.streams(served_name(self._queue)))[:STREAMS_MAX]
        if len(self._begun_ms) > _REMEMBERED_MAX:
            self._begun_ms.clear()
        found = [
            StreamNow(
                owner=view.owner,
                credit=view.credit,
                leased=view.leased,
                lease_ms=None if view.oldest_token is None else await self._begun(broker, view.oldest_token, now_ms),
            )
            for view in views
        ]
        self._marks.append((broker.journal_end(), now_ms))
        return found

    async def _begun(self, broker: AsyncBroker, token: int, now_ms: int) -> int | None:
        """Return when a lease began; None if the journal does not reach back so far."""
        if self._marks and token > self._marks[0][0]:
            at = bisect_left(self._marks, (token, 0))
            return self._marks[at][1] if at < len(self._marks) else now_ms
        if token not in self._begun_ms:
            pages = (await broker.call(ReadSlice(after=token - 1, count=1, skips_trimmed=True))).pages
            is_there = bool(pages) and any(record.sequence <= token for record in pages[0].records)
            self._begun_ms[token] = pages[0].at_ms if is_there else None
        return self._begun_ms[token]
