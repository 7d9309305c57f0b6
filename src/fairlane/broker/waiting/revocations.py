"""Consumers whose messages were cancelled: they are notified once the cancellation is durable."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.broker.requests import AttachedConsumer
from fairlane.journal.records import Removed
from fairlane.model.ids import MessageIds


class Revocations:
    """The messages that were cancelled in the present cycle while an attached consumer had them."""

    def __init__(self) -> None:
        self.revoked: list[tuple[AttachedConsumer, int]] = []

    def note(self, record: Removed, freed: Iterable[tuple[AttachedConsumer, int, int]]) -> None:
        """Note who has just lost cancelled messages: an earlier record of the cycle has freed their credit."""
        cancelled = set(record.numbers)
        self.revoked += [(holder, number) for holder, number, _ in freed if number in cancelled]

    def clear(self) -> None:
        """Forget everything, because the cycle has failed."""
        self.revoked.clear()

    def announce(self, ids: MessageIds) -> None:
        """Call the consumers with the ids of what they have lost."""
        revoked, self.revoked = self.revoked, []
        by_consumer: dict[AttachedConsumer, list[int]] = {}
        for consumer, number in revoked:
            by_consumer.setdefault(consumer, []).append(number)
        for consumer, numbers in by_consumer.items():
            if consumer.on_cancelled is not None and not consumer.is_closed:
                consumer.on_cancelled(ids.ids_of(numbers))
