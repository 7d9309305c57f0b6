"""The records of the journal: one decision each, about one message or many.

Every record has the sequence of its first event. A record about n messages takes n sequence numbers, so each event of
each message has its own: that of the enqueue is the message's number for life, and that of the lease is the fencing
token. Columns have an entry for each message; None stands for a column of defaults.

Records are encoded as arrays. A later version may append fields with defaults, and add kinds; it never changes the
meaning of existing ones, so it can read what this version wrote.
"""

from __future__ import annotations

from typing import TypeAlias

from fairlane.journal.records.base import OfMessages, Record, Runs
from fairlane.journal.records.images import (
    Baseline,
    CallerImage,
    Carried,
    ClaimImage,
    ConsumerImage,
    DedupImage,
    FanOutImage,
    MessageImage,
    NumberedRun,
    PartImage,
    PauseImage,
    ProducerImage,
    QueueImage,
    ReaderImage,
    RedriveImage,
    ScheduleImage,
    SegmentImage,
    SinkImage,
    TemporaryImage,
    UploadImage,
)
from fairlane.journal.records.messages import (
    LOST,
    Acked,
    Dead,
    DeadReason,
    Enqueued,
    Extended,
    FannedOut,
    FinishedImage,
    Leased,
    Numbered,
    Picking,
    PiecesImage,
    Published,
    RefusedMessages,
    Removed,
    RemoveReason,
    ResultsSwept,
    Returned,
    ReturnReason,
    Staged,
    StateRemoved,
    StateSet,
    Terms,
)
from fairlane.journal.records.queues import (
    ClaimsEnded,
    ConfigSet,
    ConsumerRemoved,
    ConsumerSet,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    ReaderSet,
    RedriveEnd,
    RedriveEnded,
    Redriven,
    RedriveOutcome,
    RedriveStarted,
    ScheduleFired,
    ScheduleMissed,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleSet,
    SinkRemoved,
    SinkSet,
)
from fairlane.journal.records.storage import (
    Opened,
    PiecesDeleted,
    PieceStored,
    Sealed,
    Skipped,
    Trimmed,
    UploadBegun,
    UploadDropped,
    UploadDropReason,
)

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

__all__ = [
    "LOST",
    "Acked",
    "AnyRecord",
    "Baseline",
    "CallerImage",
    "Carried",
    "ClaimImage",
    "ClaimsEnded",
    "ConfigSet",
    "ConsumerImage",
    "ConsumerRemoved",
    "ConsumerSet",
    "Dead",
    "DeadReason",
    "DedupImage",
    "Enqueued",
    "Extended",
    "FanOutImage",
    "FannedOut",
    "FinishedImage",
    "Leased",
    "MessageImage",
    "Numbered",
    "NumberedRun",
    "OfMessages",
    "Opened",
    "PartImage",
    "PauseImage",
    "Picking",
    "PieceStored",
    "PiecesDeleted",
    "PiecesImage",
    "ProducerImage",
    "Published",
    "QueueImage",
    "QueuePaused",
    "QueueRemoved",
    "QueueSet",
    "ReaderImage",
    "ReaderSet",
    "Record",
    "RedriveEnd",
    "RedriveEnded",
    "RedriveImage",
    "RedriveOutcome",
    "RedriveStarted",
    "Redriven",
    "RefusedMessages",
    "RemoveReason",
    "Removed",
    "ResultsSwept",
    "ReturnReason",
    "Returned",
    "Runs",
    "ScheduleFired",
    "ScheduleImage",
    "ScheduleMissed",
    "SchedulePaused",
    "ScheduleRemoved",
    "ScheduleSet",
    "Sealed",
    "SegmentImage",
    "SinkImage",
    "SinkRemoved",
    "SinkSet",
    "Skipped",
    "Staged",
    "StateRemoved",
    "StateSet",
    "TemporaryImage",
    "Terms",
    "Trimmed",
    "UploadBegun",
    "UploadDropReason",
    "UploadDropped",
    "UploadImage",
]
