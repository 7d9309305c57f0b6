"""Records about streamed payloads and about the journal itself."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fairlane.journal.records.base import Record

UploadDropReason: TypeAlias = Literal["silence", "requested"]


class UploadBegun(Record, tag="upload_begun"):
    """A caller begins to upload a payload; the sequence is the number of the upload. All pieces have one size."""

    queue: str
    piece_bytes: int
    by: str | None = None
    expected: int | None = None
    """The size of the payload, if the caller knows it."""


class PieceStored(Record, tag="piece_stored"):
    """A piece of an upload arrived; its bytes are the body of this sequence."""

    queue: str
    upload: int
    index: int
    size: int


class UploadDropped(Record, tag="upload_dropped"):
    """An upload that no message has taken is given up, and its pieces are discarded."""

    queue: str
    upload: int
    reason: UploadDropReason
    by: str | None = None


class PiecesDeleted(Record, tag="pieces_deleted"):
    """The store deletes some of the pieces that were discarded, the oldest first."""

    numbers: list[int]


class Opened(Record, tag="opened"):
    """The broker was opened or recovered: buckets start empty and deficits from zero."""

    built_ms: int = 0
    """The instant from which on the buckets fill."""
    journal_id: str = ""
    """The id of the journal. Each opening repeats it, since the beginning of the journal is trimmed in time."""


class Skipped(Record, tag="skipped"):
    """Sequence numbers that are never used: they may have been issued before, by a broker whose commits were lost."""

    numbers: int

    @property
    def count(self) -> int:
        """All that are skipped."""
        return self.numbers


class Sealed(Record, tag="sealed"):
    """A segment of the journal is complete, up to and without ``sequence``."""

    first: int
    first_ms: int
    last_ms: int
    size: int


class Trimmed(Record, tag="trimmed"):
    """The journal before a position was deleted; ``passed`` are the readers that had not read all of it."""

    to: int
    passed: list[str]
