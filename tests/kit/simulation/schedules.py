"""The simulation's planners: they set, pause, run and delete schedules."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlane.errors import FairlaneError
from fairlane.model.schedules import ScheduleSpec
from fairlane.verbs.schedules import (
    DeleteSchedule,
    EnsureSchedule,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleRun,
    SetSchedule,
)
from tests.kit.auditor.books import violated
from tests.kit.ids import numbered
from tests.kit.simulation.uploads import Uploaders

_NAMES = ("hourly", "digest")
_ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")


def _believe(_outcome: object) -> None:
    """Accept any answer, because the journal is checked anyway."""


class Planners(Uploaders):
    """Clients that work with schedules."""

    def set_schedule(self) -> None:
        """Create or replace a schedule, or make sure that it exists."""
        draw = self.world.workload
        kind = SetSchedule if draw.happens(0.7) else EnsureSchedule
        request = kind(queue=self._queue(), name=draw.one_of(*_NAMES), spec=self._spec())
        self.do(f"{request!r:.60}", request, _believe)

    def _spec(self) -> ScheduleSpec:
        draw = self.world.workload
        # A tick is numbered by nobody, and names its own headers; a retried one must find its message again.
        message = replace(draw.message(), dedup_id=None, unique_key=None, weight=None)
        spec = ScheduleSpec(
            message=message,
            catch_up=draw.one_of("skip", "last", "all"),
            catch_up_max=draw.one_of(1, 3, 20),
            overlap=draw.one_of("allow", "allow", "skip"),
        )
        if draw.happens(0.4):
            return replace(
                spec, cron=draw.one_of("* * * * *", "*/2 * * * *", "5 * * * *"), timezone=draw.one_of(*_ZONES)
            )
        return replace(spec, every_ms=draw.one_of(1_000, 2_500, 20_000), anchor_ms=draw.one_of(0, 700))

    def _schedule(self) -> tuple[str, str] | None:
        """Return a schedule that exists, as far as is known."""
        books = self.world.auditor.books.queues
        found = [(queue, name) for queue, book in sorted(books.items()) for name in book.schedules]
        return self.world.workload.one_of(*found) if found else None

    def pause_or_resume_schedule(self) -> None:
        """Pause a schedule, or more often resume it."""
        place = self._schedule()
        if place is not None:
            kind = PauseSchedule if self.world.workload.happens(0.4) else ResumeSchedule
            self.do(f"{kind.__name__} {place}", kind(queue=place[0], name=place[1]), _believe)

    def run_schedule(self) -> None:
        """Fire a schedule by hand."""
        place = self._schedule()
        if place is None:
            return
        queue, name = place

        def judge(outcome: Any) -> None:
            if isinstance(outcome, ScheduleRun) and numbered(outcome.id) not in self.world.auditor.books.births:
                violated(f"schedule {name} of {queue} was run as {outcome.id}, which is not there")
            elif not isinstance(outcome, (ScheduleRun, FairlaneError)):
                violated(f"schedule {name} of {queue} was run with the outcome {outcome}")

        self.do(f"run {place}", RunSchedule(queue=queue, name=name, wait_ms=0), judge)

    def delete_schedule(self) -> None:
        """Delete a schedule."""
        place = self._schedule()
        if place is not None:
            self.do(f"delete {place}", DeleteSchedule(queue=place[0], name=place[1]), _believe)
