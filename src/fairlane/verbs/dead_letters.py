"""Verbs about redrives: move dead letters back to the queues they came from, or to another."""

from __future__ import annotations

from fairlane.model.views import DeadLetterFilter, RedriveView
from fairlane.verbs.verb import Request, Shape, Verb


@Verb(name="redrive", path="queues/redrive", right="admin", spread="own", command="redrive")
class Redrive(Request[RedriveView], frozen=True, kw_only=True):
    """Start moving dead letters back to their queues, or to another.

    Attributes:
        queue: the dead-letter queue.
        wanted: which dead letters to move.
        count: the most messages to move.
        rate: messages per second, at most.
        is_dry_run: only count the matching dead letters.
        target: the queue to move them to; each to the queue it came from by default.
    """

    queue: str
    wanted: DeadLetterFilter = DeadLetterFilter()
    count: int | None = None
    rate: float | None = None
    is_dry_run: bool = False
    target: str | None = None


@Verb(name="redrive_view", path="queues/redrive/view", right="observe", about="every", repeat="always")
class GetRedrive(Request[RedriveView], frozen=True, kw_only=True):
    """Return the progress of a redrive."""

    id: str


class RedriveList(Shape, frozen=True, kw_only=True):
    """Redrives, the latest last."""

    redrives: list[RedriveView]


@Verb(name="redrives", path="queues/redrive/list", right="observe", about="every", repeat="always")
class ListRedrives(Request[RedriveList], frozen=True, kw_only=True):
    """Return the redrives that run, and the last that have ended."""


@Verb(name="stop_redrive", path="queues/redrive/stop", right="admin", about="every", repeat="always")
class StopRedrive(Request[RedriveView], frozen=True, kw_only=True):
    """Stop a redrive. Messages that it has moved stay moved."""

    id: str
