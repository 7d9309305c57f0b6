"""What becomes of the ticks of a schedule that are due: pure rules.

Usually one tick is due, and fires. There are more, or one is late, after the broker was down, the schedule was paused,
or the queue was full; then the catch-up policy of the schedule decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from fairlane.core.ledger import Queue
from fairlane.core.states.schedules import ScheduleState
from fairlane.model.schedules import MissedReason

ON_TIME_MS: Final = 60_000
"""A tick that fires within this time is on time: a busy broker, or a takeover, takes a moment."""


@dataclass(frozen=True, slots=True)
class DueTicks:
    """What becomes of ticks that are due.

    Attributes:
        missed: those that enqueue nothing, and come first.
        reason: why.
        fired: those that enqueue a message, in order.
    """

    missed: Sequence[int] = ()
    reason: MissedReason = "late"
    fired: Sequence[int] = ()


def settle_due(schedule: ScheduleState, ticks: Sequence[int], now_ms: int) -> DueTicks:
    """Return which of the ticks that are due fire, by the catch-up policy. They ascend, and there is one at least."""
    catch_up = schedule.spec.catch_up
    if catch_up == "all":
        first = max(0, len(ticks) - schedule.spec.catch_up_max)
    elif catch_up == "last" or now_ms - ticks[-1] <= ON_TIME_MS:
        first = len(ticks) - 1
    else:
        first = len(ticks)
    return DueTicks(ticks[:first], "late", ticks[first:])


def overlaps(queue: Queue, schedule: ScheduleState) -> bool:
    """Return whether a tick is skipped because an earlier message of the schedule still waits or is leased."""
    return schedule.spec.overlap == "skip" and schedule.last_number in queue.messages


def jitter_of(schedule: ScheduleState, tick_ms: int) -> int:
    """Return by how much the message of a tick is delayed: the same time for the same tick, always."""
    jitter_ms = schedule.spec.jitter_ms
    return crc32(f"{schedule.queue}/{schedule.name}/{tick_ms}".encode()) % (jitter_ms + 1) if jitter_ms else 0


def interval_ticks(every_ms: int, anchor_ms: int, after_ms: int, until_ms: int, *, most: int) -> range:
    """Return the latest ticks of an interval after an instant and up to another, at most ``most``, in order."""
    first = (after_ms - anchor_ms) // every_ms + 1
    end = (until_ms - anchor_ms) // every_ms + 1
    first = max(first, end - most)
    return range(anchor_ms + first * every_ms, anchor_ms + end * every_ms, every_ms)
