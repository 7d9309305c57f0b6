"""The identity of a journal: which one it is, so that the events of two never count as those of one.

Sequences alone don't tell journals apart: every journal counts from the same number. So a broker gives a new journal a
random id, and repeats it in every ``opened`` event. A store that was restored from a backup repeats sequences for other
events. ``fairlane store restored`` gives it a new id, which holds *since* a position; the events up to there are those
that the backup shares with the journal it was made of.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

ID_FIELD: Final = b"fairlane.journal.id"
SINCE_FIELD: Final = b"fairlane.journal.since"
"""The names of id and position in the metadata of Arrow schemas and of exported files."""

PATTERN: Final = "[0-9a-f]{16}"
_ID = re.compile(PATTERN, re.ASCII)


class JournalIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which journal it is.

    Attributes:
        journal_id: its id.
        since: the position from which on it has this id; 0, or what its sequences begin after, unless it was restored.
    """

    journal_id: str
    since: int = 0

    def metadata(self) -> dict[bytes, bytes]:
        """Return the identity for the metadata of a file."""
        return {ID_FIELD: self.journal_id.encode(), SINCE_FIELD: str(self.since).encode()}


def is_journal_id(text: str) -> bool:
    """Return whether a text has the form of a journal's id."""
    return _ID.fullmatch(text) is not None


def identity_in(metadata: dict[bytes, bytes] | None) -> JournalIdentity | None:
    """Return the identity in the metadata of a file; None if the file tells none."""
    known = metadata or {}
    if ID_FIELD not in known:
        return None
    return JournalIdentity(journal_id=known[ID_FIELD].decode(), since=int(known.get(SINCE_FIELD, b"0")))
