"""The records of the journal: what was decided, of one message or of many at once.

Every record has the sequence of its first entry. A record about n messages takes n sequence numbers, so each event of
each message has a number of its own: that of its enqueue is the message's number for life, and that of its lease is
the fencing token. Columns are as long as the record has messages; None stands for a column of nothing but defaults.

Records are written as arrays. A later version may add fields at the end, with defaults, and new kinds; it never changes
the meaning of what is here, so it reads what this version wrote.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from fairlane.model.message import FailedAttempt, Key
from fairlane.model.policy import QueuePolicy
from fairlane.model.waits import WaitReasons, split_wait

ReturnReason: TypeAlias = Literal["failure", "defer", "expiry", "release"]
DeadReason: TypeAlias = Literal["max_attempts", "hook", "deadline", "requested"]
RemoveReason: TypeAlias = Literal["deadline", "dropped", "purged", "cancelled", "unstaged"]


class Record(msgspec.Struct, array_like=True, gc=False):
    """What all records have in common."""

    sequence: int

    @property
    def count(self) -> int:
        """How many sequence numbers the record takes."""
        return 1


class OfMessages(Record):
    """A record about several messages of one queue."""

    queue: str
    numbers: list[int]

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.numbers)


class Terms(msgspec.Struct, array_like=True, gc=False):
    """What the scheduler goes by, as columns: the outcome of hook, policy and producer's wish."""

    keys: list[Key]
    weights: list[int] | None = None
    """0 for a message that was given none, and leaves its key's weight as it is."""
    costs: list[int] | None = None
    priorities: list[int] | None = None
    throttles: list[list[str]] | None = None
    due_ms: list[int | None] | None = None
    deadlines_ms: list[int | None] | None = None
    caps: list[int | None] | None = None


class Enqueued(Record, tag="enqueued"):
    """New messages, numbered from ``sequence`` on. ``chunks`` says with which of them each chunk of bodies begins."""

    queue: str
    sizes: list[int]
    chunks: list[int]
    terms: Terms
    dedup_ids: list[str | None] | None = None
    dedup_until_ms: int = 0
    correlation_ids: list[str | None] | None = None
    cause: int | None = None
    """The message whose ack carried these."""

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.sizes)


class Picking(msgspec.Struct, array_like=True, gc=False):
    """How the schedule came to its pick: what a replay of the order needs, and what held the messages up.

    The three lists of milliseconds have an entry for each message, or are None if nothing held any of them up.

    Attributes:
        asked: how many messages the consumer requested. Lanes that were met without a token for the rest are parked.
        throttled_ms: how long each message waited for a throttle's token.
        capped_ms: how long each waited because a key was at its cap.
        moves: what moved the queue's parked lanes since the last pick without leaving a record: for each, the sequence
            that came next, the instant, and how many messages were requested in vain, or 0 when only time passed.
        paused_ms: how long each waited because its queue or key was paused.
    """

    asked: int
    throttled_ms: list[int] | None = None
    capped_ms: list[int] | None = None
    moves: list[tuple[int, int, int]] | None = None
    paused_ms: list[int] | None = None

    def split(self, wait_ms: int, at: int) -> WaitReasons:
        """Return the wait of one of the messages, by reason."""
        paused_ms, throttled_ms, capped_ms = self.paused_ms, self.throttled_ms, self.capped_ms
        return split_wait(
            wait_ms,
            paused_ms=paused_ms[at] if paused_ms is not None else 0,
            throttled_ms=throttled_ms[at] if throttled_ms is not None else 0,
            capped_ms=capped_ms[at] if capped_ms is not None else 0,
        )


class Leased(OfMessages, tag="leased"):
    """Messages handed out; the fencing tokens are the sequence numbers of the record."""

    expires_ms: int
    owner: str | None = None
    picking: Picking | None = None
    """None where as many came as were asked for, and nothing else is to be told."""
    claim: int | None = None
    """The number of the claim under which they were leased; the owner is then the consumer, and the end is never."""


class Extended(OfMessages, tag="extended"):
    """Leases that now last until another instant."""

    expires_ms: int


class Acked(OfMessages, tag="acked"):
    """Messages that are done, with the true costs where they were told."""

    costs: list[int | None] | None = None


class Returned(OfMessages, tag="returned"):
    """Leased messages that wait again, at the back of their line, not before an instant."""

    reason: ReturnReason
    due_ms: list[int] | None = None
    errors: list[str] | None = None


class Dead(OfMessages, tag="dead"):
    """Messages that were moved to the dead-letter queue of their queue."""

    reason: DeadReason
    ended: ReturnReason | None = None
    """How the last attempt ended, if it was one that failed."""
    errors: list[str] | None = None


class Removed(OfMessages, tag="removed"):
    """Messages that are gone without having been done."""

    reason: RemoveReason


class Redriven(OfMessages, tag="redriven"):
    """Dead letters that wait in another queue again, with their attempts forgotten."""

    target: str
    terms: Terms
    by: str | None = None


class StateSet(Record, tag="state_set"):
    """The workflow state of a leased message was written; its bytes are the body of this number."""

    queue: str
    number: int
    size: int


class StateRemoved(Record, tag="state_removed"):
    """The workflow state of a leased message was removed."""

    queue: str
    number: int


class QueueSet(Record, tag="queue_set"):
    """A queue was made or its policy changed."""

    queue: str
    policy: QueuePolicy
    by: str | None = None


class QueueRemoved(Record, tag="queue_removed"):
    """A queue is gone, with everything in it."""

    queue: str
    by: str | None = None


class QueuePaused(Record, tag="queue_paused"):
    """A queue, or one fairness key of it, was paused or resumed."""

    queue: str
    is_paused: bool
    key: Key | None = None
    by: str | None = None


class ConfigSet(Record, tag="config_set"):
    """A config value was set, or with None removed."""

    key: str
    value: str | None
    by: str | None = None


class ReaderSet(Record, tag="reader_set"):
    """A reader of the journal said how far it is, or with None was removed."""

    name: str
    position: int | None
    at_ms: int


class ConsumerSet(Record, tag="consumer_set"):
    """A consumer was registered, for the first time or anew. Its epoch is the sequence of the record."""

    queue: str
    name: str
    idle_ms: int | None = None


class ConsumerRemoved(Record, tag="consumer_removed"):
    """A consumer is registered no more; what it had claimed was given back before."""

    queue: str
    name: str
    by: str | None = None


class ClaimsEnded(Record, tag="claims_ended"):
    """A consumer's claims up to a number are over; what was leased under them was acked or given back before."""

    queue: str
    name: str
    through: int


class Staged(Record, tag="staged"):
    """New messages that wait for their batch to be published, numbered from ``sequence`` on; see ``Enqueued``."""

    queue: str
    sizes: list[int]
    chunks: list[int]
    terms: Terms
    sink: str
    batch: int
    part: str
    correlation_ids: list[str | None] | None = None

    @property
    def count(self) -> int:
        """One number for each message."""
        return len(self.sizes)


class Published(OfMessages, tag="published"):
    """Staged messages that are in their queue from now on, in this order and on these terms.

    Size and terms are told again, with delays and deadlines counted from now, so that no reader has to look for them.
    """

    sink: str
    batch: int
    sizes: list[int]
    terms: Terms


class SinkSet(Record, tag="sink_set"):
    """A sink has published up to a batch, the latest of so many messages; up to ``through`` nothing is staged."""

    queue: str
    name: str
    batch: int | None
    messages: int
    through: int


class SinkRemoved(Record, tag="sink_removed"):
    """A sink is forgotten; what was staged for it was removed before."""

    queue: str
    name: str
    by: str | None = None


class Opened(Record, tag="opened"):
    """The broker was opened or had to recover: from here on buckets start empty and deficits anew."""

    built_ms: int = 0
    """The instant since when the buckets fill."""


class Sealed(Record, tag="sealed"):
    """A run of the journal is complete as a segment, up to and without ``sequence``."""

    first: int
    first_ms: int
    last_ms: int
    size: int


class Trimmed(Record, tag="trimmed"):
    """The journal before a position is gone; these readers had not read all of it."""

    to: int
    passed: list[str]


class MessageImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a message."""

    number: int
    queue: str
    chunk: int
    size: int
    key: Key
    weight: int
    cost: int
    priority: int
    throttles: list[str]
    due_ms: int | None
    deadline_ms: int | None
    cap: int | None
    enqueued_ms: int
    joined: int
    """The sequence at which it last began to wait; 0 for one that is staged."""
    attempts: int
    failures: int
    token: int
    expires_ms: int
    owner: str | None
    errors: list[FailedAttempt]
    origin: str | None
    dead_reason: str | None
    dead_ms: int
    state: int | None
    since_ms: int = 0
    """When it last began to wait; 0 if that was at its enqueue."""


class DedupImage(msgspec.Struct, array_like=True, gc=False):
    """Dedup ids of one queue that are remembered until an instant, each with the number of its message."""

    queue: str
    until_ms: int
    numbers: dict[str, int]


class Carried(Record, tag="carried"):
    """Old messages and dedup ids, written down again so that recovery can begin later in the journal."""

    messages: list[MessageImage]
    dedups: list[DedupImage]
    dedups_before: int
    """All dedup ids written before this sequence are here, or their window is over."""


class ClaimImage(msgspec.Struct, array_like=True, gc=False):
    """An open claim: its messages in order, the first leased under ``token`` and the others under the next ones."""

    number: int
    token: int
    numbers: list[int]


class ConsumerImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a registered consumer."""

    name: str
    epoch: int
    claimed: int
    done: int
    heard_ms: int
    idle_ms: int | None
    claim: ClaimImage | None


class PartImage(msgspec.Struct, array_like=True, gc=False):
    """A staged part: runs of consecutive messages, each as its first number and its length, and their bytes."""

    batch: int
    name: str
    runs: list[tuple[int, int]]
    size: int


class SinkImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a sink, without its messages."""

    name: str
    batch: int | None
    messages: int
    heard_ms: int
    parts: list[PartImage]


class PauseImage(msgspec.Struct, array_like=True, gc=False):
    """A pause of a queue, or of one of its keys; ``until_ms`` is None while it is on."""

    key: Key | None
    from_ms: int
    until_ms: int | None


class QueueImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a queue, without its messages."""

    name: str
    policy: QueuePolicy
    created_ms: int
    is_paused: bool
    paused_keys: list[Key]
    consumers: list[ConsumerImage] = []
    sinks: list[SinkImage] = []
    pauses: list[PauseImage] = []


class ReaderImage(msgspec.Struct, array_like=True, gc=False):
    """How far a reader of the journal is, and when it said so."""

    name: str
    position: int
    at_ms: int


class SegmentImage(msgspec.Struct, array_like=True, gc=False):
    """A sealed segment: the sequences from ``first`` up to and without ``end``."""

    first: int
    end: int
    first_ms: int
    last_ms: int
    size: int


class Baseline(Record, tag="baseline"):
    """All that the ledger knows besides messages, written down so that recovery can begin later in the journal."""

    queues: list[QueueImage]
    config: dict[str, str]
    readers: list[ReaderImage]
    segments: list[SegmentImage]
    segment_first: int
    segment_first_ms: int
    trimmed: int


AnyRecord: TypeAlias = (
    Enqueued
    | Leased
    | Extended
    | Acked
    | Returned
    | Dead
    | Removed
    | Redriven
    | StateSet
    | StateRemoved
    | QueueSet
    | QueueRemoved
    | QueuePaused
    | ConfigSet
    | ReaderSet
    | ConsumerSet
    | ConsumerRemoved
    | ClaimsEnded
    | Staged
    | Published
    | SinkSet
    | SinkRemoved
    | Opened
    | Sealed
    | Trimmed
    | Carried
    | Baseline
)
