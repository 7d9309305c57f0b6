"""Which events of the journal a reader wants, so that the others need not be made, sent or looked at."""

from __future__ import annotations

import msgspec

from fairlead.journal.codec import Page
from fairlead.journal.events import KIND_OF
from fairlead.model.names import number_of


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted: all of what is said must hold, and what is None is not asked for.

    Attributes:
        kinds: kinds of events.
        queues: events of these queues; those of no queue are left out.
        message_ids: events of these messages.
        since_ms: not before this instant.
        until_ms: not after this instant.
        columns: the columns, in the order of the schema.
    """

    kinds: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    message_ids: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    columns: tuple[str, ...] | None = None

    def of_page(self, page: Page) -> Page:
        """Return a page with those records that may have wanted events."""
        if (self.since_ms is not None and page.at_ms < self.since_ms) or (
            self.until_ms is not None and page.at_ms > self.until_ms
        ):
            return Page(page.version, page.at_ms, [])
        records = page.records
        if self.kinds is not None:
            records = [record for record in records if KIND_OF.get(type(record)) in self.kinds]
        if self.queues is not None:
            records = [record for record in records if getattr(record, "queue", None) in self.queues]
        return page if records is page.records else Page(page.version, page.at_ms, records)

    def first_sequence(self) -> int:
        """Return the least sequence that a wanted event can have: none is older than the message it is about."""
        if not self.message_ids:
            return 0
        return min(number_of(message_id) or 0 for message_id in self.message_ids)
