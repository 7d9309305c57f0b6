"""Options of one call of a task: when it runs, for whom, and how it competes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias, TypedDict

from fairlane.errors import InvalidArgument
from fairlane.model.durations import milliseconds
from fairlane.model.message import PRIORITY_NAMES, Key, MessageTerms, PriorityName
from fairlane.model.spelling import did_you_mean

Duration: TypeAlias = str | timedelta
"""A time span: a text such as ``"5m"`` or ``"1h30m"``, or a ``timedelta``."""


class SendTerms(TypedDict, total=False):
    """Options of one call of a task; see ``SendOptions``."""

    delay: Duration | None
    at: datetime | None
    deadline: Duration | None
    key: Key | None
    weight: int | None
    cost: int | None
    priority: PriorityName | None
    throttles: tuple[str, ...]
    dedup_id: str | None
    unique: str | None
    order_key: str | None
    correlation_id: str | None
    max_attempts: int | None
    result_ttl: Duration | None
    headers: Mapping[str, str]
    timeout: float | None
    wait: Duration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Options of one call of a task. None leaves a decision to the task, its queue, or the app.

    Attributes:
        delay: how long from now the job may not start.
        at: when the job may start, as a datetime with a time zone.
        deadline: how long from now the job may still start.
        key: the fairness key, in place of the one that the task derives.
        weight: the share of the key relative to others.
        cost: what the job takes from its key's share.
        priority: ``high``, ``normal`` or ``low``, among the jobs of its key.
        throttles: names of throttles that the job waits for.
        dedup_id: a second job of the same tenant with the same id, within the queue's window, is not enqueued.
        unique: while a job of the same task and tenant with the same value waits or runs, another is not enqueued.
        order_key: in a queue with strict order, jobs with the same fairness key and order key stay in order.
        correlation_id: a name that follows the job through logs and traces.
        max_attempts: failed attempts before the job becomes a dead letter.
        result_ttl: how long what the task returns is kept, and how the job ended.
        headers: text by name.
        timeout: how many seconds the call may take; by default the app's timeout.
        wait: how long to wait for capacity where the queue's policy is to wait.
    """

    delay: Duration | None = None
    at: datetime | None = None
    deadline: Duration | None = None
    key: Key | None = None
    weight: int | None = None
    cost: int | None = None
    priority: PriorityName | None = None
    throttles: tuple[str, ...] = ()
    dedup_id: str | None = None
    unique: str | None = None
    order_key: str | None = None
    correlation_id: str | None = None
    max_attempts: int | None = None
    result_ttl: Duration | None = None
    headers: Mapping[str, str] | None = None
    timeout: float | None = None
    wait: Duration | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise InvalidArgument("Pass either delay or at, not both.")
        if self.at is not None and self.at.tzinfo is None:
            raise InvalidArgument(f"at={self.at.isoformat()} has no time zone; use an aware datetime, such as in UTC.")
        if self.priority not in (None, *PRIORITY_NAMES):
            raise InvalidArgument(f"priority must be one of {', '.join(PRIORITY_NAMES)}, not {self.priority!r}.")
        for name in ("delay", "deadline", "result_ttl", "wait"):
            span_ms(name, getattr(self, name))

    def changed(self, terms: SendTerms) -> SendOptions:
        """Return these options with some of them replaced."""
        check_names(terms, SendTerms, of="a job")
        return replace(self, **terms)

    @property
    def keeps_result(self) -> bool | None:
        """Whether the job keeps its result; None if that is not decided here."""
        ttl_ms = span_ms("result_ttl", self.result_ttl)
        return None if ttl_ms is None else ttl_ms > 0

    @property
    def at_ms(self) -> int | None:
        """The instant before which the job may not start, if there is one."""
        return None if self.at is None else round(self.at.timestamp() * 1000)

    def terms(self, now_ms: int) -> MessageTerms:
        """Return the terms of the message, for a call at an instant."""
        at_ms = self.at_ms
        return {
            "delay_ms": span_ms("delay", self.delay) or 0 if at_ms is None else max(0, at_ms - now_ms),
            "deadline_ms": span_ms("deadline", self.deadline),
            "weight": self.weight,
            "cost": self.cost,
            "priority": self.priority,
            "throttles": tuple(self.throttles),
            "dedup_id": self.dedup_id,
            "correlation_id": self.correlation_id,
            "max_attempts": self.max_attempts,
            "result_ttl_ms": span_ms("result_ttl", self.result_ttl),
        }


def check_names(given: Iterable[str], known: type, *, of: str) -> None:
    """Raise InvalidArgument if a name is not among those of a ``TypedDict``."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise InvalidArgument(f"{name!r} is not an option of {of}.{did_you_mean(name, names)}")


def span_ms(name: str, span: object) -> int | None:
    """Return the milliseconds of a ``Duration``, or None for None. Raises InvalidArgument if it is neither."""
    if span is None:
        return None
    if isinstance(span, timedelta):
        return round(span / timedelta(milliseconds=1))
    if not isinstance(span, str):
        cause = f"{name} is {span!r}; expected a text with a unit"
        raise InvalidArgument(f'{cause}, such as "90s" or "5m", or a timedelta.')
    try:
        return milliseconds(span)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from error
