"""Records about queues, settings, consumers, sinks and schedules."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from fairlane.journal.records.base import OfMessages, Record
from fairlane.journal.records.messages import Terms
from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import MissedReason, ScheduleSpec
from fairlane.model.views import DeadLetterFilter

RedriveOutcome: TypeAlias = Literal["done", "stopped", "failed"]


class Redriven(OfMessages, tag="redriven"):
    """Dead letters were moved back to a queue; their attempts start from zero."""

    target: str
    terms: Terms
    by: str | None = None
    redrive: int | None = None
    """The number of the redrive that moved them."""


class RedriveStarted(Record, tag="redrive_started"):
    """A redrive was ordered. Its number is the sequence of the record.

    Attributes:
        queue: the queue with the dead letters.
        wanted: which of them move; ages are those at the order.
        total: how many there were that it may have to look at.
        most: how many it moves at most; None for all.
        target: the queue that they move to; None for the one that each came from.
    """

    queue: str
    wanted: DeadLetterFilter
    total: int
    most: int | None = None
    rate: float | None = None
    target: str | None = None
    by: str | None = None


class RedriveEnd(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """How a redrive ended, when, and how many dead letters it had looked at and matched by then."""

    status: RedriveOutcome
    ended_ms: int
    scanned: int
    matched: int
    error: str | None = None
    by: str | None = None


class RedriveEnded(Record, tag="redrive_ended"):
    """A redrive ended: it is done, it was stopped, or it can't go on."""

    queue: str
    number: int
    end: RedriveEnd


class QueueSet(Record, tag="queue_set"):
    """A queue was created, or its policy changed."""

    queue: str
    policy: QueuePolicy
    by: str | None = None


class QueueRemoved(Record, tag="queue_removed"):
    """A queue was removed, with everything in it."""

    queue: str
    by: str | None = None


class QueuePaused(Record, tag="queue_paused"):
    """A queue, or one fairness key of it, was paused or resumed."""

    queue: str
    is_paused: bool
    key: Key | None = None
    by: str | None = None


class ConfigSet(Record, tag="config_set"):
    """A config value was set, or with None removed; with ``expires_ms`` only until then."""

    key: str
    value: str | None
    by: str | None = None
    owner: str | None = None
    reason: str | None = None
    expires_ms: int | None = None


class ReaderSet(Record, tag="reader_set"):
    """A journal reader moved, or with None was removed."""

    name: str
    position: int | None
    at_ms: int


class ConsumerSet(Record, tag="consumer_set"):
    """A consumer was registered, or registered again. Its epoch is the sequence of the record."""

    queue: str
    name: str
    idle_ms: int | None = None


class ConsumerRemoved(Record, tag="consumer_removed"):
    """A registered consumer was removed; earlier records returned what it had claimed."""

    queue: str
    name: str
    by: str | None = None


class ClaimsEnded(Record, tag="claims_ended"):
    """A consumer's claims up to a number ended; earlier records acknowledged or returned their messages."""

    queue: str
    name: str
    through: int


class SinkSet(Record, tag="sink_set"):
    """A sink has published up to a batch, which has ``messages`` messages; up to ``through`` nothing is staged."""

    queue: str
    name: str
    batch: int | None
    messages: int
    through: int


class SinkRemoved(Record, tag="sink_removed"):
    """A sink was removed; earlier records removed what was staged for it."""

    queue: str
    name: str
    by: str | None = None


class ScheduleSet(Record, tag="schedule_set"):
    """A schedule was created or replaced. The sequence of the record is its revision.

    Attributes:
        is_declared: whether a program declared it (``ensure_schedule``), rather than an operator set it.
    """

    queue: str
    name: str
    spec: ScheduleSpec
    by: str | None = None
    is_declared: bool = False


class ScheduleRemoved(Record, tag="schedule_removed"):
    """A schedule was deleted."""

    queue: str
    name: str
    by: str | None = None


class SchedulePaused(Record, tag="schedule_paused"):
    """A schedule was paused or resumed."""

    queue: str
    name: str
    is_paused: bool
    by: str | None = None


class ScheduleFired(Record, tag="schedule_fired"):
    """A schedule enqueued its message, in the same commit.

    Attributes:
        tick_ms: the instant of the tick. All ticks up to it are settled, unless ``is_manual``.
        number: the message.
        is_manual: whether a caller fired it, outside of its ticks.
    """

    queue: str
    name: str
    tick_ms: int
    number: int
    is_manual: bool = False
    by: str | None = None


class ScheduleMissed(Record, tag="schedule_missed"):
    """Ticks of a schedule were missed: they enqueue nothing.

    Attributes:
        tick_ms: the latest of them. All ticks up to it are settled.
        missed: how many, or more if they were not all counted.
        error: why the enqueue of the latest was refused.
    """

    queue: str
    name: str
    tick_ms: int
    missed: int
    reason: MissedReason
    error: str | None = None
