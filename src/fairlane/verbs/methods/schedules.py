"""Methods for schedules, for threads. Generated from its twin by ``tools/sync_verbs.py``."""

from __future__ import annotations

from fairlane.model.schedules import ScheduleSpec, ScheduleView
from fairlane.verbs import schedules
from fairlane.verbs.messages import ENQUEUE_WAIT_MS
from fairlane.verbs.methods.base import Verbs


class ScheduleVerbs(Verbs):
    """Methods for schedules, which enqueue messages by cron expressions with time zones, or at intervals.

    A schedule belongs to its queue, and is deleted with it. ``by`` names the caller in the journal of a broker in this
    process; a server uses the name of the API key.
    """

    def set_schedule(
        self, queue: str, name: str, spec: ScheduleSpec, *, by: str | None = None
    ) -> schedules.SetScheduleResult:
        """Create a schedule, or replace it. Safe to repeat: setting the same schedule again changes nothing.

        A schedule that is replaced keeps its pause and its counts. If its expression stays the same, no tick is lost or
        repeated; a new one counts from now.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge, Forbidden: nothing was changed.
        """
        return self.call(schedules.SetSchedule(queue=queue, name=name, spec=spec), by=by)

    def ensure_schedule(
        self, queue: str, name: str, spec: ScheduleSpec, *, by: str | None = None
    ) -> schedules.EnsuredSchedule:
        """Create a schedule if it does not exist. One that exists keeps its spec, so operators' changes last.

        The answer has the schedule's spec, whether it was created, and which of the given fields differ from it. Safe
        to call at every start, from many processes at once.

        Raises:
            QueueNotFound, InvalidArgument, PayloadTooLarge, Forbidden: nothing was created.
        """
        return self.call(schedules.EnsureSchedule(queue=queue, name=name, spec=spec), by=by)

    def pause_schedule(self, queue: str, name: str, *, by: str | None = None) -> None:
        """Stop a schedule from firing until it is resumed.

        Raises:
            QueueNotFound, ScheduleNotFound: nothing was paused.
        """
        self.call(schedules.PauseSchedule(queue=queue, name=name), by=by)

    def resume_schedule(self, queue: str, name: str, *, by: str | None = None) -> None:
        """Resume a schedule that was paused. Its catch-up policy applies to ticks that were due during the pause.

        Raises:
            QueueNotFound, ScheduleNotFound: nothing was resumed.
        """
        self.call(schedules.ResumeSchedule(queue=queue, name=name), by=by)

    def delete_schedule(self, queue: str, name: str, *, by: str | None = None) -> None:
        """Delete a schedule. Messages that it has enqueued stay.

        Raises:
            QueueNotFound, ScheduleNotFound: nothing was deleted.
        """
        self.call(schedules.DeleteSchedule(queue=queue, name=name), by=by)

    def run_schedule(self, queue: str, name: str, *, wait_ms: int = ENQUEUE_WAIT_MS, by: str | None = None) -> str:
        """Enqueue the message of a schedule now, and return its id. The schedule's ticks are not affected.

        Raises:
            QueueNotFound, ScheduleNotFound, QueueFull, KeyFull, GlobalFull: nothing was enqueued.
        """
        answer = self.call(schedules.RunSchedule(queue=queue, name=name, wait_ms=wait_ms), by=by)
        return answer.id

    def get_schedule(self, queue: str, name: str, *, upcoming: int = 5) -> ScheduleView:
        """Return a schedule with up to ``upcoming`` of its next ticks.

        Raises:
            QueueNotFound, ScheduleNotFound, InvalidArgument: there is no answer.
        """
        return self.call(schedules.GetSchedule(queue=queue, name=name, upcoming=upcoming))

    def schedules(self, queue: str | None = None) -> list[ScheduleView]:
        """Return the schedules of a queue, or of all queues, by queue and name.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        answer = self.call(schedules.ListSchedules(queue=queue))
        return answer.schedules
