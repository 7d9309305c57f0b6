"""Presence: of whom nothing was heard for too long. Soft state, rebuilt from the ledger, never written down.

That a consumer asked and nothing came of it is not worth a record, so it is only known here. After recovery everybody
counts as having just been heard of: whoever was there could not speak while the broker was gone.
"""

from __future__ import annotations

from fairlead.core.ledger import Ledger
from fairlead.journal.records import AnyRecord, ClaimsEnded, ConsumerRemoved, ConsumerSet, Leased, QueueRemoved

Name = tuple[str, str]
"""A queue, and the name of somebody there."""


class Presence:
    """Who was heard of when, and whose time is over."""

    def __init__(self, ledger: Ledger, now_ms: int) -> None:
        self._ledger = ledger
        self._opened_ms = now_ms
        self._heard: dict[Name, int] = {}
        self._idle_at: dict[Name, int] | None = None
        """When each consumer is idle that has claimed something, as far as was looked at; None if that may be wrong."""

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
            if record.claim is not None:
                self._idle_at = None
        elif isinstance(record, (ConsumerSet, ClaimsEnded)):
            self._idle_at = None
        elif isinstance(record, ConsumerRemoved):
            self._heard.pop((record.queue, record.name), None)
            self._idle_at = None
        elif isinstance(record, QueueRemoved):
            self._heard = {name: at_ms for name, at_ms in self._heard.items() if name[0] != record.queue}
            self._idle_at = None

    def next_at(self) -> int | None:
        """Return when somebody may be idle next, None for never. Words heard since may put it off."""
        return min(self._looked_at().values(), default=None)

    def idle(self, now_ms: int) -> list[Name]:
        """Return the consumers that have claimed something and were not heard of for as long as they said."""
        if not any(at_ms <= now_ms for at_ms in self._looked_at().values()):
            return []
        self._idle_at = None
        return [name for name, at_ms in self._looked_at().items() if at_ms <= now_ms]

    def _looked_at(self) -> dict[Name, int]:
        if self._idle_at is None:
            self._idle_at = {
                (queue.name, consumer.name): max(self._opened_ms, self.heard_ms(queue.name, consumer.name))
                + consumer.idle_ms
                for queue in self._ledger.queues.values()
                for consumer in queue.consumers.values()
                if consumer.idle_ms is not None and consumer.claim is not None
            }
        return self._idle_at
