"""Verbs about redrives: move dead letters back to the queue they came from."""

from __future__ import annotations

from typing import Final

from fairlane.model.views import DeadLetterFilter, RedriveView
from fairlane.verbs.verb import Request, Shape, Verb


class Redrive(Request[RedriveView], frozen=True, kw_only=True):
    """Start moving dead letters back to their queue.

    Attributes:
        queue: the dead-letter queue.
        wanted: which dead letters to move.
        count: the most messages to move.
        rate: messages per second, at most.
        is_dry_run: only count the matching dead letters.
    """

    queue: str
    wanted: DeadLetterFilter = DeadLetterFilter()
    count: int | None = None
    rate: float | None = None
    is_dry_run: bool = False


REDRIVE: Final = Verb(
    name="redrive", request=Redrive, path="queues/redrive", right="admin", spread="own", command="redrive"
)


class GetRedrive(Request[RedriveView], frozen=True, kw_only=True):
    """Return the progress of a redrive."""

    id: str


REDRIVE_VIEW: Final = Verb(
    name="redrive_view",
    request=GetRedrive,
    path="queues/redrive/view",
    right="admin",
    about="every",
    repeat="always",
)


class RedriveList(Shape, frozen=True, kw_only=True):
    """Redrives, the latest last."""

    redrives: list[RedriveView]


class ListRedrives(Request[RedriveList], frozen=True, kw_only=True):
    """Return all redrives since the server started."""


REDRIVES: Final = Verb(
    name="redrives",
    request=ListRedrives,
    path="queues/redrive/list",
    right="admin",
    about="every",
    repeat="always",
)


class StopRedrive(Request[RedriveView], frozen=True, kw_only=True):
    """Stop a redrive. Messages that it has moved stay moved."""

    id: str


STOP_REDRIVE: Final = Verb(
    name="stop_redrive",
    request=StopRedrive,
    path="queues/redrive/stop",
    right="admin",
    about="every",
    repeat="always",
)
