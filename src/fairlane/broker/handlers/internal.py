"""Requests that only parts of this project make of a broker in the same process; no interface has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.views.journal import JournalSlice, read_journal
from fairlane.journal.identity import JournalIdentity
from fairlane.journal.records import SegmentImage
from fairlane.ports.store import StoredPage
from fairlane.verbs.verb import Request

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine


class ReadSlice(Request[JournalSlice], frozen=True, kw_only=True):
    """Return pages of the journal with about ``count`` events after a position, and the position that they reach.

    The first page may begin before the position. ``fairlane.journal.events`` makes rows of pages.

    Attributes:
        skips_trimmed: begin where the journal begins now, if it does not reach back to the position.
    """

    after: int = 0
    count: int = 10_000
    skips_trimmed: bool = False


class ListSegments(Request[list[SegmentImage]], frozen=True, kw_only=True):
    """Return the sealed segments of the journal that are kept, the oldest first."""


class IdentifyJournal(Request[JournalIdentity], frozen=True, kw_only=True):
    """Return which journal it is."""


class ReadPages(Request[list[StoredPage]], frozen=True, kw_only=True):
    """Return pages of the journal as they are stored, for an export."""

    after: int
    count: int = 256


class ReadConfig(Request[dict[str, str]], frozen=True, kw_only=True):
    """Return config values by prefix, private ones included."""

    prefix: str = ""


def _read_slice(engine: Engine, request: ReadSlice) -> JournalSlice:
    return read_journal(
        engine.store,
        engine.ledger,
        after=request.after,
        count=request.count,
        skips_trimmed=request.skips_trimmed,
    )


def _segments(engine: Engine, _request: ListSegments) -> list[SegmentImage]:
    return list(engine.ledger.segments)


def _identity(engine: Engine, _request: IdentifyJournal) -> JournalIdentity:
    ledger = engine.ledger
    return JournalIdentity(journal_id=ledger.journal_id, since=ledger.journal_since - 1)


def _pages(engine: Engine, request: ReadPages) -> list[StoredPage]:
    return list(islice(engine.store.pages(request.after), request.count))


def _config(engine: Engine, request: ReadConfig) -> dict[str, str]:
    return {key: value for key, value in sorted(engine.ledger.config.items()) if key.startswith(request.prefix)}


READS: Final[Mapping[type, Callable[..., Any]]] = {
    ReadSlice: _read_slice,
    ListSegments: _segments,
    IdentifyJournal: _identity,
    ReadPages: _pages,
    ReadConfig: _config,
}
