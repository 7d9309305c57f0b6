"""Records the history of a server's queues: a sample of each about every ten seconds.

The counts are those that metrics fold from every commit, so the history costs a message only two counts more. So a
queue with a history also has a label of its own there.

If there are too many queues, those that have been idle give way: they lose their history and their label.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from heapq import nlargest
from typing import Final

import msgspec

from fairlane.gateway.protocol import Observed
from fairlane.model.views import QueueView
from fairlane.server.live.history import COUNTS, KEYS_MAX, QUEUES_MAX, SAMPLE_MS, HistoryRings, Slot, largest, merged
from fairlane.server.metrics.fold import MetricsFold, QueueCounts, RecentLeases

IDLE_MS: Final = 600_000
"""A queue without messages and events for this long gives way to a busy one."""
_NONE: Final = QueueCounts()
_NOTHING: Final = Slot()
_log = logging.getLogger("fairlane.server")


class HistoryRecorder:
    """Samples the queues of a server into a history."""

    def __init__(self, broker: Observed, fold: MetricsFold, *, queues_max: int = QUEUES_MAX) -> None:
        self._broker = broker
        self._fold = fold
        self._queues_max = queues_max
        self._before: dict[str, Slot] = {}
        self._active_ms: dict[str, int] = {}
        self._sampled_ms = broker.now_ms()
        self.since_ms = self._sampled_ms
        """When the history began: it is in memory, and starts with the server."""
        self.history = HistoryRings(queues_max=queues_max)

    async def run(self) -> None:
        """Take samples until cancelled, each at a full multiple of ten seconds."""
        while True:
            await asyncio.sleep((SAMPLE_MS - self._broker.now_ms() % SAMPLE_MS) / 1000)
            try:
                await self.sample()
            except Exception:  # noqa: BLE001 - one lost sample is a gap; the recorder must go on
                _log.exception("A sample of the history failed; the next one is due in %d s.", SAMPLE_MS // 1000)

    async def sample(self) -> None:
        """Take one sample of all queues."""
        views = await self._broker.queues()
        now_ms = self._broker.now_ms()
        covered_ms, self._sampled_ms = max(0, now_ms - self._sampled_ms), now_ms
        samples, counted = {}, {}
        self._note_active(views, now_ms)
        for view in self._chosen(views, now_ms):
            counts = _counted(self._fold.queues.get(view.name, _NONE), view)
            is_new = not self._before or view.created_ms > now_ms - covered_ms
            before = self._before.get(view.name, _NOTHING if is_new else counts)
            counted[view.name] = counts
            fresh = _since(counts, before, self._fold.take_recent(view.name))
            samples[view.name] = msgspec.structs.replace(fresh, at_ms=now_ms, covered_ms=covered_ms)
        self._before = counted
        self.history.note(samples, _total(samples.values(), views, now_ms, covered_ms))

    def _note_active(self, views: list[QueueView], now_ms: int) -> None:
        """Note when each queue was last seen with messages, or had events."""
        before = self._active_ms
        active = {view.name for view in views if view.waiting + view.leased or self._has_events(view)}
        self._active_ms = {
            view.name: now_ms if view.name in active else before[view.name]
            for view in views
            if view.name in active or view.name in before
        }

    def _has_events(self, view: QueueView) -> bool:
        counts, before = self._fold.queues.get(view.name, _NONE), self._before.get(view.name)
        if before is None:
            return not self._before and counts is not _NONE  # since the server started
        return _counted(counts, view) != before

    def _chosen(self, views: list[QueueView], now_ms: int) -> list[QueueView]:
        """Return the queues that have a history.

        Busy queues go first, among them those that have a history already, and then those with the most messages.
        """
        known = self.history.queues

        def rank(view: QueueView) -> tuple[bool, bool, int, int]:
            active_ms = self._active_ms.get(view.name, 0)
            is_busy = view.name in self._active_ms and now_ms - active_ms < IDLE_MS
            return (is_busy, view.name in known, 0 if is_busy else active_ms, view.waiting + view.leased + view.dead)

        chosen = nlargest(self._queues_max, views, key=rank)
        if len(chosen) < len(views):
            self._fold.keep(frozenset(view.name for view in chosen))
        return chosen


def _counted(counts: QueueCounts, view: QueueView) -> Slot:
    """Return all that a queue has counted so far, and what it has now."""
    return Slot(
        enqueued=counts.enqueued,
        leased=counts.leased,
        acked=counts.acked,
        failed=counts.failed,
        dead=sum(count for (event, _), count in counts.events.items() if event == "dead"),
        refused=counts.refused.total(),
        waiting=view.waiting,
        in_flight=view.leased,
    )


def _since(counts: Slot, before: Slot, recent: RecentLeases) -> Slot:
    """Return what was counted since an earlier sample. Counts that are lower than before belong to a new queue."""
    fresh = {name: max(0, getattr(counts, name) - getattr(before, name)) for name in COUNTS}
    fresh["served"] = recent.cost
    return msgspec.structs.replace(
        counts,
        **fresh,
        waits=tuple(sorted(recent.waits.items())),
        keys=largest(recent.keys, KEYS_MAX * 4),
    )


def _total(samples: Iterable[Slot], views: list[QueueView], now_ms: int, covered_ms: int) -> Slot:
    """Return the sample of all queues together, which names no keys."""
    total = merged([Slot(), *samples], at_ms=now_ms, keys_max=0)
    return msgspec.structs.replace(
        total,
        covered_ms=covered_ms,
        waiting=sum(view.waiting for view in views),
        in_flight=sum(view.leased for view in views),
    )
