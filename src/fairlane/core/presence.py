"""Presence: which consumers, sinks and uploads have been silent for too long. Rebuilt from the ledger, never written
down.

A request that found no message leaves no record, so it is known only here. After recovery all of them count as just
heard from, since they could not be heard while the broker was down.
"""

from __future__ import annotations

from collections import OrderedDict

from fairlane.core.ledger import Ledger
from fairlane.journal.records import (
    AnyRecord,
    ClaimsEnded,
    ConsumerRemoved,
    ConsumerSet,
    Enqueued,
    Leased,
    PieceStored,
    QueueRemoved,
    SinkRemoved,
    SinkSet,
    Staged,
    UploadBegun,
    UploadDropped,
)
from fairlane.model.limits import SINK_SILENCE_MS_MAX

Name = tuple[str, str]
"""A queue, and the name of a consumer or sink there."""


class Presence:
    """Who was heard of when, and whose time is over: consumers that have claimed, sinks for which something is staged.

    An instant kept here may be too early, because of a word heard since, and never too late.

    Attributes:
        uploads: the open uploads, each with when it was last heard of; that of longest ago is in front.
        watched: all that may fall silent, so that most cycles find with one glance that nothing can.
    """

    def __init__(self, ledger: Ledger, now_ms: int) -> None:
        self._ledger = ledger
        self._opened_ms = now_ms
        self._heard: dict[Name, int] = {}
        self.consumers: dict[Name, int] = {}
        self.sinks: dict[Name, int] = {}
        self.uploads: OrderedDict[tuple[str, int], int] = OrderedDict()
        self.watched = (self.consumers, self.sinks, self.uploads)
        for queue in ledger.queues.values():
            for name in queue.consumers:
                self._look_at_consumer((queue.name, name))
            for name in queue.sinks:
                self._look_at_sink((queue.name, name))
            for number in queue.uploads:
                self.uploads[queue.name, number] = now_ms

    # ------------------------------------------------------------------------------------------------------- hearing

    def hear(self, queue: str, consumer: str, now_ms: int) -> None:
        """Take note of a word from a consumer."""
        known = self._ledger.queues.get(queue)
        if known is not None and consumer in known.consumers:
            self._heard[queue, consumer] = now_ms

    def heard_ms(self, queue: str, consumer: str) -> int:
        """Return when something was last heard of a consumer that is there."""
        return max(self._heard.get((queue, consumer), 0), self._ledger.queues[queue].consumers[consumer].heard_ms)

    def follow(self, record: AnyRecord) -> None:
        """Act on a record that has been applied."""
        if isinstance(record, Leased):
            self._look_at_consumer((record.queue, record.owner or ""))
        elif isinstance(record, (ConsumerSet, ConsumerRemoved, ClaimsEnded)):
            self._look_at_consumer((record.queue, record.name))
        elif isinstance(record, Staged):  # one without a sink waits for a fan-out, and is not swept
            self._look_at_sink((record.queue, record.sink))
        elif isinstance(record, (SinkSet, SinkRemoved)):
            self._look_at_sink((record.queue, record.name))
        elif isinstance(record, QueueRemoved):
            for known in (self._heard, self.consumers, self.sinks):
                for name in [name for name in known if name[0] == record.queue]:
                    del known[name]
            for upload in [upload for upload in self.uploads if upload[0] == record.queue]:
                del self.uploads[upload]
        else:
            self._follow_upload(record)

    def _follow_upload(self, record: AnyRecord) -> None:
        if isinstance(record, (UploadBegun, PieceStored)):
            number = record.sequence if isinstance(record, UploadBegun) else record.upload
            self.hear_upload(record.queue, number, self._ledger.queues[record.queue].uploads[number].heard_ms)
        elif isinstance(record, UploadDropped):
            self.uploads.pop((record.queue, record.upload), None)
        elif isinstance(record, Enqueued):
            for taken in record.uploads or ():
                self.uploads.pop((record.queue, taken or 0), None)

    def hear_upload(self, queue: str, number: int, now_ms: int) -> None:
        """Take note of an upload that is still wanted."""
        self.uploads[queue, number] = now_ms
        self.uploads.move_to_end((queue, number))

    def _look_at_consumer(self, name: Name) -> None:
        consumer = self._ledger.queues[name[0]].consumers.get(name[1])
        if consumer is None:
            self._heard.pop(name, None)
        if consumer is None or consumer.idle_ms is None or consumer.claim is None:
            self.consumers.pop(name, None)
        else:
            self.consumers[name] = max(self._opened_ms, self.heard_ms(*name)) + consumer.idle_ms

    def _look_at_sink(self, name: Name) -> None:
        sink = self._ledger.queues[name[0]].sinks.get(name[1])
        if sink is None or not sink.parts:
            self.sinks.pop(name, None)
        else:
            self.sinks[name] = max(self._opened_ms, sink.heard_ms) + SINK_SILENCE_MS_MAX

    # ---------------------------------------------------------------------------------------------------------- time

    def next_at(self) -> int | None:
        """Return when a consumer, sink or upload may next have been silent for too long; None for never."""
        if not any(self.watched):
            return None
        first_ms = [next(iter(self.uploads.values())) + self._silence_ms] if self.uploads else []
        return min((*self.consumers.values(), *self.sinks.values(), *first_ms))

    def idle_consumers(self, now_ms: int) -> list[Name]:
        """Return the consumers that have claimed something and were not heard of for as long as they said."""
        for name in [name for name, at_ms in self.consumers.items() if at_ms <= now_ms]:
            self._look_at_consumer(name)
        return [name for name, at_ms in self.consumers.items() if at_ms <= now_ms]

    def silent_sinks(self, now_ms: int) -> list[Name]:
        """Return the sinks for which something is staged and that were not heard of for too long."""
        return [name for name, at_ms in self.sinks.items() if at_ms <= now_ms]

    @property
    def _silence_ms(self) -> int:
        return self._ledger.limits.upload_silence_ms

    def silent_uploads(self, now_ms: int) -> list[tuple[str, int]]:
        """Return the open uploads that were not heard of for too long."""
        found = []
        for name, heard_ms in self.uploads.items():
            if heard_ms + self._silence_ms > now_ms:
                break
            found.append(name)
        return found
