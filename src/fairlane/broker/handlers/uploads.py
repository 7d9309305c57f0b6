"""Requests about large payloads: what is checked before they are decided, and how read-only ones are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.broker.handlers.checks import require
from fairlane.broker.requests import Call
from fairlane.broker.views import queues as views
from fairlane.broker.waiting.fetches import Awaited
from fairlane.core.checks import key_fault, whole_fault
from fairlane.core.decide.uploads import view_of
from fairlane.core.ledger import Message
from fairlane.core.producer import LimitedProducer
from fairlane.core.states.uploads import Upload
from fairlane.errors import LeaseMismatch
from fairlane.model.message import Receipt
from fairlane.verbs.leases import Extend
from fairlane.verbs.uploads import BeginUpload, ListUploads, PayloadRange, ReadPayload, UploadList

if TYPE_CHECKING:
    from fairlane.broker.engine.engine import Engine

_MOST: Final = 1 << 53


def _uploads(engine: Engine, request: ListUploads, producer: LimitedProducer | None) -> UploadList:
    queue = views.known(engine.ledger, request.queue)
    found: Iterable[Upload] = queue.uploads.values()
    if producer is not None and producer.on(queue.name) is not None:
        found = [upload for upload in found if upload.caller == producer.name]
    return UploadList(uploads=[view_of(queue, upload) for upload in found])


def _read_payload(engine: Engine, request: ReadPayload) -> PayloadRange | Awaited:
    message = views.known_message(engine.ledger, request.queue, request.id)
    if request.token is not None and request.token != message.token:
        raise LeaseMismatch(f"Message {request.id} is not leased under token {request.token}.")
    most = engine.settings.answer_bytes_max
    count = most if request.count is None else min(request.count, most)
    piece = _fetched(engine, message, request.offset, count)
    if isinstance(piece, Awaited):
        return piece
    data = engine.bodies.part(message, request.offset, count, piece=piece)
    if request.token is not None and data:
        _keep_lease(engine, message, end=request.offset + len(data))
    return PayloadRange(data=data, size=message.size)


def _fetched(engine: Engine, message: Message, offset: int, count: int) -> bytes | Awaited | None:
    """Return the piece at an offset if the store is remote; None if it is read here, since it is near or not found."""
    pieces = message.pieces
    if pieces is None or not engine.fetches.is_remote:
        return None
    reads_on = offset % pieces.piece_bytes == 0 and count >= pieces.piece_bytes
    return engine.fetches.piece(pieces, offset, reads_on=reads_on)


def _keep_lease(engine: Engine, message: Message, *, end: int) -> None:
    """Extend the lease under which a payload is read, if the reader gets on and that is due."""
    span_ms = engine.read_leases.extension_ms(message, end=end, now_ms=engine.now_ms())
    if span_ms is not None:
        receipts = [Receipt(message.id, message.token)]
        engine.submit(Call(Extend(queue=message.queue.name, receipts=receipts, visibility_ms=span_ms)))


READS: Final[Mapping[type, Callable[..., Any]]] = {ReadPayload: _read_payload}
LISTS: Final[Mapping[type, Callable[..., Any]]] = {ListUploads: _uploads}


def _check_begin(request: BeginUpload) -> None:
    if request.fairness_key is not None:
        require(key_fault(request.fairness_key))
    if request.size is not None:
        require(whole_fault("size", request.size, least=0, most=_MOST))


def _check_read(request: ReadPayload) -> None:
    require(whole_fault("offset", request.offset, least=0, most=_MOST))
    if request.count is not None:
        require(whole_fault("count", request.count, least=1, most=_MOST))


CHECKS: Final[Mapping[type, Callable[[Any], None]]] = {BeginUpload: _check_begin, ReadPayload: _check_read}
