"""What happens now, folded from committed records: counts by queue, and shares by key of the queues that are watched.

Everything is bounded: keys beyond so many are counted together, and old counts leave in steps of a tenth of a window.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from fairlead.journal.records import (
    Acked,
    AnyRecord,
    Dead,
    Enqueued,
    Leased,
    Published,
    Redriven,
    Removed,
    Returned,
    Terms,
)
from fairlead.model.message import Key
from fairlead.model.names import dlq_of

WINDOWS_MS: Final = (10_000, 60_000, 300_000)
KEYS_MAX: Final = 20_000
HELD_MS: Final = 10_000
_STEPS: Final = 10
_FAILURES: Final = frozenset(("failure", "expiry", "release"))

Look: TypeAlias = Callable[[str, Sequence[int]], tuple[list[Key], list[int]]]
"""Tells fairness keys and costs of the messages of a queue that are still there."""


class Counts(msgspec.Struct):
    """What has happened in one queue."""

    enqueued: int = 0
    leased: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    removed: int = 0


class Window:
    """Cost by key over the last so many milliseconds, forgotten a tenth at a time."""

    __slots__ = ("_since_ms", "_steps", "span_ms", "totals")

    def __init__(self, span_ms: int, now_ms: int) -> None:
        self.span_ms = span_ms
        self.totals: Counter[Key | None] = Counter()
        self._steps: deque[tuple[int, Counter[Key | None]]] = deque()
        self._since_ms = now_ms

    def add(self, costs: Counter[Key | None], now_ms: int) -> None:
        """Add what has come since the last time."""
        if not self._steps or now_ms - self._steps[-1][0] >= self.span_ms // _STEPS:
            self._steps.append((now_ms, Counter()))
        step, totals = self._steps[-1][1], self.totals
        for key, cost in costs.items():
            kept = key if key in totals or len(totals) < KEYS_MAX else None
            totals[kept] += cost
            step[kept] += cost
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        while self._steps and now_ms - self._steps[0][0] > self.span_ms:
            _, gone = self._steps.popleft()
            for key, cost in gone.items():
                left = self.totals[key] - cost
                if left:
                    self.totals[key] = left
                else:
                    del self.totals[key]

    def covered_ms(self, now_ms: int) -> int:
        """Return how much of the window has been seen."""
        return min(self.span_ms, now_ms - self._since_ms)


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What held back a key beside the turns of others: ``throttle`` with its name, ``cap`` or ``pause``."""

    kind: Literal["throttle", "cap", "pause"]
    name: str | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """When a key was last seen held back, and by what."""

    at_ms: int
    by: Held


class KeyWindows:
    """What one queue was given and served by key, over each of the windows."""

    def __init__(self, now_ms: int) -> None:
        self.arrived = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self.served = [Window(span_ms, now_ms) for span_ms in WINDOWS_MS]
        self.arriving: Counter[Key | None] = Counter()
        self.serving: Counter[Key | None] = Counter()
        self.costs: dict[Key, int] = {}
        """What the latest message of a key costs, where that is not 1."""
        self.held: dict[Key, Hold] = {}
        """What held back keys of late."""

    def count(self, counter: Counter[Key | None], keys: list[Key], costs: list[int] | None) -> None:
        """Add costs by key. Mostly they are all 1, and counting is quick."""
        if costs is None or costs.count(1) == len(costs):
            counter.update(keys)
            return
        for key, cost in zip(keys, costs, strict=True):
            counter[key] += cost
            if cost != 1 and (key in self.costs or len(self.costs) < KEYS_MAX):
                self.costs[key] = cost

    def hold(self, holds: Mapping[Key, Held], now_ms: int) -> None:
        """Note what holds back keys now; it counts for a while, since a throttle opens and shuts by the token."""
        self.held = {key: hold for key, hold in self.held.items() if now_ms - hold.at_ms < HELD_MS}
        self.held |= {key: Hold(at_ms=now_ms, by=by) for key, by in holds.items()}

    def roll(self, now_ms: int) -> None:
        """Let what was noted since the last time be in the windows."""
        for windows, fresh in ((self.arrived, self.arriving), (self.served, self.serving)):
            for window in windows:
                window.add(fresh, now_ms)
            fresh.clear()


class LiveFold:
    """Counts of all queues, and the windows of those that somebody watches."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.counts: dict[str, Counts] = {}
        self.watched: dict[str, KeyWindows] = {}

    def note(self, records: Sequence[AnyRecord]) -> None:
        """Take in what was committed together."""
        for record in records:
            noted = _NOTES.get(type(record))
            if noted is not None:
                noted(self, record)

    def of(self, queue: str) -> Counts:
        """Return the counts of a queue."""
        counts = self.counts.get(queue)
        if counts is None:
            counts = self.counts[queue] = Counts()
        return counts

    def arrive(self, queue: str, terms: Terms) -> None:
        """Count messages that have come to a queue."""
        self.of(queue).enqueued += len(terms.keys)
        windows = self.watched.get(queue)
        if windows is not None:
            windows.count(windows.arriving, terms.keys, terms.costs)

    def serve(self, record: Leased) -> None:
        """Count messages that were handed out."""
        self.of(record.queue).leased += len(record.numbers)
        windows = self.watched.get(record.queue)
        if windows is not None:
            windows.count(windows.serving, *self._look(record.queue, record.numbers))


def _enqueued(fold: LiveFold, record: Enqueued | Published) -> None:
    fold.arrive(record.queue, record.terms)


def _redriven(fold: LiveFold, record: Redriven) -> None:
    fold.of(record.queue).removed += len(record.numbers)
    fold.arrive(record.target, record.terms)


def _acked(fold: LiveFold, record: Acked) -> None:
    fold.of(record.queue).acked += len(record.numbers)


def _returned(fold: LiveFold, record: Returned) -> None:
    if record.reason in _FAILURES:
        fold.of(record.queue).failed += len(record.numbers)


def _dead(fold: LiveFold, record: Dead) -> None:
    counts, count = fold.of(record.queue), len(record.numbers)
    counts.dead += count
    if record.ended in _FAILURES:
        counts.failed += count
    fold.of(dlq_of(record.queue)).enqueued += count


def _removed(fold: LiveFold, record: Removed) -> None:
    fold.of(record.queue).removed += len(record.numbers)


_NOTES: Final[dict[type, Callable[[LiveFold, AnyRecord], None]]] = {
    Enqueued: _enqueued,  # type: ignore[dict-item] # each is called with its own kind
    Published: _enqueued,  # type: ignore[dict-item] # likewise
    Redriven: _redriven,  # type: ignore[dict-item] # likewise
    Leased: LiveFold.serve,  # type: ignore[dict-item] # likewise
    Acked: _acked,  # type: ignore[dict-item] # likewise
    Returned: _returned,  # type: ignore[dict-item] # likewise
    Dead: _dead,  # type: ignore[dict-item] # likewise
    Removed: _removed,  # type: ignore[dict-item] # likewise
}
