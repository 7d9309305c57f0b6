"""Requests about schedules: what is checked before they are decided, and how read-only ones are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.calendar import expression_fault, ticks_after
from fairlane.broker.handlers.checks import check_wait, require
from fairlane.broker.views.queues import known
from fairlane.core.checks import whole_fault
from fairlane.core.decide.schedules import known_schedule
from fairlane.core.states.schedules import ScheduleState
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.schedules import ScheduleSpec, ScheduleView
from fairlane.verbs.schedules import (
    EnsureSchedule,
    GetSchedule,
    ListSchedules,
    RunSchedule,
    ScheduleList,
    SetSchedule,
)

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

_UPCOMING_MAX: Final = 100


def _get(engine: Engine, request: GetSchedule) -> ScheduleView:
    schedule = known_schedule(engine.ledger, request.queue, request.name)
    if isinstance(schedule, FairlaneError):
        raise schedule
    return _view(engine, schedule, upcoming=request.upcoming)


def _list(engine: Engine, request: ListSchedules) -> ScheduleList:
    queues = engine.ledger.queues
    names = sorted(queues) if request.queue is None else [known(engine.ledger, request.queue).name]
    return ScheduleList(
        schedules=[_view(engine, schedule) for name in names for _, schedule in sorted(queues[name].schedules.items())]
    )


def _view(engine: Engine, schedule: ScheduleState, *, upcoming: int = 1) -> ScheduleView:
    # The ticks that came during a pause may all be missed, so they are not upcoming.
    after_ms = max(schedule.settled_ms, engine.now_ms()) if schedule.is_paused else schedule.settled_ms
    ticks = _upcoming(schedule, after_ms, max(1, upcoming))
    number, error = schedule.last_number, schedule.delayed_by or schedule.error
    return ScheduleView(
        queue=schedule.queue,
        name=schedule.name,
        spec=schedule.spec,
        is_paused=schedule.is_paused,
        created_ms=schedule.created_ms,
        by=schedule.by,
        is_declared=schedule.is_declared,
        next_ms=None if schedule.is_paused or not ticks else ticks[0],
        upcoming_ms=ticks[:upcoming],
        last_ms=schedule.last_ms,
        last_id=None if number is None else engine.ledger.ids.id_of(number),
        fired=schedule.fired,
        missed=schedule.missed,
        missed_ms=schedule.missed_ms,
        missed_reason=schedule.missed_reason,
        error=error,
    )


def _upcoming(schedule: ScheduleState, after_ms: int, count: int) -> tuple[int, ...]:
    """Return the next ticks after an instant; none if this machine does not know the time zone."""
    try:
        return tuple(islice(ticks_after(schedule.spec, after_ms), count))
    except InvalidArgument:
        return ()


READS: Final[Mapping[type, Callable[..., Any]]] = {GetSchedule: _get, ListSchedules: _list}


def _check_expression(request: SetSchedule | EnsureSchedule) -> None:
    if not isinstance(request.spec, ScheduleSpec):
        raise InvalidArgument(f"Expected a ScheduleSpec, got {type(request.spec).__name__}.")
    require(expression_fault(request.spec))


def _check_run(request: RunSchedule) -> None:
    check_wait(request.wait_ms)


def _check_get(request: GetSchedule) -> None:
    require(whole_fault("upcoming", request.upcoming, least=0, most=_UPCOMING_MAX))


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {
    SetSchedule: _check_expression,
    EnsureSchedule: _check_expression,
    RunSchedule: _check_run,
    GetSchedule: _check_get,
}
