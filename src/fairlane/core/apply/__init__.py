"""What each record changes in the ledger. This is the only code that changes it, live and on recovery alike.

``apply`` believes the record: whether something may happen was decided before it was written down. It returns the
messages that the record speaks of, so that the schedule can follow.

On recovery the journal is read from the base on, so a record may speak of messages that were gone when the base was
set. Such messages are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.core.apply import (
    claims,
    fan_outs,
    finished,
    journal,
    messages,
    queues,
    redrives,
    schedules,
    staging,
    uploads,
    workflow_state,
)
from fairlane.core.ledger import Ledger, Message
from fairlane.journal import records

_APPLIERS: dict[type[records.AnyRecord], Callable[[Ledger, Any, int], list[Message]]] = {
    records.Enqueued: messages.enqueued,
    records.Leased: messages.leased,
    records.Extended: messages.extended,
    records.Acked: messages.acked,
    records.Returned: messages.returned,
    records.Dead: messages.dead,
    records.Removed: staging.removed,
    records.Staged: staging.staged,
    records.Published: staging.published,
    records.SinkSet: staging.sink_set,
    records.SinkRemoved: staging.sink_removed,
    records.UploadBegun: uploads.upload_begun,
    records.PieceStored: uploads.piece_stored,
    records.UploadDropped: uploads.upload_dropped,
    records.PiecesDeleted: uploads.pieces_deleted,
    records.Redriven: messages.redriven,
    records.RedriveStarted: redrives.redrive_started,
    records.RedriveEnded: redrives.redrive_ended,
    records.StateSet: workflow_state.state_set,
    records.StateRemoved: workflow_state.state_removed,
    records.ResultsSwept: finished.swept,
    records.QueueSet: queues.queue_set,
    records.QueueRemoved: queues.queue_removed,
    records.QueuePaused: queues.queue_paused,
    records.ConfigSet: queues.config_set,
    records.RefusedMessages: queues.refused,
    records.ConsumerSet: claims.consumer_set,
    records.ConsumerRemoved: claims.consumer_removed,
    records.ClaimsEnded: claims.claims_ended,
    records.ScheduleSet: schedules.schedule_set,
    records.ScheduleRemoved: schedules.schedule_removed,
    records.SchedulePaused: schedules.schedule_paused,
    records.ScheduleFired: schedules.schedule_fired,
    records.ScheduleMissed: schedules.schedule_missed,
    records.FannedOut: fan_outs.fanned_out,
    records.ReaderSet: journal.reader_set,
    records.Opened: journal.opened,
    records.Skipped: journal.skipped,
    records.Sealed: journal.sealed,
    records.Trimmed: journal.trimmed,
    records.Carried: journal.carried,
    records.Baseline: journal.baseline,
}


def apply(ledger: Ledger, record: records.AnyRecord, at_ms: int) -> list[Message]:
    """Apply a record to the ledger, and return the messages it is about."""
    spoken_of = _APPLIERS[type(record)](ledger, record, at_ms)
    ledger.next_sequence = record.sequence + record.count
    ledger.at_ms = at_ms
    if not ledger.segment_first_ms:
        ledger.segment_first_ms = at_ms
    return spoken_of
