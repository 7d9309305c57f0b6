"""What records of schedules change."""

from __future__ import annotations

from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.states.schedules import ScheduleState
from fairlane.journal import records


def schedule_set(ledger: Ledger, record: records.ScheduleSet, at_ms: int) -> list[Message]:
    """Create or replace a schedule. One with another expression counts from now, or it would fire for the past."""
    queue = ledger.queues[record.queue]
    known = queue.schedules.get(record.name)
    if known is None:
        queue.schedules[record.name] = ScheduleState(
            queue=queue.name,
            name=record.name,
            spec=record.spec,
            revision=record.sequence,
            created_ms=at_ms,
            settled_ms=at_ms,
            by=record.by,
            is_declared=record.is_declared,
        )
        return []
    if known.spec.recurrence != record.spec.recurrence:
        known.settled_ms = max(known.settled_ms, at_ms)
    known.spec, known.revision, known.by = record.spec, record.sequence, record.by
    known.is_declared = record.is_declared
    return []


def schedule_removed(ledger: Ledger, record: records.ScheduleRemoved, _at_ms: int) -> list[Message]:
    """Delete a schedule."""
    del ledger.queues[record.queue].schedules[record.name]
    return []


def schedule_paused(ledger: Ledger, record: records.SchedulePaused, _at_ms: int) -> list[Message]:
    """Pause or resume a schedule."""
    ledger.queues[record.queue].schedules[record.name].is_paused = record.is_paused
    return []


def schedule_fired(ledger: Ledger, record: records.ScheduleFired, _at_ms: int) -> list[Message]:
    """Note the message of a tick, and settle the ticks up to it."""
    schedule = ledger.queues[record.queue].schedules[record.name]
    schedule.last_number = record.number
    if not record.is_manual:
        schedule.settled_ms = schedule.last_ms = record.tick_ms
        schedule.fired += 1
        schedule.error = None
    return []


def schedule_missed(ledger: Ledger, record: records.ScheduleMissed, _at_ms: int) -> list[Message]:
    """Count ticks that enqueue nothing, and settle them."""
    schedule = ledger.queues[record.queue].schedules[record.name]
    schedule.settled_ms = schedule.missed_ms = record.tick_ms
    schedule.missed += record.missed
    schedule.missed_reason, schedule.error = record.reason, record.error
    return []


def revive_schedule(queue: Queue, image: records.ScheduleImage) -> None:
    """Restore a schedule as it was when the baseline was written."""
    fields = {name: getattr(image, name) for name in image.__struct_fields__}
    queue.schedules[image.name] = ScheduleState(queue=queue.name, **fields)
