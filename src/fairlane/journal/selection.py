"""Filters on events, applied before events are created and sent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.journal.codec import Page
from fairlane.journal.events import KIND_OF
from fairlane.journal.records import AnyRecord
from fairlane.model.ids import is_of_journal, number_in, number_text


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on events: all must hold, and None is no condition.

    Attributes:
        kinds: kinds of events.
        queues: events of these queues; those of no queue are left out.
        message_ids: events of these messages, named by their ids or by their numbers.
        correlation_id: how messages came that have this correlation id; later events of theirs do not name it.
        since_ms: not before this instant.
        until_ms: not after this instant.
        columns: the columns, in the order of the schema.
    """

    kinds: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    message_ids: frozenset[str] | None = None
    correlation_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    columns: tuple[str, ...] | None = None

    def in_journal(self, journal_id: str, since: int) -> Selection:
        """Return the same selection with numbers for ids of messages, as the events of a journal have them.

        Ids of other stores name no message there. What is not after ``since`` may be from an earlier journal.
        """
        if self.message_ids is None:
            return self
        found = ((number_in(message_id), message_id) for message_id in self.message_ids)
        numbers = [
            number_text(number)
            for number, message_id in found
            if number is not None and (number <= since or is_of_journal(message_id, journal_id))
        ]
        return msgspec.structs.replace(self, message_ids=frozenset(numbers))

    def of_page(self, page: Page) -> Page:
        """Return a page with the records that may have matching events."""
        if (self.since_ms is not None and page.at_ms < self.since_ms) or (
            self.until_ms is not None and page.at_ms > self.until_ms
        ):
            return Page(page.version, page.at_ms, [])
        records = page.records
        if self.kinds is not None:
            records = [record for record in records if KIND_OF.get(type(record)) in self.kinds]
        if self.queues is not None:
            records = [record for record in records if getattr(record, "queue", None) in self.queues]
        if self.correlation_id is not None:
            records = [record for record in records if self.correlation_id in _correlation_ids(record)]
        return page if records is page.records else Page(page.version, page.at_ms, records)

    def named(self) -> list[tuple[str, frozenset[str]]]:
        """Return the conditions that each event must be checked for: a record may hold others, too."""
        correlation_ids = None if self.correlation_id is None else frozenset((self.correlation_id,))
        columns = (("message_id", self.message_ids), ("correlation_id", correlation_ids))
        return [(name, wanted) for name, wanted in columns if wanted is not None]

    def first_sequence(self) -> int:
        """Return the least sequence that a matching event can have: no event is older than its message."""
        if not self.message_ids:
            return 0
        return min(number_in(message_id) or 0 for message_id in self.message_ids)


def _correlation_ids(record: AnyRecord) -> Sequence[str | None]:
    return getattr(record, "correlation_ids", None) or ()
