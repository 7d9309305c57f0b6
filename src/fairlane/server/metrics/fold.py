"""What is counted for metrics while nobody looks: a few additions for each committed record, whatever it holds.

Of messages that are handed out each is looked at until a scrape has used up its share of time: how long it has waited
and why, and which key it is of. From then on one of 32 that are handed out together is, chosen by lot, and stands for
the others. So little is told exactly, and of much the sums and shares are right on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from fairlane.broker.measurements import Waited
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Dead,
    Enqueued,
    Extended,
    Leased,
    Published,
    QueuePaused,
    QueueRemoved,
    Redriven,
    Removed,
    Returned,
)
from fairlane.model.histogram import Histogram
from fairlane.model.message import Key
from fairlane.model.names import dlq_of
from fairlane.server.metrics.pauses import Pauses

OTHERS: Final = "_others"
KEYS_MAX: Final = 20_000
ALL_KEYS_MAX: Final = 100_000
"""So many keys of one queue, and of all, are told apart between two scrapes."""
LOOKS_MAX: Final = 20_000
"""So many messages are looked at one by one between two scrapes."""
_EVERY: Final = 32

Look: TypeAlias = Callable[[str, int], Waited | None]
"""Tells since when a message could go that was just handed out."""


class QueueCounts:
    """What has happened in one queue, or in all that share a label.

    Attributes:
        events: messages by what else happened to them, and why.
        served: cost handed out by key since it was last taken, and beside it that of all keys beyond so many.
        turn_ms: milliseconds that messages waited, added up; likewise the others, by what for.
    """

    __slots__ = (
        "acked",
        "capped_ms",
        "delayed_ms",
        "enqueued",
        "events",
        "leased",
        "paused_ms",
        "served",
        "served_others",
        "size",
        "throttled_ms",
        "turn_ms",
        "waits",
    )

    def __init__(self) -> None:
        self.enqueued = self.leased = self.acked = self.size = 0
        self.turn_ms = self.throttled_ms = self.capped_ms = self.paused_ms = self.delayed_ms = 0
        self.events: Counter[tuple[str, str]] = Counter()
        self.waits = Histogram()
        self.served: dict[Key, int] = {}
        self.served_others = 0


class MetricsFold:
    """Counts by queue. The first so many queues have a label of their own, as long as they are there."""

    def __init__(self, look: Look, *, queues_max: int, tells_keys: bool = True, chance: Random | None = None) -> None:
        self._look = look
        self._keys_left = ALL_KEYS_MAX if tells_keys else 0
        self._keys_max = KEYS_MAX if tells_keys else 0
        self._queues_max = queues_max
        self._chance = chance if chance is not None else Random()  # noqa: S311 - nothing secret
        self._looks_left = LOOKS_MAX
        self.queues: dict[str, QueueCounts] = {}
        self.pauses = Pauses()

    def note(self, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Take in what was committed together."""
        for record in records:
            kind = type(record)
            if kind is Leased:
                self._leased(record, now_ms)  # type: ignore[arg-type] # it is one
            elif kind is Enqueued or kind is Published:
                self._enqueued(record)  # type: ignore[arg-type] # likewise
            elif kind in _NOTES:
                _NOTES[kind](self, record, now_ms)

    def of(self, queue: str) -> QueueCounts:
        """Return the counts of a queue, or of the queues that share its label."""
        counts = self.queues.get(queue)
        if counts is None:
            name = queue if len(self.queues) < self._queues_max else OTHERS
            counts = self.queues.get(name)
            if counts is None:
                counts = self.queues[name] = QueueCounts()
        return counts

    def forget(self, queue: str) -> None:
        """Forget a queue that is gone."""
        counts = self.queues.pop(queue, None)
        if counts is not None:
            self._keys_left += len(counts.served)

    def take_served(self) -> dict[str, tuple[dict[Key, int], int]]:
        """Return for each label the cost that was handed out since the last time by key, and to all other keys."""
        self._looks_left = LOOKS_MAX
        taken = {}
        for name, counts in self.queues.items():
            taken[name] = (counts.served, counts.served_others)
            self._keys_left += len(counts.served)
            counts.served, counts.served_others = {}, 0
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
        step = 1 if self._looks_left >= total else _EVERY
        self._looks_left -= total
        for begin in range(0, total, step):
            weight = min(step, total - begin)
            place = begin if weight == 1 else begin + int(self._chance.random() * weight)
            waited = self._look(queue, numbers[place])
            if waited is not None:
                self._served(counts, record, place, waited, weight, now_ms)

    def _served(
        self, counts: QueueCounts, record: Leased, place: int, waited: Waited, weight: int, now_ms: int
    ) -> None:
        """Count a message that stands for so many."""
        key, cost, since_ms, delayed_ms = waited
        served = counts.served
        known = served.get(key)
        if known is not None:
            served[key] = known + cost * weight
        elif self._keys_left > 0 and len(served) < self._keys_max:
            served[key] = cost * weight
            self._keys_left -= 1
        else:
            counts.served_others += cost * weight
        if since_ms is None:
            return
        wait_ms = max(0, now_ms - since_ms)
        counts.waits.note(wait_ms / 1000, weight)
        if record.picking is not None or self.pauses or delayed_ms:
            wait_ms -= self._held_ms(counts, record, place, waited, weight, now_ms)
        counts.turn_ms += max(0, wait_ms) * weight

    def _held_ms(
        self, counts: QueueCounts, record: Leased, place: int, waited: Waited, weight: int, now_ms: int
    ) -> int:
        """Count why a message could not go, and return for how long since it was due."""
        picking, since_ms = record.picking, waited.since_ms or 0
        throttled_ms = capped_ms = 0
        if picking is not None and picking.throttled_ms is not None and picking.capped_ms is not None:
            throttled_ms, capped_ms = picking.throttled_ms[place], picking.capped_ms[place]
        paused_ms = self.pauses.within(record.queue, waited.key, since_ms, now_ms)
        counts.delayed_ms += weight * waited.delayed_ms
        counts.throttled_ms += weight * throttled_ms
        counts.capped_ms += weight * capped_ms
        counts.paused_ms += weight * paused_ms
        return throttled_ms + capped_ms + paused_ms


def _acked(fold: MetricsFold, record: Acked, _now_ms: int) -> None:
    fold.of(record.queue).acked += len(record.numbers)


def _extended(fold: MetricsFold, record: Extended, _now_ms: int) -> None:
    fold.of(record.queue).events["extended", ""] += len(record.numbers)


def _returned(fold: MetricsFold, record: Returned, _now_ms: int) -> None:
    fold.of(record.queue).events["returned", record.reason] += len(record.numbers)


def _dead(fold: MetricsFold, record: Dead, _now_ms: int) -> None:
    fold.of(record.queue).events["dead", record.reason] += len(record.numbers)
    fold.of(dlq_of(record.queue)).enqueued += len(record.numbers)


def _removed(fold: MetricsFold, record: Removed, _now_ms: int) -> None:
    fold.of(record.queue).events["removed", record.reason] += len(record.numbers)


def _redriven(fold: MetricsFold, record: Redriven, _now_ms: int) -> None:
    fold.of(record.queue).events["redriven", ""] += len(record.numbers)
    fold.of(record.target).enqueued += len(record.numbers)


def _paused(fold: MetricsFold, record: QueuePaused, now_ms: int) -> None:
    fold.pauses.note(record.queue, record.key, now_ms, is_paused=record.is_paused)


def _gone(fold: MetricsFold, record: QueueRemoved, _now_ms: int) -> None:
    fold.forget(record.queue)
    fold.pauses.forget(record.queue)


_NOTES: Final[dict[type, Callable[[MetricsFold, AnyRecord, int], None]]] = {
    Acked: _acked,  # type: ignore[dict-item] # each is called with its own kind
    Extended: _extended,  # type: ignore[dict-item] # likewise
    Returned: _returned,  # type: ignore[dict-item] # likewise
    Dead: _dead,  # type: ignore[dict-item] # likewise
    Removed: _removed,  # type: ignore[dict-item] # likewise
    Redriven: _redriven,  # type: ignore[dict-item] # likewise
    QueuePaused: _paused,  # type: ignore[dict-item] # likewise
    QueueRemoved: _gone,  # type: ignore[dict-item] # likewise
}
