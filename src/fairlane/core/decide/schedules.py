"""Schedules: set, paused, deleted, and their ticks settled.

A tick is settled by a record that is in one commit with the message it enqueues, and only if it lies beyond all that
are settled and belongs to the spec that holds now. So a tick that was computed twice, or for a spec that was replaced
while the tick waited for capacity or for a script, does nothing the second time.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from fairlane.core.checks import message_fault, text_fault, whole_fault
from fairlane.core.commands import EnqueueTick, Given, MissTicks, Tick
from fairlane.core.decide.enqueue import Outcome, enqueue
from fairlane.core.decision import Deciders, Decision, known_queue, refuse
from fairlane.core.ledger import Ledger, Queue
from fairlane.core.producer import forbidden
from fairlane.core.states.schedules import ScheduleState
from fairlane.core.ticks import overlaps
from fairlane.errors import FairlaneError, FullError, InvalidArgument, PayloadTooLarge, ScheduleNotFound
from fairlane.journal.records import (
    Enqueued,
    ScheduleFired,
    ScheduleMissed,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleSet,
)
from fairlane.model import limits
from fairlane.model.message import DEFAULT_KEY, NEVER_MS
from fairlane.model.names import is_dlq
from fairlane.model.schedules import (
    CATCH_UPS,
    OVERLAPS,
    SCHEDULE_HEADER,
    SCHEDULED_AT_HEADER,
    ScheduleSpec,
)
from fairlane.verbs.schedules import (
    DeleteSchedule,
    EnsuredSchedule,
    EnsureSchedule,
    PauseSchedule,
    ResumeSchedule,
    SetSchedule,
    SetScheduleResult,
)
from fairlane.verbs.verb import Done

_OWN_HEADERS: Final = (SCHEDULE_HEADER, SCHEDULED_AT_HEADER)
_About: TypeAlias = DeleteSchedule | PauseSchedule | ResumeSchedule


def set_schedule(ledger: Ledger, request: SetSchedule, _now_ms: int, given: Given) -> Decision[SetScheduleResult]:
    """Create a schedule, or replace it if it differs. One that a program declared is the caller's from now on."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _fault(ledger, queue, request)) is not None:
        return refuse(fault)
    known = queue.schedules.get(request.name)
    is_changed = known is None or known.spec != request.spec
    if known is not None and not is_changed and not known.is_declared:
        return Decision([], SetScheduleResult(is_created=False, is_changed=False))
    record = ScheduleSet(ledger.next_sequence, queue.name, request.name, request.spec, given.by)
    return Decision([record], SetScheduleResult(is_created=known is None, is_changed=is_changed))


def ensure_schedule(ledger: Ledger, request: EnsureSchedule, _now_ms: int, given: Given) -> Decision[EnsuredSchedule]:
    """Create a schedule, or change one that was declared; one that an operator has set stays as it is."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    if (fault := _fault(ledger, queue, request)) is not None:
        return refuse(fault)
    known = queue.schedules.get(request.name)
    if known is not None and (known.spec == request.spec or not known.is_declared):
        names = ScheduleSpec.__struct_fields__
        differing = [name for name in names if getattr(known.spec, name) != getattr(request.spec, name)]
        return Decision([], EnsuredSchedule(is_created=False, spec=known.spec, differing=differing))
    sequence, is_created = ledger.next_sequence, known is None
    record = ScheduleSet(sequence, queue.name, request.name, request.spec, given.by, is_declared=True)
    return Decision([record], EnsuredSchedule(is_created=is_created, is_changed=True, spec=request.spec))


def delete_schedule(ledger: Ledger, request: DeleteSchedule, _now_ms: int, given: Given) -> Decision[Done]:
    """Delete a schedule."""
    schedule = known_schedule(ledger, request.queue, request.name)
    if isinstance(schedule, FairlaneError):
        return refuse(schedule)
    return Decision([ScheduleRemoved(ledger.next_sequence, schedule.queue, schedule.name, given.by)], Done())


def pause_schedule(ledger: Ledger, request: PauseSchedule, _now_ms: int, given: Given) -> Decision[Done]:
    """Stop a schedule from firing."""
    return _set_paused(ledger, request, given, is_paused=True)


def resume_schedule(ledger: Ledger, request: ResumeSchedule, _now_ms: int, given: Given) -> Decision[Done]:
    """Resume a schedule that was paused."""
    return _set_paused(ledger, request, given, is_paused=False)


def _set_paused(ledger: Ledger, request: _About, given: Given, *, is_paused: bool) -> Decision[Done]:
    schedule = known_schedule(ledger, request.queue, request.name)
    if isinstance(schedule, FairlaneError):
        return refuse(schedule)
    if schedule.is_paused == is_paused:
        return Decision([], Done())
    return Decision([SchedulePaused(ledger.next_sequence, schedule.queue, schedule.name, is_paused, given.by)], Done())


def known_schedule(ledger: Ledger, queue: str, name: str) -> ScheduleState | FairlaneError:
    """Return a schedule, or the refusal if it or its queue does not exist."""
    known = known_queue(ledger, queue)
    if isinstance(known, FairlaneError):
        return known
    schedule = known.schedules.get(name)
    return schedule if schedule is not None else ScheduleNotFound(f"Queue {queue!r} has no schedule {name!r:.150}.")


# --------------------------------------------------------------------------------------------------------------- ticks


def enqueue_tick(ledger: Ledger, request: EnqueueTick, now_ms: int, given: Given) -> Decision[Outcome]:
    """Enqueue the message of a tick and settle it, unless that has happened, or only a limit refuses the message."""
    tick = request.tick
    fault = _tick_fault(ledger, request.queue, tick)
    if fault is not None:
        return refuse(fault)
    if not tick.is_manual and (skipped := _overlap(ledger, request.queue, tick)) is not None:
        return skipped
    decision = enqueue(ledger, request, now_ms, given)
    outcome = decision.outcome
    if isinstance(outcome, FairlaneError):
        return decision
    result, sequence = outcome[0], ledger.next_sequence
    if not isinstance(result, FairlaneError):
        for record in decision.records:
            if isinstance(record, Enqueued):
                sequence += record.count
                fired = ScheduleFired(sequence, request.queue, tick.schedule, tick.at_ms, record.sequence)
                fired.is_manual, fired.by = tick.is_manual, tick.by
                return Decision([record, fired], outcome, decision.bodies)
    elif not tick.is_manual and not isinstance(result, FullError):
        error = f"{result.code}: {result.cause}"[: limits.ERROR_LENGTH_MAX]
        missed = ScheduleMissed(sequence, request.queue, tick.schedule, tick.at_ms, 1, "refused", error)
        return Decision([missed], outcome)
    return decision


def _overlap(ledger: Ledger, queue: str, tick: Tick) -> Decision[Outcome] | None:
    """Skip a tick that waited for capacity while another message of its schedule came in; None if it may fire."""
    found = ledger.queues[queue]
    schedule = found.schedules[tick.schedule]
    if not overlaps(found, schedule):
        return None
    missed = ScheduleMissed(ledger.next_sequence, queue, tick.schedule, tick.at_ms, 1, "overlap")
    cause = f"Schedule {tick.schedule!r:.150} skips its tick at {tick.at_ms}, because its last message is not done."
    return Decision([missed], [ScheduleNotFound(cause)])


def miss_ticks(ledger: Ledger, command: MissTicks, _now_ms: int, _given: Given) -> Decision[None]:
    """Settle ticks that enqueue nothing, unless that has happened."""
    tick = command.tick
    if _tick_fault(ledger, command.queue, tick) is not None:
        return Decision([], None)
    missed = ScheduleMissed(
        ledger.next_sequence, command.queue, tick.schedule, tick.at_ms, command.missed, command.reason
    )
    return Decision([missed], None)


def _tick_fault(ledger: Ledger, queue: str, tick: Tick) -> FairlaneError | None:
    """Return why a tick is not to be settled any more, or None if it is."""
    schedule = known_schedule(ledger, queue, tick.schedule)
    if isinstance(schedule, FairlaneError):
        return schedule
    if tick.is_manual:
        return None
    if schedule.is_paused or schedule.revision != tick.revision or schedule.settled_ms != tick.after_ms:
        return ScheduleNotFound(f"Schedule {tick.schedule!r:.150} has changed or settled its tick at {tick.at_ms}.")
    return None


# -------------------------------------------------------------------------------------------------------------- checks


def _fault(ledger: Ledger, queue: Queue, request: SetSchedule | EnsureSchedule) -> FairlaneError | None:
    """Return why a queue can't have a schedule, or None if it can. The broker's calendar has checked the expression."""
    if is_dlq(queue.name):
        return InvalidArgument(f"Queue {queue.name!r} is a dead-letter queue, which can't have schedules.")
    if ledger.partition:
        return InvalidArgument(f"{queue.name!r} is a partition; set the schedule of the whole queue.")
    if request.name not in queue.schedules and len(queue.schedules) >= limits.SCHEDULES_MAX:
        return InvalidArgument(f"Queue {queue.name!r} has {limits.SCHEDULES_MAX} schedules, the most it can have.")
    fault = text_fault("A schedule's name", request.name, most=limits.SCHEDULE_NAME_LENGTH_MAX)
    fault = fault or spec_fault(request.spec)
    return InvalidArgument(fault) if fault is not None else _message_fault(ledger, queue, request)


def spec_fault(spec: ScheduleSpec) -> str | None:
    """Return what is wrong with a spec apart from its cron expression and its message, or None if nothing is."""
    if (spec.cron is None) == (spec.every_ms is None):
        return "A schedule needs exactly one of cron and every_ms."
    if spec.every_ms is not None and spec.timezone != "UTC":
        return f"timezone {spec.timezone!r:.100} does not apply to every_ms; use cron, or leave it out."
    if spec.cron is not None and spec.anchor_ms:
        return "anchor_ms does not apply to cron; use every_ms, or leave it out."
    if spec.catch_up not in CATCH_UPS:
        return f"catch_up must be one of {', '.join(CATCH_UPS)}, not {spec.catch_up!r:.100}."
    if spec.overlap not in OVERLAPS:
        return f"overlap must be one of {', '.join(OVERLAPS)}, not {spec.overlap!r:.100}."
    return _number_fault(spec)


def _number_fault(spec: ScheduleSpec) -> str | None:
    bounds = (
        ("every_ms", spec.every_ms, limits.SCHEDULE_EVERY_MS_MIN, limits.TIMESPAN_MS_MAX),
        ("anchor_ms", spec.anchor_ms, 0, NEVER_MS),
        ("catch_up_max", spec.catch_up_max, 1, limits.CATCH_UP_MAX),
        ("from_ms", spec.from_ms, 0, NEVER_MS),
        ("until_ms", spec.until_ms, 0, NEVER_MS),
        ("jitter_ms", spec.jitter_ms, 0, limits.TIMESPAN_MS_MAX - spec.message.delay_ms),
    )
    for name, value, least, most in bounds:
        if value is not None and (fault := whole_fault(name, value, least=least, most=most)) is not None:
            return fault
    return None


def _message_fault(ledger: Ledger, queue: Queue, request: SetSchedule | EnsureSchedule) -> FairlaneError | None:
    message = request.spec.message
    most = min(limits.SCHEDULE_PAYLOAD_BYTES_MAX, ledger.limits.payload_bytes_max)
    if (fault := message_fault(message, ledger.limits.payload_bytes_max)) is not None:
        return fault
    if len(message.payload) > most:
        cause = f"The payload of a schedule can have at most {most} bytes, not {len(message.payload)}."
        return PayloadTooLarge(f"{cause} Enqueue a reference to the data instead.")
    if message.upload is not None:
        return InvalidArgument(
            "A schedule's message cannot have an upload, which only one message can use; use payload."
        )
    if message.dedup_id is not None:
        return InvalidArgument("A schedule's message cannot have a dedup_id: the broker enqueues each tick once.")
    if message.unique_key is not None:
        return InvalidArgument('A schedule\'s message cannot have a unique_key; set overlap="skip" on the schedule.')
    if len(message.headers) + len(_OWN_HEADERS) > limits.HEADERS_MAX or set(_OWN_HEADERS) & set(message.headers):
        return InvalidArgument(f"The broker itself adds the headers {' and '.join(_OWN_HEADERS)} to each message.")
    refused = forbidden(queue, [message], [message.fairness_key or DEFAULT_KEY], None)
    return refused.get(0)


DECIDERS: Final[Deciders] = {
    SetSchedule: set_schedule,
    EnsureSchedule: ensure_schedule,
    DeleteSchedule: delete_schedule,
    PauseSchedule: pause_schedule,
    ResumeSchedule: resume_schedule,
    EnqueueTick: enqueue_tick,
    MissTicks: miss_ticks,
}
