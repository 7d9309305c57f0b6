"""Verbs about schedules: set, pause and delete them, fire them by hand, look at them.

All of them need the admin right on the queue. A schedule outlives the API key that set it, so the right to produce, and
a grant that is limited to some tenants, are not enough.
"""

from __future__ import annotations

import msgspec

from fairlane.model.schedules import ScheduleSpec, ScheduleView
from fairlane.verbs.verb import Done, Request, Shape, Verb


class SetScheduleResult(Shape, frozen=True, kw_only=True):
    """What ``set_schedule`` did.

    Attributes:
        is_created: whether the schedule is new.
        is_changed: whether it is new, or differs from what it was.
    """

    is_created: bool
    is_changed: bool


@Verb(
    name="set_schedule",
    path="schedules/set",
    right="admin",
    repeat="always",
    spread="first",
    command="schedule set",
)
class SetSchedule(Request[SetScheduleResult], frozen=True, kw_only=True):
    """Create a schedule, or replace it. A schedule that stays the same is not changed.

    A schedule that is replaced keeps its pause and its counts. If its expression stays the same, no tick is lost or
    repeated; a new one counts from now.

    Attributes:
        name: the name of the schedule within its queue.
        spec: what it enqueues, and when.
    """

    queue: str
    name: str
    spec: ScheduleSpec


class EnsuredSchedule(Shape, frozen=True, kw_only=True):
    """A schedule that exists now.

    Attributes:
        is_created: whether the request created it.
        is_changed: whether the request created it or changed it.
        spec: what it enqueues, and when. A schedule that an operator has set keeps what it had.
        differing: the names of the fields of the requested spec that have another value in a schedule that was kept.
    """

    is_created: bool
    is_changed: bool = False
    spec: ScheduleSpec
    differing: list[str] = msgspec.field(default_factory=list)


@Verb(
    name="ensure_schedule",
    path="schedules/ensure",
    right="admin",
    repeat="always",
    spread="first",
)
class EnsureSchedule(Request[EnsuredSchedule], frozen=True, kw_only=True):
    """Create a schedule that a program declares, or change it if the program declares it otherwise now.

    A schedule that was set with ``set_schedule`` is an operator's, and is not changed.

    Attributes:
        name: the name of the schedule within its queue.
        spec: what it enqueues, and when.
    """

    queue: str
    name: str
    spec: ScheduleSpec


@Verb(
    name="pause_schedule",
    path="schedules/pause",
    right="admin",
    repeat="always",
    spread="first",
    command="schedule pause",
)
class PauseSchedule(Request[Done], frozen=True, kw_only=True):
    """Stop a schedule from firing until it is resumed."""

    queue: str
    name: str


@Verb(
    name="resume_schedule",
    path="schedules/resume",
    right="admin",
    repeat="always",
    spread="first",
    command="schedule resume",
)
class ResumeSchedule(Request[Done], frozen=True, kw_only=True):
    """Resume a schedule that was paused. Its catch-up policy applies to the ticks that came meanwhile."""

    queue: str
    name: str


@Verb(name="delete_schedule", path="schedules/delete", right="admin", spread="first", command="schedule delete")
class DeleteSchedule(Request[Done], frozen=True, kw_only=True):
    """Delete a schedule. Messages that it has enqueued stay."""

    queue: str
    name: str


class ScheduleRun(Shape, frozen=True, kw_only=True):
    """The message that ``run_schedule`` enqueued."""

    id: str
    correlation_id: str | None = None


@Verb(
    name="run_schedule",
    path="schedules/run",
    right="admin",
    spread="first",
    is_new_work=True,
    command="schedule run",
)
class RunSchedule(Request[ScheduleRun], frozen=True, kw_only=True):
    """Enqueue the message of a schedule now. Its ticks are not affected, and it may be paused.

    Attributes:
        wait_ms: how long to wait for capacity where the queue's policy is to wait.
    """

    queue: str
    name: str
    wait_ms: int = 30_000


@Verb(
    name="get_schedule", path="schedules/get", right="admin", repeat="always", spread="first", command="schedule show"
)
class GetSchedule(Request[ScheduleView], frozen=True, kw_only=True):
    """Return a schedule with its next ticks.

    Attributes:
        upcoming: how many of the next ticks to return.
    """

    queue: str
    name: str
    upcoming: int = 5


class ScheduleList(Shape, frozen=True, kw_only=True):
    """Schedules, by queue and name."""

    schedules: list[ScheduleView]


@Verb(name="schedules", path="schedules/list", right="admin", repeat="always", spread="own", command="schedule list")
class ListSchedules(Request[ScheduleList], frozen=True, kw_only=True):
    """Return the schedules of a queue, or of all queues.

    Attributes:
        queue: the queue; all queues by default, for which the caller needs the right on all of them.
    """

    queue: str | None = None
