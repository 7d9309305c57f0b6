"""The keys of one queue, sampled once for all viewers and rarely enough to cost little."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final

import msgspec

from fairlane.gateway.protocol import Observed
from fairlane.model.message import Key
from fairlane.model.views import KeyView
from fairlane.server.live.snapshot import QueueSample, WatchedQueue, matches, sample_queue, watched_queue
from fairlane.server.live.summary import CONSIDERED_MAX
from fairlane.server.live.windows import KeyWindows

IDLE_RATIO: Final = 250
"""A sample that took t seconds is followed by at least 250 t without one: samples take at most 1/250 of the CPU."""
_NEVER: Final = float("inf")


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that a viewer asks for, and how many."""

    keys_max: int
    match: str = ""


class KeySampler:
    """Samples the keys of a queue. One sample serves all viewers, and one snapshot all viewers with the same query."""

    def __init__(
        self, broker: Observed, queue: str, windows: KeyWindows, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._windows = windows
        self._clock = clock
        self._sample: QueueSample | None = None
        self._version = 0
        self._due_at = 0.0
        self._snapshots: dict[KeyQuery, WatchedQueue] = {}

    async def snapshot(self, query: KeyQuery, *, seen: int) -> tuple[int, WatchedQueue | None]:
        """Return the current version, with its snapshot unless the viewer has seen that version.

        Raises:
            QueueNotFound: the queue was deleted.
        """
        if self._clock() >= self._due_at:
            await self._take_sample()
        sample, version = self._sample, self._version
        if sample is None or version == seen:
            return seen, None
        snapshot = self._snapshots.get(query)
        if snapshot is None:
            others = await self._matching(query) if query.match else ()
            begun = thread_time()
            snapshot = watched_queue(sample, self._windows, keys_max=query.keys_max, match=query.match, others=others)
            if version == self._version:  # no newer sample was taken meanwhile
                self._snapshots[query] = snapshot
            self._due_at += IDLE_RATIO * (thread_time() - begun)
        return version, snapshot

    async def _take_sample(self) -> None:
        cost_s = 0.0
        self._due_at = _NEVER  # a sample is being taken
        try:
            view, cost_s = await self._broker.look_at(self._queue, keys_max=CONSIDERED_MAX)
            begun = thread_time()
            now_ms = self._broker.now_ms()
            self._windows.roll(now_ms)
            self._sample = sample_queue(view, self._windows, self._weight_of, now_ms)
            self._version += 1
            self._snapshots = {}
            cost_s += thread_time() - begun
        finally:
            self._due_at = self._clock() + IDLE_RATIO * cost_s

    def _weight_of(self, key: Key) -> int:
        return self._broker.weight_of(self._queue, key)

    async def _matching(self, query: KeyQuery) -> tuple[KeyView, ...]:
        """Return the keys that match a query; they need not be among those with the most messages."""

        def is_wanted(key: Key) -> bool:
            return matches(key, query.match)

        view, cost_s = await self._broker.look_at(self._queue, keys_max=query.keys_max, wanted=is_wanted)
        self._due_at += IDLE_RATIO * cost_s
        return view.keys
