"""What can be asked of the broker: one command for each decision.

A command carries all that the decision needs from outside: what hooks answered, what dice were thrown, what the
schedule picked. So deciding it again gives the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fairlane.errors import FairlaneError
from fairlane.journal.records import Picking, RemoveReason, ReturnReason
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.message import Key, NewMessage, Receipt
from fairlane.model.policy import QueuePolicy

NackIntent: TypeAlias = Literal["failure", "defer", "dead"]


@dataclass(slots=True, kw_only=True)
class CreateQueue:
    """Make a queue, and with it its dead-letter queue."""

    queue: str
    policy: QueuePolicy
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class UpdateQueue:
    """Give a queue another policy; with ``fields``, the one it has with these fields changed."""

    queue: str
    policy: QueuePolicy
    fields: Mapping[str, object] | None = None
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class DeleteQueue:
    """Remove a queue and its dead-letter queue, with everything in them, or only if nothing is in them."""

    queue: str
    by: str | None = None
    is_for_empty: bool = False


@dataclass(slots=True, kw_only=True)
class Pause:
    """Stop or resume handing out, of a queue or of one fairness key."""

    queue: str
    is_paused: bool
    key: Key | None = None
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class Purge:
    """Remove the messages of a queue that are not leased."""

    queue: str


@dataclass(slots=True, kw_only=True)
class Enqueue:
    """Take in new messages, each on its own.

    Attributes:
        answers: what the hook says of each.
        faults: what is wrong with each, if that was looked at before the hook was asked.
    """

    queue: str
    messages: Sequence[NewMessage]
    answers: Sequence[EnqueueAnswer | None] | None = None
    faults: Sequence[FairlaneError | None] | None = None


@dataclass(slots=True, kw_only=True)
class Stage(Enqueue):
    """Take in new messages for a batch that is yet to be published: all of them or none.

    Attributes:
        at: how many messages of the part were staged before.
    """

    sink: str
    batch: int
    part: str
    at: int


@dataclass(slots=True, kw_only=True)
class Publish:
    """Let what is staged in these parts of a batch be in the queue, in this order, once."""

    queue: str
    sink: str
    batch: int
    parts: Sequence[str]


@dataclass(slots=True, kw_only=True)
class Unstage:
    """Let go of what is staged for a sink."""

    queue: str
    sink: str


@dataclass(slots=True, kw_only=True)
class DropSink:
    """Let go of what is staged for a sink, and forget it."""

    queue: str
    sink: str
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class Lease:
    """Lease messages that the schedule has picked."""

    queue: str
    numbers: list[int]
    visibility_ms: int
    owner: str | None = None
    picking: Picking | None = None


@dataclass(slots=True, kw_only=True)
class Ack:
    """Let leased messages be done, each on its own; or, with messages to forward, all or none of them."""

    queue: str
    receipts: Sequence[Receipt]
    costs: Sequence[int | None] | None = None
    forward: Sequence[Enqueue] = ()


@dataclass(slots=True, kw_only=True)
class Nack:
    """Give leased messages back, each on its own.

    Attributes:
        delay_ms: the wait before they may go again; None for the hook's or the policy's.
        answers: what the hook says of each.
        dice: for each a number from 0 to 999, to spread retries.
    """

    queue: str
    receipts: Sequence[Receipt]
    intent: NackIntent = "failure"
    reason: ReturnReason = "failure"
    delay_ms: int | None = None
    error: str = ""
    answers: Sequence[FailureAnswer | None] | None = None
    dice: Sequence[int] = ()


@dataclass(slots=True, kw_only=True)
class Extend:
    """Let leases last so long from now, each on its own."""

    queue: str
    receipts: Sequence[Receipt]
    visibility_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Cancel:
    """Take out messages that are not leased, each on its own."""

    queue: str
    ids: Sequence[str]


@dataclass(slots=True, kw_only=True)
class Remove:
    """Let messages be gone that the schedule has put out."""

    queue: str
    numbers: list[int]
    reason: RemoveReason


@dataclass(slots=True, kw_only=True)
class SetState:
    """Write the workflow state of a leased message, or with None remove it, if it still is the version expected."""

    queue: str
    receipt: Receipt
    state: bytes | None
    etag: str | None


@dataclass(slots=True, kw_only=True)
class SetConfig:
    """Set config values, or with None remove them: all of them or none."""

    values: Mapping[str, str | None]
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class Redrive:
    """Move dead letters back to where they came from, on the terms that the enqueue flow gives them now."""

    queue: str
    numbers: list[int]
    messages: Sequence[NewMessage]
    answers: Sequence[EnqueueAnswer | None] | None = None
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class RegisterConsumer:
    """Register a consumer, or register it anew and fence whoever has its name."""

    queue: str
    consumer: str
    idle_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class Claim:
    """Let claims be done and make another, unless one is open.

    Attributes:
        picked: what the schedule has picked for it; None as long as it was not asked.
        picking: what is to be told of that.
    """

    queue: str
    consumer: str
    epoch: int
    done: int
    count: int
    size_bytes: int | None = None
    picked: list[int] | None = None
    picking: Picking | None = None


@dataclass(slots=True, kw_only=True)
class Unclaim:
    """Give back what a consumer has claimed."""

    queue: str
    consumer: str


@dataclass(slots=True, kw_only=True)
class ReleaseConsumer:
    """Give back what a consumer has claimed, and forget it."""

    queue: str
    consumer: str
    by: str | None = None


@dataclass(slots=True, kw_only=True)
class SetReader:
    """Register a reader of the journal or move it on, or with None remove it."""

    name: str
    position: int | None


@dataclass(slots=True, kw_only=True)
class Open:
    """Note that the schedule begins anew, since the instant at which it was built."""

    built_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Seal:
    """Close the present segment of the journal, of so many bytes."""

    size: int


@dataclass(slots=True, kw_only=True)
class Trim:
    """Let go of the journal before a position."""

    to: int
    passed: list[str]


@dataclass(slots=True, kw_only=True)
class MoveBase:
    """Begin to move the point that recovery begins at."""


@dataclass(slots=True, kw_only=True)
class Carry:
    """Write down again about so many of the oldest messages and dedup ids."""

    count: int


Command: TypeAlias = (
    CreateQueue
    | UpdateQueue
    | DeleteQueue
    | Pause
    | Purge
    | Enqueue
    | Stage
    | Publish
    | Unstage
    | DropSink
    | Lease
    | Ack
    | Nack
    | Extend
    | Cancel
    | Remove
    | SetState
    | SetConfig
    | Redrive
    | RegisterConsumer
    | Claim
    | Unclaim
    | ReleaseConsumer
    | SetReader
    | Open
    | Seal
    | Trim
    | MoveBase
    | Carry
)
