"""The streaming consumers of a watched queue: their credit, and the age of their oldest lease.

A fencing token is the sequence number of its lease in the journal. The sampler notes the end of the journal and the
time with each sample, so it can date a lease to within one interval however often it was extended. For older leases it
reads the journal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.handlers.internal import ReadSlice
from fairlane.gateway.protocol import ServedQueue

STREAMS_MAX: Final = 50
_MARKS_MAX: Final = 600
_REMEMBERED_MAX: Final = 1_000


class StreamSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One consumer: its credit, its messages in flight, and when the oldest of these was leased."""

    credit: int
    leased: int
    owner: str | None = None
    lease_ms: int | None = None


class StreamSampler:
    """Samples the streaming consumers of one queue, for one viewer."""

    def __init__(self, queue: str, find: Callable[[str], Awaitable[ServedQueue]]) -> None:
        self._find = find
        self._queue = queue
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MARKS_MAX)
        """End of the journal and time of each sample."""
        self._leased_ms: dict[int, int | None] = {}

    async def sample(self, now_ms: int) -> list[StreamSnapshot]:
        """Return the consumers with the oldest leases, dated to within the time between two samples.

        Raises:
            QueueNotFound: the queue was deleted.
        """
        broker, queue = await self._find(self._queue)
        views = (await broker.streams(queue))[:STREAMS_MAX]
        if len(self._leased_ms) > _REMEMBERED_MAX:
            self._leased_ms.clear()
        found = [
            StreamSnapshot(
                owner=view.owner,
                credit=view.credit,
                leased=view.leased,
                lease_ms=None
                if view.oldest_token is None
                else await self._leased_at(broker, view.oldest_token, now_ms),
            )
            for view in views
        ]
        self._marks.append((broker.journal_end(), now_ms))
        return found

    async def _leased_at(self, broker: AsyncBroker, token: int, now_ms: int) -> int | None:
        """Return when a lease began; None if that part of the journal is trimmed."""
        if self._marks and token > self._marks[0][0]:
            at = bisect_left(self._marks, (token, 0))
            return self._marks[at][1] if at < len(self._marks) else now_ms
        if token not in self._leased_ms:
            pages = (await broker.call(ReadSlice(after=token - 1, count=1, skips_trimmed=True))).pages
            is_there = bool(pages) and any(record.sequence <= token for record in pages[0].records)
            self._leased_ms[token] = pages[0].at_ms if is_there else None
        return self._leased_ms[token]
