"""Counts for the live feed, folded from committed records: by queue, and by key for the queues that are watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Dead,
    Enqueued,
    Leased,
    Published,
    Redriven,
    RefusedMessages,
    Removed,
    Returned,
    Terms,
)
from fairlane.model.message import Key
from fairlane.server.live.windows import KeyWindows

Lookup: TypeAlias = Callable[[str, Sequence[int]], tuple[list[Key], list[int]]]
"""Returns fairness keys and costs of a queue's messages by number, of those that still exist."""


class EventCounts(msgspec.Struct):
    """Events of one queue since the fold began."""

    enqueued: int = 0
    leased: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    removed: int = 0
    refused: int = 0


class LiveFold:
    """Counts of all queues, and the windows of the queues that viewers watch."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.counts: dict[str, EventCounts] = {}
        self.watched: dict[str, KeyWindows] = {}

    def note(self, records: Sequence[AnyRecord]) -> None:
        """Count the records of one commit."""
        for record in records:
            noted = _NOTES.get(type(record))
            if noted is not None:
                noted(self, record)

    def of(self, queue: str) -> EventCounts:
        """Return the counts of a queue."""
        counts = self.counts.get(queue)
        if counts is None:
            counts = self.counts[queue] = EventCounts()
        return counts

    def arrive(self, queue: str, terms: Terms) -> None:
        """Count messages that arrived at a queue."""
        self.of(queue).enqueued += len(terms.keys)
        windows = self.watched.get(queue)
        if windows is not None:
            windows.arrive(terms.keys, terms.costs)

    def leased(self, record: Leased) -> None:
        """Count leased messages, and by key those that were claimed.

        The keys of all other leases come from the broker directly; see ``Viewers.viewing``.
        """
        self.of(record.queue).leased += len(record.numbers)
        windows = self.watched.get(record.queue)
        if windows is not None and record.claim is not None:
            windows.serve(*self._lookup(record.queue, record.numbers))


def _enqueued(fold: LiveFold, record: Enqueued | Published) -> None:
    fold.arrive(record.queue, record.terms)


def _redriven(fold: LiveFold, record: Redriven) -> None:
    fold.of(record.queue).removed += len(record.numbers)
    fold.arrive(record.target, record.terms)


def _acked(fold: LiveFold, record: Acked) -> None:
    fold.of(record.queue).acked += len(record.numbers)


def _returned(fold: LiveFold, record: Returned) -> None:
    if record.reason == "failure":
        fold.of(record.queue).failed += len(record.numbers)


def _dead(fold: LiveFold, record: Dead) -> None:
    counts, count = fold.of(record.queue), len(record.numbers)
    counts.dead += count
    if record.ended == "failure":
        counts.failed += count
    fold.of(record.dlq).enqueued += count


def _refused(fold: LiveFold, record: RefusedMessages) -> None:
    fold.of(record.queue).refused += sum(record.messages)
    windows = fold.watched.get(record.queue)
    if windows is not None:
        windows.refuse(zip(record.keys, record.costs, strict=True))


def _removed(fold: LiveFold, record: Removed) -> None:
    fold.of(record.queue).removed += len(record.numbers)


_NOTES: Final[dict[type, Callable[[LiveFold, Any], None]]] = {
    Enqueued: _enqueued,
    Published: _enqueued,
    Redriven: _redriven,
    Leased: LiveFold.leased,
    Acked: _acked,
    Returned: _returned,
    Dead: _dead,
    Removed: _removed,
    RefusedMessages: _refused,
}
