"""Housekeeping: sealing segments, trimming the journal, and keeping recovery short. A little with each commit.

*Recovery stays short* without snapshots, which would make commits wait. When the journal from the base on has grown too
long for what is alive, a *baseline* is written: everything but the messages, which is small. From then on each commit
*carries* a few of the oldest messages that are still alive, that is, writes them down again as they are now. Once
nothing alive is described only before the baseline, the baseline is the new base, and recovery reads from there.
"""

from __future__ import annotations

from fairlane.broker.cycle import Cycle, Executor
from fairlane.broker.settings import Settings
from fairlane.core.commands import Carry, MoveBase, Seal, Trim
from fairlane.core.ledger import Ledger

CARRY_RATIO, DEDUP_RATIO = 4, 2
"""Recovery reads at most about this many events for each message alive and each dedup id known, plus ``CARRY_FLOOR``.

Dedup ids are forgotten in time. Were they not counted, a busy broker with a long window would carry each of them again
and again meanwhile, and do little else.
"""
CARRY_FLOOR = 500_000
CARRY_COUNT = 256
_LOOK_MS = 1_000
_COUNTS = 4
"""Counting dedup ids takes time in proportion to the queues, so it is done about this often between two baselines."""


class Housekeeper:
    """Decides when the journal needs care.

    Attributes:
        trim_to: the position up to which the next commit deletes pages.
        due_sequence, due_ms: ``tend`` has nothing to do before the journal reaches the one or time the other. They
            may be too early, never too late.
        segment_size: the bytes of the pages of the present segment, as far as they were written since opening.
    """

    def __init__(self, ledger: Ledger, settings: Settings, *, carry_floor: int = CARRY_FLOOR) -> None:
        self._ledger = ledger
        self._settings = settings
        self._carry_floor = carry_floor
        self._next_look_ms = 0
        self._next_count = 0
        self.segment_size = 0
        self.trim_to = ledger.trimmed
        self.due_sequence = self.due_ms = 0

    def tend(self, executor: Executor, cycle: Cycle) -> None:
        """Do what is due, a little of it."""
        ledger, settings, now_ms = self._ledger, self._settings, cycle.now_ms
        events, first_ms = ledger.next_sequence - ledger.segment_first, ledger.segment_first_ms
        is_old = events > 1 and first_ms and now_ms >= first_ms + settings.segment_ms
        if is_old or events >= settings.segment_events:
            executor.execute(Seal(size=self.segment_size), cycle)
            self.segment_size = 0
            self._next_look_ms = 0
        if ledger.base != ledger.baseline and ledger.settle_base() != ledger.baseline:
            executor.execute(Carry(count=CARRY_COUNT), cycle)
            ledger.settle_base()
        elif (
            ledger.next_sequence - ledger.base - CARRY_RATIO * ledger.messages > self._carry_floor
            and self._is_base_far()
        ):
            executor.execute(MoveBase(), cycle)
        if ledger.segments and now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + _LOOK_MS
            to, passed = self._trim_position(now_ms)
            if to > ledger.trimmed:
                executor.execute(Trim(to=to, passed=passed), cycle)
            self.trim_to = ledger.trimmed
        self._set_due()

    def _set_due(self) -> None:
        ledger, settings = self._ledger, self._settings
        if ledger.base != ledger.baseline or not ledger.segment_first_ms:
            self.due_sequence = self.due_ms = 0  # there is more to carry, or the first event of a segment is to come
            return
        # Messages alive only push the end of the allowance further away, so leaving them out is early, never late.
        self.due_sequence = min(ledger.segment_first + settings.segment_events, ledger.base + self._carry_floor + 1)
        self.due_ms = ledger.segment_first_ms + settings.segment_ms
        if ledger.segments:
            self.due_ms = min(self.due_ms, self._next_look_ms)

    def next_seal_at(self) -> int | None:
        """Return when the present segment is old enough to be sealed; None while it has no events."""
        ledger = self._ledger
        if ledger.next_sequence - ledger.segment_first <= 1 or not ledger.segment_first_ms:
            return None
        return ledger.segment_first_ms + self._settings.segment_ms

    def _is_base_far(self) -> bool:
        """Return whether recovery would read too much even if dedup ids are counted, which takes a while."""
        ledger = self._ledger
        if ledger.next_sequence < self._next_count:
            return False
        beyond = ledger.next_sequence - ledger.base - CARRY_RATIO * ledger.messages - self._carry_floor
        ids = sum(len(queue.dedups) for queue in ledger.queues.values())
        runs = sum(len(known) for known in ledger.producer_numbers.values())
        left = DEDUP_RATIO * (ids + runs + len(ledger.finished)) - beyond
        # Every event may bring at most one id nearer to the end of its window: look again when a part has passed.
        self._next_count = ledger.next_sequence + left // _COUNTS
        return left < 0

    def _trim_position(self, now_ms: int) -> tuple[int, list[str]]:
        """Return how far the journal may be trimmed, by whole segments, and which readers have not read so far."""
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
        """Return the position of the slowest reader that still holds the journal back."""
        hold_ms = self._settings.reader_hold_ms
        positions = [reader.position for reader in self._ledger.readers.values() if now_ms - reader.at_ms <= hold_ms]
        return min(positions, default=self._ledger.next_sequence)
