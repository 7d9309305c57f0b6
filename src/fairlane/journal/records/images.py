"""What the ledger knows, as values, and the two records that repeat it so that recovery can begin later."""

from __future__ import annotations

import msgspec

from fairlane.journal.records.base import Record, Runs
from fairlane.journal.records.messages import FannedOut, FinishedImage, PiecesImage
from fairlane.journal.records.queues import RedriveEnd, RedriveStarted
from fairlane.model.message import FailureDetail, Key
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import MissedReason, ScheduleSpec


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
    head_bytes: int = 0
    """What the messages of its chunk have besides their payloads, at most."""
    state_bytes: int = 0


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
        joined: for enqueues that are kept together, first number, count, sequence and end of the window of each.
    """

    first: int
    count: int
    sequence: int
    until_ms: int
    bitmap: bytes | None = None
    joined: list[int] | None = None


class ProducerImage(msgspec.Struct, array_like=True, gc=False):
    """A producer that numbers its messages, in one queue. Numbers below ``floor`` may have been forgotten early."""

    queue: str
    producer: str
    floor: int
    floor_until_ms: int = 0


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
    callers: list[CallerImage] = msgspec.field(default_factory=list)
    finished: list[FinishedImage] = msgspec.field(default_factory=list)


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
    is_declared: bool = False


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
    temporary: list[TemporaryImage] = msgspec.field(default_factory=list)
    journals: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """The ids that the journal has had, each with the number from which on messages have it in their own ids."""
    redrives: list[RedriveImage] = msgspec.field(default_factory=list)
    discarded: list[int] = msgspec.field(default_factory=list)
    """The pieces that are to be deleted, in this order."""
    fan_outs: list[FanOutImage] = msgspec.field(default_factory=list)
