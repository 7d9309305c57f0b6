"""What the broker decides: the requests of verbs, and the commands that the engine gives itself.

A request is decided as it came from the caller; ``Given`` carries everything else that its decision needs from outside:
who asks, what hooks answered, what dice were thrown, what the schedule picked. So deciding it again gives the same
records. Commands are decisions that no caller can ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from fairlane.core.producer import LimitedProducer
from fairlane.errors import FairlaneError
from fairlane.journal.records import Picking, RedriveOutcome, RemoveReason, ReturnReason
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import Key, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import MissedReason
from fairlane.verbs.messages import Enqueue

O_co = TypeVar("O_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a decision needs beside its request.

    Attributes:
        by: the name of the caller, for the journal, and to tell its producers from those of others.
        producer: for new messages, who enqueues them if its grants limit what they may be.
        answers: for new messages, what the hook answered about each.
        faults: for new messages, what is wrong with each, if that was checked before the hook was called.
        has_waited: for new messages, whether they were looked up before, and wait for capacity since.
        verdicts: for failed attempts, what the hook answered about each.
        dice: for failed attempts, a number from 0 to 999 for each, to spread retries.
        reason: why leases are returned.
        parts: for a forward, what is given for the messages of each queue.
        policy: for a queue that is created or changed, its complete policy.
        picked: for a claim, what the schedule has picked; None before it was asked.
        picking: what the journal records about that.
    """

    by: str | None = None
    producer: LimitedProducer | None = None
    answers: Sequence[EnqueueAnswer | None] | None = None
    faults: Sequence[FairlaneError | None] | None = None
    has_waited: bool = False
    verdicts: Sequence[FailureAnswer | None] | None = None
    dice: Sequence[int] = ()
    reason: ReturnReason = "failure"
    parts: Mapping[str, Given] = field(default_factory=dict)
    policy: QueuePolicy | None = None
    picked: list[int] | None = None
    picking: Picking | None = None


NOTHING_GIVEN: Final = Given()


class Command(Generic[O_co]):
    """The base of commands. The type parameter is the outcome."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A tick of a schedule, of the revision that it was computed for.

    Attributes:
        after_ms: the tick up to which all were settled when this one became due. One that waits for capacity may
            outlive a failed commit with those before it, and must not be settled ahead of them.
        is_manual: whether a caller fires it, outside of its ticks.
        by: that caller, for the journal.
    """

    schedule: str
    revision: int
    at_ms: int
    after_ms: int = 0
    is_manual: bool = False
    by: str | None = None


class EnqueueTick(Enqueue, frozen=True, kw_only=True):
    """Enqueue the message of a tick, which is settled in the same commit.

    It is an enqueue like any other on its way through hooks and limits. If only a limit refuses the message, the tick
    stays due.
    """

    tick: Tick


@dataclass(slots=True, kw_only=True)
class MissTicks(Command[None]):
    """Settle ticks of a schedule without a message. ``tick`` is the latest of them."""

    queue: str
    tick: Tick
    missed: int
    reason: MissedReason


@dataclass(slots=True, kw_only=True)
class LeasePicked(Command[int]):
    """Lease the messages that the schedule has picked, for a time that the consumer requests or by their own timeouts.

    The outcome is when the leases end, apart from those of messages with timeouts of their own.
    """

    queue: str
    numbers: list[int]
    visibility_ms: int | None
    owner: str | None = None
    picking: Picking | None = None


@dataclass(slots=True, kw_only=True)
class Remove(Command[None]):
    """Remove messages that the schedule has taken out."""

    queue: str
    numbers: list[int]
    reason: RemoveReason


@dataclass(slots=True, kw_only=True)
class MoveDeadLetters(Command[int]):
    """Move dead letters to a queue, on the terms that an enqueue gives them now.

    The outcome is how many were moved.
    """

    queue: str
    target: str
    numbers: list[int]
    messages: Sequence[NewMessage]
    answers: Sequence[EnqueueAnswer | None] | None = None
    by: str | None = None
    redrive: int | None = None


@dataclass(slots=True, kw_only=True)
class EndRedrive(Command[None]):
    """End a redrive that runs, with how far it has come."""

    number: int
    status: RedriveOutcome
    scanned: int
    matched: int
    error: str | None = None
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class RecordRefusals(Command[None]):
    """Record the messages that a limit kept out of a queue, as in ``journal.records.RefusedMessages``."""

    queue: str
    code: str
    keys: list[Key | None]
    messages: list[int]
    costs: list[int]


@dataclass(slots=True, kw_only=True)
class DeleteEmptyQueue(Command[bool]):
    """Delete a queue if it and its dead-letter queue are empty. The outcome is whether it was deleted."""

    queue: str
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class PurgePart(Command[list[int]]):
    """Purge those of some messages that are still in a queue. The outcome is which were removed."""

    queue: str
    numbers: list[int]
    with_leased: bool


@dataclass(slots=True, kw_only=True)
class RestoreConfig(Command[None]):
    """Restore the values that temporary config values have covered, where these have expired."""


@dataclass(slots=True, kw_only=True)
class SweepResults(Command[None]):
    """Forget the messages that have ended and are remembered until an instant or before, with their results."""

    through_ms: int


@dataclass(slots=True, kw_only=True)
class EndFanOut(Command[None]):
    """Put the continuation of a fan-out into its queue, because all members have ended. ``number`` is the message."""

    number: int


@dataclass(slots=True, kw_only=True)
class Unclaim(Command[None]):
    """Return the claimed messages of a registered consumer to the queue."""

    queue: str
    consumer: str


@dataclass(slots=True, kw_only=True)
class Unstage(Command[None]):
    """Delete the staged messages of a sink."""

    queue: str
    sink: str


@dataclass(slots=True, kw_only=True)
class SweepUpload(Command[None]):
    """Drop an upload that has been silent for too long."""

    queue: str
    upload: int


@dataclass(slots=True, kw_only=True)
class DeletePieces(Command[None]):
    """Delete up to ``count`` of the pieces that are no longer needed."""

    count: int


@dataclass(slots=True, kw_only=True)
class Open(Command[None]):
    """Record that the schedule was built again, and when.

    Attributes:
        built_ms: when that was.
        reserved: sequences before it may have been issued already, and are skipped.
        journal_id: the id of the journal from now on: the one it has, or a new one.
    """

    built_ms: int = 0
    reserved: int = 0
    journal_id: str = ""


@dataclass(slots=True, kw_only=True)
class Seal(Command[None]):
    """Close the current segment of the journal.

    Attributes:
        size: the bytes of the segment.
    """

    size: int


@dataclass(slots=True, kw_only=True)
class Trim(Command[None]):
    """Discard the journal before a position."""

    to: int
    passed: list[str]


@dataclass(slots=True, kw_only=True)
class MoveBase(Command[None]):
    """Begin to move the position from which recovery reads."""


@dataclass(slots=True, kw_only=True)
class Carry(Command[None]):
    """Write about ``count`` of the oldest messages and dedup ids down again."""

    count: int
