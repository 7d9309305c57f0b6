"""Counts for metrics between scrapes: a few additions for each committed record, whatever it holds.

For each leased message the fold looks up its key, how long it waited and why. A lookup costs time in the middle of a
commit, so each scrape interval has a budget of ``LOOKUPS_MAX``. Once it is spent, the fold looks up one random message
of every 32 leased together and counts it 32 times. Light traffic is exact; under heavy traffic sums and shares are
right on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from fairlane.broker.measurements import Waited
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Dead,
    Enqueued,
    Extended,
    Leased,
    Published,
    QueueRemoved,
    Redriven,
    RefusedMessages,
    Removed,
    Returned,
    ScheduleFired,
    ScheduleMissed,
)
from fairlane.model.histogram import Histogram, bucket_of
from fairlane.model.message import Key
from fairlane.server.metrics.families import OTHERS

KEYS_MAX: Final = 20_000
ALL_KEYS_MAX: Final = 100_000
"""The limits on keys that are counted apart between two scrapes: of one queue, and of all queues together."""
RECENT_MAX: Final = 256
"""Keys of one queue that the history counts apart between two samples. A key with many messages is among the first."""
WAIT_BITS: Final = 3
"""The precision of waits in the history: one part in eight."""
LOOKUPS_MAX: Final = 20_000
"""Messages that are looked up one by one between two scrapes."""
_SAMPLED_EVERY: Final = 32

Lookup: TypeAlias = Callable[[str, int], Waited | None]
"""Returns key, cost and wait of a message that was just leased, by queue and message number."""


@dataclass(slots=True, eq=False)
class RecentLeases:
    """Leased messages between two samples of the history.

    Attributes:
        cost: the cost of all of them.
        keys: the cost by key, of the first ``RECENT_MAX`` keys.
        waits: how many waited, by bucket of milliseconds.
    """

    cost: int = 0
    keys: dict[Key, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)

    def note(self, key: Key | None, cost: int, wait_ms: int, count: int) -> None:
        """Count messages of one key; None to count them for no key."""
        self.cost += cost
        if key is not None and (key in self.keys or len(self.keys) < RECENT_MAX):
            self.keys[key] = self.keys.get(key, 0) + cost
        bucket = bucket_of(wait_ms, WAIT_BITS)
        self.waits[bucket] = self.waits.get(bucket, 0) + count


@dataclass(slots=True, eq=False)
class QueueCounts:
    """Counts of one queue, or of all queues that share a label.

    Attributes:
        events: messages by all other events, each with its reason.
        refused: messages that limits kept out, by error code.
        ticks: ticks of schedules, by what became of them.
        served: cost of leased messages by key since the last scrape.
        served_others: the same for all keys beyond the limit, in one number.
        failed: attempts that failed.
        recent: what was leased since the last sample of the history.
        turn_ms: total wait for a turn; the other ``_ms`` fields are the totals for other reasons.
    """

    enqueued: int = 0
    leased: int = 0
    acked: int = 0
    size: int = 0
    turn_ms: int = 0
    throttled_ms: int = 0
    capped_ms: int = 0
    paused_ms: int = 0
    delayed_ms: int = 0
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    ticks: Counter[str] = field(default_factory=Counter)
    waits: Histogram = field(default_factory=Histogram)
    served: dict[Key, int] = field(default_factory=dict)
    served_others: int = 0
    failed: int = 0
    recent: RecentLeases = field(default_factory=RecentLeases)


class MetricsFold:
    """Counts by queue. The first ``queues_max`` queues have a label of their own, until they are forgotten."""

    def __init__(
        self, lookup: Lookup, *, queues_max: int, counts_keys: bool = True, random: Random | None = None
    ) -> None:
        self._lookup = lookup
        self._keys_left = ALL_KEYS_MAX if counts_keys else 0
        self._keys_max = KEYS_MAX if counts_keys else 0
        self._queues_max = queues_max
        self._random = random if random is not None else Random()  # noqa: S311 - sampling, no secrets
        self._lookups_left = LOOKUPS_MAX
        self.queues: dict[str, QueueCounts] = {}

    def note(self, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Count the records of one commit."""
        for record in records:
            kind = type(record)
            if kind is Leased:
                self._leased(record, now_ms)  # type: ignore[arg-type] # checked by kind
            elif kind is Enqueued or kind is Published:
                self._enqueued(record)  # type: ignore[arg-type] # checked by kind
            elif kind in _NOTES:
                _NOTES[kind](self, record, now_ms)

    def of(self, queue: str) -> QueueCounts:
        """Return the counts of a queue, or of the queues that share its label."""
        counts = self.queues.get(queue)
        if counts is None:
            labels = len(self.queues) - (OTHERS in self.queues)
            name = queue if labels < self._queues_max else OTHERS
            counts = self.queues.get(name)
            if counts is None:
                counts = self.queues[name] = QueueCounts()
        return counts

    def forget(self, queue: str) -> None:
        """Forget a deleted queue."""
        counts = self.queues.pop(queue, None)
        if counts is not None:
            self._keys_left += len(counts.served)

    def keep(self, queues: frozenset[str]) -> None:
        """Give these queues a label of their own, and no others."""
        for queue in self.queues.keys() - queues - {OTHERS}:
            self.forget(queue)
        for queue in queues:
            self.of(queue)

    def take_served(self) -> dict[str, tuple[dict[Key, int], int]]:
        """Return the cost leased since the last call by label: by key, and for all keys beyond the limit."""
        self._lookups_left = LOOKUPS_MAX
        taken = {}
        for name, counts in self.queues.items():
            taken[name] = (counts.served, counts.served_others)
            self._keys_left += len(counts.served)
            counts.served, counts.served_others = {}, 0
        return taken

    def take_recent(self, queue: str) -> RecentLeases:
        """Return what was leased from a queue since the last call; for the history."""
        counts = self.queues.get(queue)
        if counts is None:
            return RecentLeases()
        taken, counts.recent = counts.recent, RecentLeases()
        return taken

    def _enqueued(self, record: Enqueued | Published) -> None:
        counts = self.of(record.queue)
        counts.enqueued += len(record.sizes)
        counts.size += sum(record.sizes)

    def _leased(self, record: Leased, now_ms: int) -> None:
        queue, numbers = record.queue, record.numbers
        counts = self.queues.get(queue) or self.of(queue)
        total = len(numbers)
        counts.leased += total
        step = 1 if self._lookups_left >= total else _SAMPLED_EVERY
        self._lookups_left -= total
        for begin in range(0, total, step):
            weight = min(step, total - begin)
            at = begin if weight == 1 else begin + int(self._random.random() * weight)
            waited = self._lookup(queue, numbers[at])
            if waited is not None:
                self._served(counts, record, at, waited, weight, now_ms)

    def _served(self, counts: QueueCounts, record: Leased, at: int, waited: Waited, weight: int, now_ms: int) -> None:
        """Count a message that represents ``weight`` messages."""
        key, cost, ready_ms, delayed_ms = waited
        served = counts.served
        known = served.get(key)
        if known is not None:
            served[key] = known + cost * weight
        elif self._keys_left > 0 and len(served) < self._keys_max:
            served[key] = cost * weight
            self._keys_left -= 1
        else:
            counts.served_others += cost * weight
        wait_ms = max(0, now_ms - ready_ms)
        counts.recent.note(key if self._keys_max else None, cost * weight, wait_ms, weight)
        counts.waits.note(wait_ms / 1000, weight)
        counts.delayed_ms += weight * delayed_ms
        if record.picking is None:
            counts.turn_ms += weight * wait_ms
            return
        reasons = record.picking.split(wait_ms, at)
        counts.paused_ms += weight * reasons.paused_ms
        counts.throttled_ms += weight * reasons.throttled_ms
        counts.capped_ms += weight * reasons.capped_ms
        counts.turn_ms += weight * reasons.turn_ms


def _acked(fold: MetricsFold, record: Acked, _now_ms: int) -> None:
    fold.of(record.queue).acked += len(record.numbers)


def _extended(fold: MetricsFold, record: Extended, _now_ms: int) -> None:
    fold.of(record.queue).events["extended", ""] += len(record.numbers)


def _returned(fold: MetricsFold, record: Returned, _now_ms: int) -> None:
    counts = fold.of(record.queue)
    counts.events["returned", record.reason] += len(record.numbers)
    counts.failed += len(record.numbers) if record.reason == "failure" else 0


def _dead(fold: MetricsFold, record: Dead, _now_ms: int) -> None:
    counts = fold.of(record.queue)
    counts.events["dead", record.reason] += len(record.numbers)
    counts.failed += len(record.numbers) if record.ended == "failure" else 0
    fold.of(record.dlq).enqueued += len(record.numbers)


def _removed(fold: MetricsFold, record: Removed, _now_ms: int) -> None:
    fold.of(record.queue).events["removed", record.reason] += len(record.numbers)


def _refused(fold: MetricsFold, record: RefusedMessages, _now_ms: int) -> None:
    fold.of(record.queue).refused[record.code] += sum(record.messages)


def _fired(fold: MetricsFold, record: ScheduleFired, _now_ms: int) -> None:
    fold.of(record.queue).ticks["manual" if record.is_manual else "fired"] += 1


def _missed(fold: MetricsFold, record: ScheduleMissed, _now_ms: int) -> None:
    fold.of(record.queue).ticks[record.reason] += record.missed


def _redriven(fold: MetricsFold, record: Redriven, _now_ms: int) -> None:
    fold.of(record.queue).events["redriven", ""] += len(record.numbers)
    fold.of(record.target).enqueued += len(record.numbers)


def _gone(fold: MetricsFold, record: QueueRemoved, _now_ms: int) -> None:
    fold.forget(record.queue)


_NOTES: Final[dict[type, Callable[[MetricsFold, Any, int], None]]] = {
    Acked: _acked,
    Extended: _extended,
    Returned: _returned,
    Dead: _dead,
    Removed: _removed,
    Redriven: _redriven,
    RefusedMessages: _refused,
    ScheduleFired: _fired,
    ScheduleMissed: _missed,
    QueueRemoved: _gone,
}
