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
from fairlane.journal.records import Picking, RemoveReason, ReturnReason
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy

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


@dataclass(slots=True, kw_only=True)
class DeleteEmptyQueue(Command[bool]):
    """Delete a queue if it and its dead-letter queue are empty. The outcome is whether it was deleted."""

    queue: str
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class RestoreConfig(Command[None]):
    """Restore the values that temporary config values have covered, where these have expired."""


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
