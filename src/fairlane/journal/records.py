"""The records of the journal: one decision each, about one message or many.

Every record has the sequence of its first event. A record about n messages takes n sequence numbers, so each event of
each message has its own: that of the enqueue is the message's number for life, and that of the lease is the fencing
token. Columns have an entry for each message; None stands for a column of defaults.

Records are encoded as arrays. A later version may append fields with defaults, and add kinds; it never changes the
meaning of existing ones, so it can read what this version wrote.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from fairlane.model.message import FailureDetail, Key
from fairlane.model.names import dlq_of
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import MissedReason, ScheduleSpec
from fairlane.model.status import Ending
from fairlane.model.views import DeadLetterFilter
from fairlane.model.waits import WaitReasons, split_wait

ReturnReason: TypeAlias = Literal["failure", "defer", "expiry", "release"]
LOST: Final = frozenset(("expiry", "release"))
"""Why leases end without a word from their holder. They count as attempts, but not as failures."""
DeadReason: TypeAlias = Literal["max_attempts", "max_expiries", "hook", "deadline", "requested", "members"]
RemoveReason: TypeAlias = Literal["deadline", "dropped", "purged", "cancelled", "unstaged"]
RedriveOutcome: TypeAlias = Literal["done", "stopped", "failed"]
Runs: TypeAlias = list[tuple[int, int]]
"""Runs of consecutive numbers: the first of each, and how many."""
UploadDropReason: TypeAlias = Literal["silence", "requested"]


class Record(msgspec.Struct, array_like=True, gc=False):
    """The base of all records."""

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
    """The terms that messages compete under, as columns: the outcome of hook, policy and producer's request."""

    keys: list[Key]
    weights: list[int] | None = None
    """0 for a message without one, which leaves its key's weight unchanged."""
    costs: list[int] | None = None
    priorities: list[int] | None = None
    throttles: list[list[str]] | None = None
    due_ms: list[int | None] | None = None
    deadlines_ms: list[int | None] | None = None
    caps: list[int | None] | None = None
    max_attempts: list[int | None] | None = None
    visibilities_ms: list[int | None] | None = None
    result_ttls_ms: list[int | None] | None = None
    order_keys: list[str | None] | None = None
    unique_keys: list[str | None] | None = None


class Numbered(msgspec.Struct, array_like=True, gc=False):
    """The numbers that new messages have among those of their producer; see ``core/producer_numbers.py``.

    Attributes:
        caller: the name of the API key that the producer used, empty for none.
        numbers: one for each message, or only the first if the others follow it.
    """

    caller: str
    producer: str
    numbers: list[int]


class FinishedImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a message that has ended."""

    number: int
    queue: str
    key: Key
    ending: Ending
    enqueued_ms: int
    finished_ms: int
    until_ms: int
    attempts: int = 0
    body: int = 0
    size: int = 0
    note: str | None = None


class Enqueued(Record, tag="enqueued"):
    """New messages, numbered from ``sequence`` on. ``chunks`` has the index of the first message of each chunk."""

    queue: str
    sizes: list[int]
    chunks: list[int]
    terms: Terms
    dedup_ids: list[str | None] | None = None
    dedup_until_ms: int = 0
    correlation_ids: list[str | None] | None = None
    cause: int | None = None
    """The message whose acknowledgement enqueued these."""
    numbered: Numbered | None = None
    """For messages that their producer has numbered. They count until ``dedup_until_ms``, too."""
    uploads: list[int | None] | None = None
    """The upload that each message takes its payload from, None for a payload in a chunk."""

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
        moves: what moved parked lanes since the last pick without leaving a record, in this queue and in those that
            share a throttle with it: for each, the sequence that came next, the instant, how many messages were
            requested in vain, or 0 when only time passed, and the queue, empty for this one.
        paused_ms: how long each waited because its queue or key was paused.
        is_single: with strict order, whether the consumer could have had several messages of a key, and was given one
            of each, since it handles them at the same time.
    """

    asked: int
    throttled_ms: list[int] | None = None
    capped_ms: list[int] | None = None
    moves: list[tuple[int, int, int, str]] | None = None
    paused_ms: list[int] | None = None
    is_single: bool = False

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
    """Messages were leased; the fencing tokens are the sequence numbers of the record."""

    expires_ms: int
    owner: str | None = None
    picking: Picking | None = None
    """None if as many messages were found as requested, and nothing held them up."""
    claim: int | None = None
    """The number of the claim; the owner is then the registered consumer, and the lease has no end."""
    ends_ms: list[int] | None = None
    """When each lease expires, if not all of them do at ``expires_ms``."""


class Extended(OfMessages, tag="extended"):
    """Leases were extended or shortened."""

    expires_ms: int


class Acked(OfMessages, tag="acked"):
    """Messages were acknowledged, with their true costs where consumers reported them."""

    costs: list[int | None] | None = None
    is_late: bool = False
    """Whether their leases had expired, and they were waiting again."""
    finished: list[FinishedImage] | None = None
    """Those that are remembered, whole: on recovery the messages themselves may be unknown."""


class Returned(OfMessages, tag="returned"):
    """Leased messages were returned: they wait again, not before an instant.

    They wait behind those of their key, or with strict order at the places that they had.
    """

    reason: ReturnReason
    due_ms: list[int] | None = None
    errors: list[str] | None = None
    detail: FailureDetail | None = None
    """Where and how the attempts failed, which is the same for all."""


class Dead(OfMessages, tag="dead"):
    """Messages were moved to a dead-letter queue."""

    reason: DeadReason
    ended: ReturnReason | None = None
    """How the last attempt ended, if a lease was the occasion."""
    errors: list[str] | None = None
    target: str | None = None
    """The dead-letter queue, if it is not the queue's own."""
    detail: FailureDetail | None = None
    """Where and how the attempts failed, which is the same for all."""

    @property
    def dlq(self) -> str:
        """The dead-letter queue."""
        return dlq_of(self.queue) if self.target is None else self.target


class Removed(OfMessages, tag="removed"):
    """Messages were removed without being acknowledged."""

    reason: RemoveReason
    finished: list[FinishedImage] | None = None
    """Those that are remembered, whole: on recovery the messages themselves may be unknown."""
    note: str | None = None
    """Why they were cancelled, if the caller said so."""
    by: str | None = None
    """Who cancelled them, if known."""


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


class StateSet(Record, tag="state_set"):
    """The workflow state of a leased message was written; its bytes are the body of this number."""

    queue: str
    number: int
    size: int


class StateRemoved(Record, tag="state_removed"):
    """The workflow state of a leased message was removed."""

    queue: str
    number: int


class ResultsSwept(Record, tag="results_swept"):
    """The ends of messages that were remembered until this instant or before were forgotten, with their results."""

    through_ms: int


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


class Staged(Record, tag="staged"):
    """New messages were staged for a batch, numbered from ``sequence`` on; see ``Enqueued``."""

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
    """Staged messages entered their queue, in this order and on these terms.

    Sizes and terms are repeated, with delays and deadlines counted from now, so that readers need not look them up.
    """

    sink: str
    batch: int
    sizes: list[int]
    terms: Terms


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


class RefusedMessages(Record, tag="refused"):
    """Messages that a limit kept out of a queue since about a second before, summed up by key.

    Attributes:
        code: the code of the error that producers got.
        keys: the fairness keys of the messages; None stands for keys that are not known, or too many to name.
        messages: how many messages each key had refused.
        costs: what they would have cost.
    """

    queue: str
    code: str
    keys: list[Key | None]
    messages: list[int]
    costs: list[int]

    @property
    def count(self) -> int:
        """One number for each key."""
        return len(self.keys)


class ScheduleSet(Record, tag="schedule_set"):
    """A schedule was created or replaced. The sequence of the record is its revision."""

    queue: str
    name: str
    spec: ScheduleSpec
    by: str | None = None


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


class FannedOut(Record, tag="fanned_out"):
    """Messages were enqueued, and one more was staged, without a sink: it waits until all of these have ended.

    Attributes:
        queue: the queue of the continuation, which is the message that waits.
        name: what its producer calls the fan-out.
        number: the continuation.
        members: the messages that it waits for, by queue.
        window_ms: how long after the end the name is known.
        runs_anyway: whether the continuation runs even if a member fails.
    """

    queue: str
    name: str
    number: int
    members: dict[str, Runs]
    window_ms: int
    runs_anyway: bool = False


class UploadBegun(Record, tag="upload_begun"):
    """A caller begins to upload a payload; the sequence is the number of the upload. All pieces have one size."""

    queue: str
    piece_bytes: int
    by: str | None = None
    expected: int | None = None
    """The size of the payload, if the caller knows it."""


class PieceStored(Record, tag="piece_stored"):
    """A piece of an upload arrived; its bytes are the body of this sequence."""

    queue: str
    upload: int
    index: int
    size: int


class UploadDropped(Record, tag="upload_dropped"):
    """An upload that no message has taken is given up, and its pieces are discarded."""

    queue: str
    upload: int
    reason: UploadDropReason
    by: str | None = None


class PiecesDeleted(Record, tag="pieces_deleted"):
    """The store deletes some of the pieces that were discarded, the oldest first."""

    numbers: list[int]


class Opened(Record, tag="opened"):
    """The broker was opened or recovered: buckets start empty and deficits from zero."""

    built_ms: int = 0
    """The instant from which on the buckets fill."""
    journal_id: str = ""
    """The id of the journal. Each opening repeats it, since the beginning of the journal is trimmed in time."""


class Skipped(Record, tag="skipped"):
    """Sequence numbers that are never used: they may have been issued before, by a broker whose commits were lost."""

    numbers: int

    @property
    def count(self) -> int:
        """All that are skipped."""
        return self.numbers


class Sealed(Record, tag="sealed"):
    """A segment of the journal is complete, up to and without ``sequence``."""

    first: int
    first_ms: int
    last_ms: int
    size: int


class Trimmed(Record, tag="trimmed"):
    """The journal before a position was deleted; ``passed`` are the readers that had not read all of it."""

    to: int
    passed: list[str]


class PiecesImage(msgspec.Struct, array_like=True, gc=False):
    """The pieces of a streamed payload: the size of each but the last, and the number of the body of each."""

    piece_bytes: int
    numbers: list[int]


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
    """The sequence at which it last began to wait, or with strict order came; 0 for one that is staged."""
    attempts: int
    failures: int
    token: int
    expires_ms: int
    owner: str | None
    errors: list[tuple[int, int, str, str]]
    """The fields of each ``FailedAttempt`` that is kept."""
    origin: str | None
    dead_reason: str | None
    dead_ms: int
    state: int | None
    since_ms: int = 0
    """When it last began to wait; 0 if that was at its enqueue."""
    correlation_id: str | None = None
    expiries: int = 0
    late_token: int = 0
    max_attempts: int | None = None
    visibility_ms: int | None = None
    dead_at: int = 0
    """The sequence at which it became a dead letter; 0 for others."""
    leased_ms: int = 0
    result_ttl_ms: int | None = None
    details: list[FailureDetail | None] | None = None
    """Where and how each attempt of ``errors`` failed; None if that is known of none."""
    pieces: PiecesImage | None = None
    order_key: str | None = None
    unique_key: str | None = None


class RedriveImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a redrive."""

    order: RedriveStarted
    started_ms: int
    moved: int
    end: RedriveEnd | None


class FanOutImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a fan-out; see ``core/states/fan_outs.py``."""

    order: FannedOut
    open: dict[str, Runs]
    done: int = 0
    failed: int = 0
    until_ms: int = 0


class DedupImage(msgspec.Struct, array_like=True, gc=False):
    """Dedup ids of one queue that are kept until an instant, under their tenants, each with its message's number."""

    queue: str
    until_ms: int
    numbers: dict[str, int]


class NumberedRun(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Messages of one enqueue that their producer has numbered: ``first``, and the ``count`` - 1 numbers that follow.

    Attributes:
        sequence: the sequence of the first message; the others follow it.
        until_ms: when the window of their queue is over.
        bitmap: for numbers with gaps, a bit for each number, the lowest first, from the last multiple of 128 on.
    """

    first: int
    count: int
    sequence: int
    until_ms: int
    bitmap: bytes | None = None


class ProducerImage(msgspec.Struct, array_like=True, gc=False):
    """A producer that numbers its messages, in one queue. Numbers below ``floor`` may have been forgotten."""

    queue: str
    producer: str
    floor: int


class CallerImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of one caller's producers: the runs, oldest first, and the producer of each."""

    caller: str
    producers: list[ProducerImage]
    owners: list[int]
    runs: list[NumberedRun]


class Carried(Record, tag="carried"):
    """Old messages, dedup ids and producers, repeated so that recovery can begin later in the journal."""

    messages: list[MessageImage]
    dedups: list[DedupImage]
    dedups_before: int
    """All dedup ids written before this sequence are here, or their window is over."""
    callers: list[CallerImage] = []
    finished: list[FinishedImage] = []


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


class UploadImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of an open upload; ``numbers`` has 0 for a piece that has not arrived."""

    number: int
    caller: str
    piece_bytes: int
    heard_ms: int
    size: int
    short_at: int | None
    numbers: list[int]
    expected: int | None = None


class PauseImage(msgspec.Struct, array_like=True, gc=False):
    """A pause of a queue, or of one of its keys; ``until_ms`` is None while it is on."""

    key: Key | None
    from_ms: int
    until_ms: int | None


class ScheduleImage(msgspec.Struct, array_like=True, gc=False):
    """Everything the ledger knows of a schedule; see ``core/states/schedules.py``."""

    name: str
    spec: ScheduleSpec
    revision: int
    created_ms: int
    settled_ms: int
    is_paused: bool
    by: str | None
    fired: int
    missed: int
    last_ms: int | None
    last_number: int | None
    missed_ms: int | None
    missed_reason: MissedReason | None
    error: str | None


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
    refused: int = 0
    schedules: list[ScheduleImage] = []
    uploads: list[UploadImage] = []


class ReaderImage(msgspec.Struct, array_like=True, gc=False):
    """The position of a journal reader, and when it was set."""

    name: str
    position: int
    at_ms: int


class TemporaryImage(msgspec.Struct, array_like=True, gc=False):
    """A config value that expires, and the value that is restored then; None for none."""

    key: str
    expires_ms: int
    before: str | None
    owner: str | None
    reason: str | None


class SegmentImage(msgspec.Struct, array_like=True, gc=False):
    """A sealed segment: the sequences from ``first`` up to and without ``end``."""

    first: int
    end: int
    first_ms: int
    last_ms: int
    size: int


class Baseline(Record, tag="baseline"):
    """All that the ledger knows besides messages, repeated so that recovery can begin later in the journal."""

    queues: list[QueueImage]
    config: dict[str, str]
    readers: list[ReaderImage]
    segments: list[SegmentImage]
    segment_first: int
    segment_first_ms: int
    trimmed: int
    journal_id: str = ""
    journal_since: int = 1
    temporary: list[TemporaryImage] = []
    journals: list[tuple[int, str]] = []
    """The ids that the journal has had, each with the number from which on messages have it in their own ids."""
    redrives: list[RedriveImage] = []
    discarded: list[int] = []
    """The pieces that are to be deleted, in this order."""
    fan_outs: list[FanOutImage] = []


AnyRecord: TypeAlias = (
    Enqueued
    | Leased
    | Extended
    | Acked
    | Returned
    | Dead
    | Removed
    | Redriven
    | RedriveStarted
    | RedriveEnded
    | StateSet
    | StateRemoved
    | ResultsSwept
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
    | RefusedMessages
    | ScheduleSet
    | ScheduleRemoved
    | SchedulePaused
    | ScheduleFired
    | ScheduleMissed
    | FannedOut
    | UploadBegun
    | PieceStored
    | UploadDropped
    | PiecesDeleted
    | Opened
    | Skipped
    | Sealed
    | Trimmed
    | Carried
    | Baseline
)
