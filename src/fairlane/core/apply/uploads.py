"""What records of uploads change, and what becomes of pieces that are no longer needed."""

from __future__ import annotations

from fairlane.core.ledger import KeyUsage, Ledger, Message, Queue
from fairlane.core.states.uploads import Pieces, Upload
from fairlane.journal import records


def upload_begun(ledger: Ledger, record: records.UploadBegun, at_ms: int) -> list[Message]:
    """Begin an upload."""
    upload = Upload(record.sequence, record.by or "", record.piece_bytes, at_ms, expected=record.expected)
    _enter(ledger, ledger.queues[record.queue], upload)
    return []


def _enter(ledger: Ledger, queue: Queue, upload: Upload) -> None:
    queue.uploads[upload.number] = upload
    usage = ledger.uploaders.get(upload.caller)
    if usage is None:
        usage = ledger.uploaders[upload.caller] = KeyUsage()
    usage.messages += 1
    usage.size += upload.size
    ledger.size += upload.size


def _leave(ledger: Ledger, queue: Queue, number: int) -> Upload | None:
    upload = queue.uploads.pop(number, None)
    if upload is None:
        return None
    usage = ledger.uploaders[upload.caller]
    usage.messages -= 1
    usage.size -= upload.size
    ledger.size -= upload.size
    if not usage.messages:
        del ledger.uploaders[upload.caller]
    return upload


def piece_stored(ledger: Ledger, record: records.PieceStored, at_ms: int) -> list[Message]:
    """Add a piece to its upload."""
    upload = ledger.queues[record.queue].uploads[record.upload]
    upload.add(record.index, record.sequence, record.size)
    upload.heard_ms = at_ms
    ledger.size += record.size
    ledger.uploaders[upload.caller].size += record.size
    return []


def upload_dropped(ledger: Ledger, record: records.UploadDropped, _at_ms: int) -> list[Message]:
    """Give up an upload."""
    drop_upload(ledger, ledger.queues[record.queue], record.upload, record.sequence)
    return []


def drop_upload(ledger: Ledger, queue: Queue, number: int, home: int) -> None:
    """Forget an upload, and discard its pieces. Every baseline has the open uploads, so recovery always knows it."""
    upload = _leave(ledger, queue, number)
    if upload is not None:
        ledger.discarded.add(home, upload.stored())


def adopt(ledger: Ledger, queue: Queue, message: Message, number: int) -> None:
    """Give a new message the pieces of an upload."""
    upload = _leave(ledger, queue, number)
    if upload is not None and upload.numbers:
        message.aftermath().pieces = Pieces(upload.piece_bytes, upload.numbers)


def pieces_deleted(ledger: Ledger, record: records.PiecesDeleted, _at_ms: int) -> list[Message]:
    """Delete discarded pieces with the present commit."""
    ledger.discarded.remove(record.numbers)
    ledger.dropped.extend(record.numbers)
    return []


def revive_upload(ledger: Ledger, queue: Queue, image: records.UploadImage) -> None:
    """Restore an upload from a baseline, where recovery begins."""
    _enter(ledger, queue, Upload.of(image))
