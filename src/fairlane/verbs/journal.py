"""Verbs about the journal: read events, keep positions for readers."""

from __future__ import annotations

from typing import Any, Final, Literal

from fairlane.model.views import ReaderView
from fairlane.verbs.verb import Done, Request, Shape, Verb

OnTrimmed = Literal["fail", "skip"]

EVENTS_MAX: Final = 100_000
"""The most events in one answer."""


class Events(Shape, frozen=True, kw_only=True):
    """Events of the journal, and the position that they reach.

    Attributes:
        journal_id: which journal it is. A store that was restored from a backup has another one than before.
        since: the position from which on it has this id; events up to it are those of the journal before the restore.
    """

    events: list[dict[str, Any]]
    position: int
    journal_id: str = ""
    since: int = 0


@Verb(name="read_journal", path="journal/read", right="admin", about="group", repeat="always", is_look=True)
class ReadJournal(Request[Events], frozen=True, kw_only=True):
    """Return events of the journal after a position.

    Attributes:
        count: about how many events to return.
        queue: in a cluster, a queue of the group whose journal to read.
        on_trimmed: what to do if the position has been trimmed: refuse, or begin where the journal begins now.
    """

    after: int = 0
    count: int = 1_000
    queue: str | None = None
    on_trimmed: OnTrimmed = "fail"


@Verb(name="set_reader", path="journal/reader/set", right="admin", about="group", repeat="always")
class SetReader(Request[Done], frozen=True, kw_only=True):
    """Register a reader of the journal or advance its position. The journal after the position is kept.

    Attributes:
        queue: in a cluster, a queue of the group whose journal is read.
    """

    name: str
    position: int
    queue: str | None = None


@Verb(name="remove_reader", path="journal/reader/remove", right="admin", about="group")
class RemoveReader(Request[Done], frozen=True, kw_only=True):
    """Delete a reader of the journal.

    Attributes:
        queue: in a cluster, a queue of the group whose journal was read.
    """

    name: str
    queue: str | None = None


class ReaderList(Shape, frozen=True, kw_only=True):
    """The registered readers of the journal, by name."""

    readers: list[ReaderView]


@Verb(name="readers", path="journal/reader/list", right="admin", about="group", repeat="always")
class ListReaders(Request[ReaderList], frozen=True, kw_only=True):
    """Return the registered readers of the journal.

    Attributes:
        queue: in a cluster, a queue of the group whose journal is read.
    """

    queue: str | None = None
