"""The life of one message, folded from the records of the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlane.journal import records
from fairlane.journal.records import AnyRecord, RemoveReason
from fairlane.model.message import Key
from fairlane.model.status import Ending

ENDING_OF: Final[Mapping[RemoveReason, Ending]] = {
    "deadline": "expired",
    "dropped": "dropped",
    "purged": "purged",
    "cancelled": "cancelled",
    "unstaged": "purged",
}
"""How a message has ended that was removed for a reason."""


class MessageLife:
    """What the journal says of one message, from its enqueue on.

    Attributes:
        queue: the queue that it is in, or was in last; empty before its enqueue.
        origin: the same, but for a dead letter the queue that it died in.
        ending: how it ended; None while it has not.
        finished_ms: when that was.
        note: why it was cancelled, if the caller said so.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue = self.origin = ""
        self.key: Key = ""
        self.enqueued_ms = 0
        self.attempts = 0
        self.ending: Ending | None = None
        self.finished_ms = 0
        self.note: str | None = None

    def follow(self, record: AnyRecord, at_ms: int) -> None:
        """Note what a record says of the message. After its end nothing does."""
        if self.ending is not None:
            return
        if isinstance(record, (records.Enqueued, records.Staged)):
            self._begin(record, at_ms)
        elif isinstance(record, records.QueueRemoved):
            if record.queue == self.queue:
                self._end("purged", at_ms)
        elif isinstance(record, records.OfMessages) and self.number in record.numbers:
            self._change(record, at_ms)

    def _begin(self, record: records.Enqueued | records.Staged, at_ms: int) -> None:
        at = self.number - record.sequence
        if 0 <= at < record.count:
            self.queue = self.origin = record.queue
            self.key, self.enqueued_ms = record.terms.keys[at], at_ms

    def _change(self, record: records.OfMessages, at_ms: int) -> None:
        if isinstance(record, records.Leased):
            self.attempts += 1
        elif isinstance(record, records.Dead):
            self.queue = record.dlq
        elif isinstance(record, records.Redriven):
            self.queue = self.origin = record.target
            self.attempts = 0
            self.key = record.terms.keys[record.numbers.index(self.number)]
        elif isinstance(record, records.Acked):
            self._end("done", at_ms)
        elif isinstance(record, records.Removed):
            self.note = record.note
            self._end(ENDING_OF[record.reason], at_ms)

    def _end(self, ending: Ending, at_ms: int) -> None:
        self.ending, self.finished_ms = ending, at_ms
