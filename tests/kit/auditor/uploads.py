"""Enters uploads and their pieces into the books, and checks the answers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlane.broker.settings import Settings
from fairlane.errors import Forbidden, UploadMismatch, UploadNotFound
from fairlane.journal import records as r
from tests.kit.auditor.books import Books, violated

if TYPE_CHECKING:
    from fairlane.core.ledger import Ledger


@dataclass(slots=True)
class UploadBook:
    """An open upload: the number and the bytes of each piece, by index.

    Attributes:
        is_named: whether an enqueue has named it, which may wait for capacity and keep the upload that long.
    """

    number: int
    queue: str
    caller: str
    piece_bytes: int
    heard_ms: int
    pieces: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    is_named: bool = False
    expected: int | None = None

    @property
    def size(self) -> int:
        """The bytes that have arrived."""
        return sum(len(data) for _, data in self.pieces.values())

    def numbers(self) -> list[int]:
        """Return the numbers of the pieces, in order."""
        return [self.pieces[index][0] for index in sorted(self.pieces)]

    def payload(self) -> bytes | None:
        """Return the payload; None if a piece is missing, or one before the last is not full."""
        if sorted(self.pieces) != list(range(len(self.pieces))):
            return None
        parts = [self.pieces[index][1] for index in range(len(self.pieces))]
        if self.expected not in (None, self.size):
            return None
        return b"".join(parts) if all(len(part) == self.piece_bytes for part in parts[:-1]) else None


class UploadRecords:
    """Enters records about uploads."""

    _books: Books
    _bodies: dict[int, bytes]
    _dropped: frozenset[int]
    settings: Settings

    def _upload_begun(self, record: r.UploadBegun, at_ms: int) -> None:
        terms = (record.queue, record.by or "", record.piece_bytes, at_ms)
        book = UploadBook(record.sequence, *terms, expected=record.expected)
        self._books.uploads[record.sequence] = book
        if record.queue not in self._books.queues:
            violated(f"{record} begins in a queue that does not exist")
        own = [upload for upload in self._books.uploads.values() if upload.caller == book.caller]
        if len(own) > self.settings.uploads_max:
            violated(f"caller {book.caller!r} has {len(own)} uploads, uploads_max is {self.settings.uploads_max}")

    def _piece_stored(self, record: r.PieceStored, at_ms: int) -> None:
        upload = self._open(record.queue, record.upload)
        data = self._bodies.get(record.sequence)
        if data is None or len(data) != record.size or not 0 < record.size <= upload.piece_bytes:
            violated(f"{record} is committed with {data!r:.50}")
        if record.index in upload.pieces:
            violated(f"piece {record.index} of {upload} is stored again")
        upload.pieces[record.index] = (record.sequence, data)
        upload.heard_ms = at_ms
        most = self.settings.waiting_bytes_max
        if most is not None and self._books.size() > most:
            violated(f"all queues have {self._books.size()} bytes after a piece, waiting_bytes_max is {most}")

    def _upload_dropped(self, record: r.UploadDropped, at_ms: int) -> None:
        upload = self._open(record.queue, record.upload)
        if record.reason == "silence" and upload.heard_ms + self.settings.upload_silence_ms > at_ms:
            violated(f"{upload} is dropped at {at_ms}, after a silence of {at_ms - upload.heard_ms} ms")
        self._books.drop_upload(upload.number)

    def _pieces_deleted(self, record: r.PiecesDeleted, _at_ms: int) -> None:
        count = len(record.numbers)
        if self._books.discarded[:count] != record.numbers or not self._dropped.issuperset(record.numbers):
            violated(f"{record}, {self._books.discarded} are discarded, the commit drops {sorted(self._dropped)}")
        del self._books.discarded[:count]

    def _open(self, queue: str, number: int) -> UploadBook:
        upload = self._books.uploads.get(number)
        if upload is None or upload.queue != queue:
            violated(f"a record speaks of upload {number} of {queue}, which is {upload}")
        return upload

    def _adopted(self, queue: str, number: int, payload: bytes) -> tuple[bytes, tuple[int, ...]]:
        """Return the payload that a message takes from an upload, and the numbers of its pieces."""
        upload = self._open(queue, number)
        taken = upload.payload()
        if payload or taken is None:
            violated(f"a message takes {upload}, which is not complete, beside a payload {payload!r:.50}")
        del self._books.uploads[number]
        return taken, tuple(upload.numbers())


def told_piece(books: Books, number: int, index: int, outcome: Any) -> None:
    """Check the answer to a piece: an accepted one is durable, and an open upload is found."""
    upload = books.uploads.get(number)
    if isinstance(outcome, UploadNotFound | Forbidden) and upload is not None:
        violated(f"piece {index} of {upload} was refused: {outcome!r}")
    if outcome is None and upload is not None and index not in upload.pieces:
        violated(f"piece {index} of {upload} was accepted, and is not durable")


def told_upload_refused(books: Books, number: int, outcome: Any) -> None:
    """Check that a message was not kept from taking an upload that was complete before the commit."""
    upload = books.uploads.get(number)
    if upload is None or not isinstance(outcome, UploadNotFound | UploadMismatch):
        return
    latest = max((own for own, _ in upload.pieces.values()), default=number)
    if upload.payload() is not None and latest < books.commit_first:
        violated(f"a message may not take {upload}: {outcome!r}")


def check_uploads(ledger: Ledger, books: Books) -> None:
    """Check that the uploads and the discarded pieces in memory are those in the books."""
    found = {
        (upload.number, queue.name, upload.caller, upload.size, tuple(upload.stored()))
        for queue in ledger.queues.values()
        for upload in queue.uploads.values()
    }
    known = {
        (upload.number, upload.queue, upload.caller, upload.size, tuple(upload.numbers()))
        for upload in books.uploads.values()
    }
    if found != known:
        violated(f"the ledger has uploads {found}, the books {known}")
    if list(ledger.discarded) != books.discarded:
        violated(f"the ledger has discarded {ledger.discarded}, the books {books.discarded}")
    usage = {caller: (each.messages, each.size) for caller, each in ledger.uploaders.items()}
    if usage != _usage(books.uploads.values()):
        violated(f"the ledger counts uploads as {usage}, the books are {known}")


def _usage(uploads: Iterable[UploadBook]) -> dict[str, tuple[int, int]]:
    usage: dict[str, tuple[int, int]] = {}
    for upload in uploads:
        count, size = usage.get(upload.caller, (0, 0))
        usage[upload.caller] = (count + 1, size + upload.size)
    return usage


def check_silent(books: Books, opened_ms: int, now_ms: int, silence_ms: int) -> None:
    """Check that no upload is left that was silent for too long."""
    for upload in books.uploads.values():
        if not upload.is_named and max(upload.heard_ms, opened_ms) + silence_ms <= now_ms:
            violated(f"at {now_ms} there is still {upload}")


def pictures_of_uploads(images: Iterable[r.UploadImage]) -> list[tuple[object, ...]]:
    """Return a comparable picture of uploads in a record."""
    return sorted((image.number, image.caller, image.size, tuple(filter(None, image.numbers))) for image in images)


def pictures_in_books(books: Books, queue: str) -> list[tuple[object, ...]]:
    """Return a comparable picture of the uploads of a queue."""
    own = [upload for upload in books.uploads.values() if upload.queue == queue]
    return sorted((upload.number, upload.caller, upload.size, tuple(upload.numbers())) for upload in own)
