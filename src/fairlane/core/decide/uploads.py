"""Uploads: begun, filled piece by piece, taken by a message, or dropped. ``core/states/uploads.py`` has the theory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from fairlane.core.checks import whole_fault
from fairlane.core.commands import DeletePieces, Given, SweepUpload
from fairlane.core.decide.room import RETRY_AFTER_MS, too_large
from fairlane.core.decision import Deciders, Decision, known_queue, no_queue, refuse
from fairlane.core.ledger import KeyUsage, Ledger, Queue
from fairlane.core.states.uploads import Upload
from fairlane.errors import (
    FairlaneError,
    Forbidden,
    GlobalFull,
    InvalidArgument,
    PayloadTooLarge,
    TooManyUploads,
    UploadMismatch,
    UploadNotFound,
)
from fairlane.journal.records import PiecesDeleted, PieceStored, UploadBegun, UploadDropped
from fairlane.model.message import NewMessage
from fairlane.model.uploads import UploadView
from fairlane.verbs.uploads import BeginUpload, DropUpload, UploadPiece
from fairlane.verbs.verb import Done

_INDEX_MOST: Final = 1 << 32


def begin(ledger: Ledger, request: BeginUpload, now_ms: int, given: Given) -> Decision[UploadView]:
    """Begin an upload, unless its caller has too many."""
    queue = ledger.queues.get(request.queue)
    if queue is None:
        return refuse(no_queue(request.queue))
    usage, limits = ledger.uploaders.get(given.by or ""), ledger.limits
    if usage is not None and usage.messages >= limits.uploads_max:
        cause = f"{_who(given.by)} has {usage.messages} open uploads; uploads_max is {limits.uploads_max}."
        return refuse(TooManyUploads(cause, retry_after_ms=RETRY_AFTER_MS))
    if request.size is not None and (error := _too_large(ledger, queue, request.size)) is not None:
        return refuse(error)
    sequence = ledger.next_sequence
    upload = Upload(sequence, given.by or "", limits.piece_bytes, now_ms)
    record = UploadBegun(sequence, queue.name, upload.piece_bytes, given.by, request.size)
    return Decision([record], view_of(queue, upload))


def _who(by: str | None) -> str:
    return "The caller" if by is None else f"API key {by!r}"


def view_of(queue: Queue, upload: Upload) -> UploadView:
    """Return an upload as callers see it."""
    return UploadView(
        id=queue.ids.id_of(upload.number),
        queue=queue.name,
        piece_bytes=upload.piece_bytes,
        size=upload.size,
        pieces=len(upload.numbers) - upload.numbers.count(0),
        heard_ms=upload.heard_ms,
        by=upload.caller or None,
    )


# -------------------------------------------------------------------------------------------------------------- pieces


def store_piece(ledger: Ledger, request: UploadPiece, _now_ms: int, given: Given) -> Decision[Done]:
    """Store a piece, unless it is there already."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    upload = _own(queue, request.id, given)
    if isinstance(upload, FairlaneError):
        return refuse(upload)
    if type(request.data) is not bytes:
        return refuse(InvalidArgument(f"A piece must be bytes, not {type(request.data).__name__}."))
    if (fault := whole_fault("index", request.index, least=0, most=_INDEX_MOST)) is not None:
        return refuse(InvalidArgument(fault))
    if upload.has(request.index):
        return Decision([], Done())
    if (fault := upload.fault(request.index, len(request.data))) is not None:
        return refuse(UploadMismatch(fault))
    if (error := _excess(ledger, queue, upload, request)) is not None:
        return refuse(error)
    sequence = ledger.next_sequence
    record = PieceStored(sequence, queue.name, upload.number, request.index, len(request.data))
    return Decision([record], Done(), pieces=[(sequence, request.data)])


def _own(queue: Queue, upload_id: str, given: Given) -> Upload | FairlaneError:
    """Return an upload of the caller, or why there is none."""
    number = queue.ids.number_of(upload_id)
    upload = None if number is None else queue.uploads.get(number)
    if upload is None:
        return UploadNotFound(f"Queue {queue.name!r} has no open upload {upload_id!r:.60}.")
    if upload.caller != (given.by or ""):
        return Forbidden(f"Upload {upload_id} was begun by another caller.")
    return upload


def _excess(ledger: Ledger, queue: Queue, upload: Upload, request: UploadPiece) -> FairlaneError | None:
    """Return the limit that a piece exceeds, or None if it does not."""
    limits, size = ledger.limits, len(request.data)
    # The index of a piece says how large the payload is at least.
    if (error := _too_large(ledger, queue, request.index * upload.piece_bytes + size)) is not None:
        return error
    usage = ledger.uploaders.get(upload.caller, KeyUsage())
    if usage.size + size > limits.uploads_bytes_max:
        cause = f"{_who(upload.caller or None)} has {usage.size} bytes in open uploads; uploads_bytes_max is "
        return TooManyUploads(f"{cause}{limits.uploads_bytes_max}.", retry_after_ms=RETRY_AFTER_MS)
    if limits.waiting_bytes_max is not None and ledger.size + size > limits.waiting_bytes_max:
        cause = f"All queues together have {ledger.size} bytes; waiting_bytes_max is {limits.waiting_bytes_max}."
        return GlobalFull(cause, retry_after_ms=RETRY_AFTER_MS)
    return None


def _too_large(ledger: Ledger, queue: Queue, size: int) -> PayloadTooLarge | None:
    """Return the limit that a payload of at least this size exceeds by itself, or None if there is none."""
    most = ledger.limits.upload_bytes_max
    if size > most:
        return PayloadTooLarge(f"A payload of {size} bytes is too large: upload_bytes_max is {most}.")
    return too_large(ledger, queue, size)


# ------------------------------------------------------------------------------------------------------------ messages


def uploads_of(queue: Queue, messages: Sequence[NewMessage]) -> list[Upload | None] | None:
    """Return the upload that each message names, None for those that name none; None if none of them does."""
    if all(message.upload is None for message in messages):
        return None
    numbers = [None if message.upload is None else queue.ids.number_of(message.upload) for message in messages]
    return [None if number is None else queue.uploads.get(number) for number in numbers]


def upload_refusals(queue: Queue, messages: Sequence[NewMessage], given: Given) -> dict[int, FairlaneError]:
    """Return the messages whose uploads they can't take, each with why. An upload is for one message."""
    refused: dict[int, FairlaneError] = {}
    taken: set[int] = set()
    for row, message in enumerate(messages):
        if message.upload is None:
            continue
        upload = _own(queue, message.upload, given)
        if isinstance(upload, FairlaneError):
            refused[row] = upload
        elif upload.number in taken:
            refused[row] = UploadMismatch(f"Upload {message.upload} is named by two messages.")
        elif (lack := upload.lack()) is not None:
            refused[row] = UploadMismatch(f"Upload {message.upload} is not complete. {lack}")
        else:
            taken.add(upload.number)
    return refused


# ------------------------------------------------------------------------------------------------------------ dropping


def drop(ledger: Ledger, request: DropUpload, _now_ms: int, given: Given) -> Decision[Done]:
    """Drop an upload, if it is still open."""
    queue = known_queue(ledger, request.queue)
    if isinstance(queue, FairlaneError):
        return refuse(queue)
    upload = _own(queue, request.id, given)
    if isinstance(upload, UploadNotFound):
        return Decision([], Done())
    if isinstance(upload, FairlaneError):
        return refuse(upload)
    return Decision([UploadDropped(ledger.next_sequence, queue.name, upload.number, "requested", given.by)], Done())


def sweep(ledger: Ledger, command: SweepUpload, _now_ms: int, _given: Given) -> Decision[None]:
    """Drop an upload that has been silent for too long."""
    return Decision([UploadDropped(ledger.next_sequence, command.queue, command.upload, "silence")], None)


def delete_pieces(ledger: Ledger, command: DeletePieces, _now_ms: int, _given: Given) -> Decision[None]:
    """Delete some of the discarded pieces, the oldest first."""
    numbers = list(islice(ledger.discarded, command.count))
    return Decision([PiecesDeleted(ledger.next_sequence, numbers)] if numbers else [], None)


DECIDERS: Final[Deciders] = {
    BeginUpload: begin,
    UploadPiece: store_piece,
    DropUpload: drop,
    SweepUpload: sweep,
    DeletePieces: delete_pieces,
}
