"""Attempts: how long a message was held under each of its leases, and how that ended.

The pipeline derives the same attempts in SQL (``spark/tables/attempts.py``); ``tests/spark/test_attempts.py`` compares
the two on random journals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlane.model.message import Key
from fairlane.spark.whatif.consumers import NEVER_ENDED, LeaseLog
from fairlane.spark.whatif.rows import ACK, DEATH, LEASE, NEVER, REMOVAL, RETURN, Flags, Ints, MessageRows, Parts

ACKED, RETURNED, DEAD, EXPIRED, EXPIRED_DEAD = range(5)
"""How an attempt ended; the last two because the lease expired, with its consumer gone."""
_LAST = 1 << 62


@dataclass(frozen=True, slots=True)
class Attempts:
    """All attempts, those of a part one after the other.

    Attributes:
        first: which is the first of each part.
        hold_ms, busy_ms, end, delay_ms, settle: see ``Recording``.
        assumed: how many have no end in the journal.
    """

    first: Ints
    hold_ms: Ints
    busy_ms: Ints
    end: Ints
    delay_ms: Ints
    settle: Ints
    assumed: int


class Leases:
    """The leases of all parts, in the order of messages, each with the row that ends it, if any."""

    def __init__(self, rows: MessageRows, parts: Parts) -> None:
        self._rows, self._parts = rows, parts
        self.row: Ints = np.flatnonzero((rows.code == LEASE) & ~parts.unknown)
        self.part: Ints = parts.of_row[self.row]
        self.after: Ints = np.minimum(self.row + 1, max(0, rows.code.size - 1))
        is_end = np.isin(rows.code[self.after], (ACK, RETURN, DEATH)) & (self.after > self.row)
        self.is_closed: Flags = is_end & (parts.of_row[self.after] == self.part)
        code, expired = rows.code[self.after], rows.is_expired[self.after]
        self.end: Ints = np.select(
            [code == ACK, (code == RETURN) & expired, code == RETURN, expired],
            [ACKED, EXPIRED, RETURNED, EXPIRED_DEAD],
            DEAD,
        )

    def attempts(self, keys: list[Key], begin_ms: Ints) -> Attempts:
        """Return all attempts. The last one of a part that has no end in the journal gets the key's median length.

        Args:
            keys: the key of each part.
            begin_ms: when the work under each lease began: its consumer may have had others to do first.
        """
        rows, count = self._rows, self._parts.start.size
        kept = np.flatnonzero(self.is_closed)
        part, end, after = self.part[kept], self.end[kept], self.after[kept]
        hold_ms = rows.at_ms[after] - rows.at_ms[self.row[kept]]
        busy_ms = np.clip(rows.at_ms[after] - begin_ms[kept], 0, hold_ms)
        goes_back = (end == RETURNED) | (end == EXPIRED)
        due_ms = rows.ints("due_ms", NEVER)[after]
        delay_ms = np.where(goes_back & (due_ms != NEVER), due_ms - rows.first_ms - rows.at_ms[after], 0)
        paid = rows.ints("cost", NEVER)[after]
        settle = np.where((end == ACKED) & (paid != NEVER), paid - rows.ints("cost", 1)[self._parts.start][part], 0)
        is_open = np.ones(count, dtype=np.bool_)
        is_open[part[~goes_back]] = False
        open_parts = np.flatnonzero(is_open)
        usual = _usual(keys, part[end == ACKED], busy_ms[end == ACKED])
        nothing = np.zeros(open_parts.size, dtype=np.int64)
        parts = np.concatenate([part, open_parts])
        sequence = np.concatenate([rows.sequence[self.row[kept]], nothing + _LAST])
        order = np.lexsort((sequence, parts))
        parts = parts[order]
        hold_ms, busy_ms = (np.concatenate([each, usual[open_parts]])[order] for each in (hold_ms, busy_ms))
        end = np.concatenate([end, nothing + ACKED])[order]
        return Attempts(
            first=np.searchsorted(parts, np.arange(count)),
            hold_ms=hold_ms,
            busy_ms=_busy(parts, hold_ms, busy_ms, end, usual),
            end=end,
            delay_ms=np.concatenate([delay_ms, nothing])[order],
            settle=np.concatenate([settle, nothing])[order],
            assumed=int(open_parts.size),
        )

    def first_of_parts(self) -> Ints:
        """Return the row of each part's first lease, -1 for none."""
        first = np.full(self._parts.start.size, NEVER, dtype=np.int64)
        first[self.part[::-1]] = self.row[::-1]  # of several the last assignment stays, which is that of the first
        return first

    def log_of(self, queue: int, throttles: list[tuple[str, ...]]) -> tuple[Ints, LeaseLog]:
        """Return the leases of a queue in order, and what they tell of its consumers.

        Leases that expired are left out, because their consumers were gone.
        """
        rows, parts = self._rows, self._parts
        mine = np.flatnonzero((rows.queue[self.row] == queue) & ~(self.is_closed & (self.end >= EXPIRED)))
        mine = mine[np.argsort(rows.sequence[self.row[mine]], kind="stable")]
        leases, part, after, closed = self.row[mine], self.part[mine], self.after[mine], self.is_closed[mine]
        is_free = np.array([not names for names in throttles], dtype=np.bool_)[part]
        was_due = rows.ints("due_ms", NEVER)[parts.start][part] == NEVER
        is_first = self.first_of_parts()[part] == leases
        was_held = rows.ints("capped_ms")[leases] + rows.ints("paused_ms")[leases] > 0
        is_told = is_free & was_due & is_first & ~was_held
        return mine, LeaseLog(
            sequence=rows.sequence[leases],
            at_ms=rows.at_ms[leases],
            record=rows.ints("record")[leases],
            owner=rows.owner[leases],
            asked=rows.ints("asked", 1)[leases],
            end_sequence=np.where(closed, rows.sequence[after], NEVER_ENDED),
            end_ms=np.where(closed, rows.at_ms[after], NEVER_ENDED),
            ready_ms=np.where(is_told, rows.at_ms[parts.start][part], NEVER),
        )


def removals(rows: MessageRows, parts: Parts) -> Ints:
    """Return the rows of parts that were purged, cancelled, dropped or acked late.

    Deadlines need no row: the replay has them.
    """
    is_taken = rows.has_reason(["purged", "cancelled", "dropped", "late"])
    return np.flatnonzero((rows.code == REMOVAL) & ~parts.unknown & is_taken)


def _busy(part: Ints, hold_ms: Ints, busy_ms: Ints, end: Ints, usual: Ints) -> Ints:
    """Return how long each attempt takes of a consumer's time. For an expired lease the journal does not tell.

    Its consumer was gone at some time before the end. The model assumes that it worked for as long as the next attempt
    at the same message took, or for the median of its key, and that another consumer took its place then.
    """
    busy_ms = busy_ms.copy()
    gone = np.flatnonzero(end >= EXPIRED)
    after = np.minimum(gone + 1, max(0, end.size - 1))
    is_told = (after > gone) & (part[after] == part[gone]) & (end[after] < EXPIRED)
    busy_ms[gone] = np.minimum(hold_ms[gone], np.where(is_told, busy_ms[after], usual[part[gone]]))
    return busy_ms


def _usual(keys: list[Key], part: Ints, busy_ms: Ints) -> Ints:
    """Return for each part the median length of its key's attempts; that of all keys for a key without any."""
    known: dict[Key, int] = {}
    codes = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
    usual = int(np.median(busy_ms)) if busy_ms.size else 0
    medians = np.full(len(known), usual, dtype=np.int64)
    if busy_ms.size:
        # One sort for all keys, and the middle of each key's stretch: a mask for each key would be quadratic.
        code = codes[part]
        held = busy_ms[np.lexsort((busy_ms, code))]
        counts = np.bincount(code, minlength=len(known))
        has_any = np.flatnonzero(counts)
        begin = (np.cumsum(counts) - counts)[has_any]
        low, high = begin + (counts[has_any] - 1) // 2, begin + counts[has_any] // 2
        medians[has_any] = (held[low] + held[high]) // 2
    return medians[codes]
