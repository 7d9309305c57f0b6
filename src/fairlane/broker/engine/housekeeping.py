"""Housekeeping: sealing segments, trimming the journal, and keeping recovery short. A little with each commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.broker.settings import Settings
from fairlane.core.commands import Carry, Command, MoveBase, Seal, Trim
from fairlane.core.ledger import Ledger

CARRY_RATIO, DEDUP_RATIO = 4, 2
"""Recovery reads at most about so many events for each message alive and each dedup id known, plus ``CARRY_FLOOR``.

Dedup ids are forgotten in time. Were they not counted, a busy broker with a long window would carry each of them again
and again meanwhile, and do little else.
"""
CARRY_FLOOR = 500_000
CARRY_COUNT = 256
_LOOK_MS = 1_000
_COUNTS = 4
"""To count ids takes time by the queue, so it is done about so often between two baselines."""


class Housekeeper:
    """Decides when the journal needs care. Sizes are those of the pages since the broker was opened."""

    def __init__(self, ledger: Ledger, settings: Settings, *, carry_floor: int = CARRY_FLOOR) -> None:
        self._ledger = ledger
        self._settings = settings
        self._carry_floor = carry_floor
        self._segment_size = 0
        self._next_look_ms = 0
        self._next_count = 0
        self.trim_to = ledger.trimmed

    def note_page(self, size: int) -> None:
        """Take note of a page that was written."""
        self._segment_size += size

    def tend(self, execute: Callable[[Command[Any]], object], now_ms: int) -> None:
        """Do what is due, a little of it."""
        ledger = self._ledger
        if self._is_segment_full(now_ms):
            execute(Seal(size=self._segment_size))
            self._segment_size = 0
            self._next_look_ms = 0
        self._keep_recovery_short(execute)
        if ledger.segments and now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + _LOOK_MS
            to, passed = self._trim_position(now_ms)
            if to > ledger.trimmed:
                execute(Trim(to=to, passed=passed))
            self.trim_to = ledger.trimmed

    def next_seal_at(self) -> int | None:
        """Return when the present segment is old enough to be sealed, None while it has no events."""
        ledger = self._ledger
        if ledger.next_sequence - ledger.segment_first <= 1 or not ledger.segment_first_ms:
            return None
        return ledger.segment_first_ms + self._settings.segment_ms

    def _is_segment_full(self, now_ms: int) -> bool:
        ledger, settings = self._ledger, self._settings
        if ledger.next_sequence - ledger.segment_first >= settings.segment_events:
            return True
        seal_at_ms = self.next_seal_at()
        return seal_at_ms is not None and now_ms >= seal_at_ms

    def _keep_recovery_short(self, execute: Callable[[Command[Any]], object]) -> None:
        ledger = self._ledger
        if ledger.settle_base() != ledger.baseline:
            execute(Carry(count=CARRY_COUNT))
            ledger.settle_base()
        elif self._is_base_far():
            execute(MoveBase())

    def _is_base_far(self) -> bool:
        """Tell whether recovery would read too much."""
        ledger = self._ledger
        beyond = ledger.next_sequence - ledger.base - CARRY_RATIO * ledger.messages - self._carry_floor
        if beyond <= 0 or ledger.next_sequence < self._next_count:
            return False
        left = DEDUP_RATIO * sum(len(queue.dedups) for queue in ledger.queues.values()) - beyond
        self._next_count = ledger.next_sequence + left // _COUNTS
        return left < 0

    def _trim_position(self, now_ms: int) -> tuple[int, list[str]]:
        """Return up to where the journal may go, by whole segments, and the readers that have not read all of it."""
        ledger = self._ledger
        policies = (queue.policy.journal_retention_ms or 0 for queue in ledger.queues.values())
        retention_ms = max(self._settings.journal_retention_ms, *policies, 0)
        size = sum(segment.size for segment in ledger.segments)
        held_at = self._held_position(now_ms)
        to = ledger.trimmed
        for segment in ledger.segments:
            is_old = now_ms - segment.last_ms > retention_ms
            if (
                segment.end > ledger.base
                or segment.end - 1 > held_at
                or not (is_old or size > self._settings.journal_bytes_max)
            ):
                break
            to = segment.end
            size -= segment.size
        passed = [reader.name for reader in ledger.readers.values() if reader.position < to - 1]
        return to, passed

    def _held_position(self, now_ms: int) -> int:
        """Return the position of the last reader that is still waited for."""
        hold_ms = self._settings.reader_hold_ms
        positions = [reader.position for reader in self._ledger.readers.values() if now_ms - reader.at_ms <= hold_ms]
        return min(positions, default=self._ledger.next_sequence)
