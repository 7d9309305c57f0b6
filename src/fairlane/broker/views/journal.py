"""Reading the journal by position."""

from __future__ import annotations

import msgspec

from fairlane.core.checks import whole_fault
from fairlane.core.ledger import Ledger
from fairlane.errors import InvalidArgument, JournalTrimmed
from fairlane.journal import codec
from fairlane.journal.codec import Page
from fairlane.model.views import ReaderView
from fairlane.ports.store import Store


class JournalSlice(msgspec.Struct, frozen=True):
    """A run of the journal: whole pages, and the position they reach to.

    A page may begin before the position that was asked for; its readers skip what they have seen.

    Attributes:
        pages: what was asked for.
        position: where to read on.
        beginning: the oldest position that the journal can still be read from.
        end: the position of its latest event.
        journal_id: which journal it is.
        since: the position that the journal has had this id from; see ``Ledger.journal_since``.
    """

    pages: list[Page]
    position: int
    beginning: int
    end: int
    journal_id: str = ""
    since: int = 0


def read_journal(store: Store, ledger: Ledger, *, after: int, count: int, skips_trimmed: bool = False) -> JournalSlice:
    """Return about ``count`` events after a position.

    Raises:
        JournalTrimmed: the journal does not reach back so far any more.
        InvalidArgument: the position is none.
    """
    if (fault := whole_fault("after", after, least=0, most=ledger.next_sequence - 1)) is not None:
        raise InvalidArgument(fault)
    beginning, end = max(ledger.counts_from, ledger.trimmed - 1), ledger.next_sequence - 1
    after = max(after, ledger.counts_from)
    if after < beginning and skips_trimmed:
        after = beginning
    if after < beginning:
        raise JournalTrimmed(f"The journal begins after position {beginning}; {after} was requested.")
    pages: list[Page] = []
    position = after
    for stored in store.pages(after):
        pages.append(codec.decode(stored.page))
        position = stored.next_sequence - 1
        if position - after >= count:
            break
    return JournalSlice(pages, position, beginning, end, ledger.journal_id, ledger.journal_since - 1)


def reader_views(ledger: Ledger) -> list[ReaderView]:
    """Return the registered readers, by name."""
    last = ledger.next_sequence - 1
    return [
        ReaderView(
            name=reader.name,
            position=reader.position,
            at_ms=reader.at_ms,
            behind=last - reader.position,
            is_passed=reader.position < ledger.trimmed - 1,
        )
        for reader in sorted(ledger.readers.values(), key=lambda reader: reader.name)
    ]
