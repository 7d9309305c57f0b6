"""Verbs about what becomes of a message: its status and its result, at once or as soon as they change."""

from __future__ import annotations

from typing import Final, TypeAlias

from fairlane.model.message import Receipt
from fairlane.model.status import ResultView, StatusView
from fairlane.verbs.verb import Done, Request, Verb


@Verb(
    name="status",
    path="message/status",
    right="produce",
    about="message",
    repeat="always",
    spread="own",
    service="Broker",
    command="message show",
)
class GetStatus(Request[StatusView], frozen=True, kw_only=True):
    """Return the status of a message: where it waits, who works on it, or how it ended.

    A message that has ended is known for its ``result_ttl_ms``. After that it is looked up in the journal, as far as
    that is kept and not more than ``SEARCH_EVENTS_MAX`` events after the message was enqueued.

    Attributes:
        queue: the queue of the message; a cluster finds the message sooner with it.
        wait_ms: how long to wait for a change, or without ``after`` for the end of the message.
        after: the version of a status; the wait ends when another one is current.
    """

    id: str
    queue: str | None = None
    wait_ms: int = 0
    after: str | None = None


@Verb(
    name="result",
    path="message/result",
    right="produce",
    about="message",
    repeat="always",
    spread="own",
    is_look=True,
    service="Broker",
    command="message result",
)
class GetResult(Request[ResultView], frozen=True, kw_only=True):
    """Return the result of a message, waiting for its end.

    Attributes:
        queue: the queue of the message; a cluster finds the message sooner with it.
        wait_ms: how long to wait for the end of the message.
    """

    id: str
    queue: str | None = None
    wait_ms: int = 0


@Verb(
    name="report_progress",
    path="queue/progress",
    right="consume",
    repeat="always",
    spread="by_id",
    service="Broker",
)
class ReportProgress(Request[Done], frozen=True, kw_only=True):
    """Report how far a leased message has come.

    The latest report is part of the message's status until the lease ends. It is not durable: a restart of the broker
    forgets it.

    Attributes:
        fraction: the part that is done, from 0 to 1.
        note: a short text, such as JSON.
    """

    queue: str
    receipt: Receipt
    fraction: float | None = None
    note: str = ""


Watching: TypeAlias = GetStatus | GetResult
"""A request that may wait for a message to change."""
WATCHING: Final = (GetStatus, GetResult)
