"""What each record changes in the ledger. This is the only code that changes it, live and on recovery alike.

``apply`` believes the record: whether something may happen was decided before it was written down. It returns the
messages that the record speaks of, so that the schedule can follow.

On recovery the journal is read from the base on, so a record may speak of messages that were gone when the base was
set. Such messages are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.core.apply import claims, journal, messages, queues, staging
from fairlane.core.ledger import Ledger, Message
from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Baseline,
    Carried,
    ClaimsEnded,
    ConfigSet,
    ConsumerRemoved,
    ConsumerSet,
    Dead,
    Enqueued,
    Extended,
    Leased,
    Opened,
    Published,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    ReaderSet,
    Redriven,
    Removed,
    Returned,
    Sealed,
    SinkRemoved,
    SinkSet,
    Skipped,
    Staged,
    StateRemoved,
    StateSet,
    Trimmed,
)

_APPLIERS: dict[type[AnyRecord], Callable[[Ledger, Any, int], list[Message]]] = {
    Enqueued: messages.enqueued,
    Leased: messages.leased,
    Extended: messages.extended,
    Acked: messages.acked,
    Returned: messages.returned,
    Dead: messages.dead,
    Removed: staging.removed,
    Staged: staging.staged,
    Published: staging.published,
    SinkSet: staging.sink_set,
    SinkRemoved: staging.sink_removed,
    Redriven: messages.redriven,
    StateSet: messages.state_set,
    StateRemoved: messages.state_removed,
    QueueSet: queues.queue_set,
    QueueRemoved: queues.queue_removed,
    QueuePaused: queues.queue_paused,
    ConfigSet: queues.config_set,
    ConsumerSet: claims.consumer_set,
    ConsumerRemoved: claims.consumer_removed,
    ClaimsEnded: claims.claims_ended,
    ReaderSet: journal.reader_set,
    Opened: journal.opened,
    Skipped: journal.skipped,
    Sealed: journal.sealed,
    Trimmed: journal.trimmed,
    Carried: journal.carried,
    Baseline: journal.baseline,
}


def apply(ledger: Ledger, record: AnyRecord, at_ms: int) -> list[Message]:
    """Apply a record to the ledger, and return the messages it is about."""
    spoken_of = _APPLIERS[type(record)](ledger, record, at_ms)
    ledger.next_sequence = record.sequence + record.count
    ledger.at_ms = at_ms
    if not ledger.segment_first_ms:
        ledger.segment_first_ms = at_ms
    return spoken_of
