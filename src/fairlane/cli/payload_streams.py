"""Payloads of any size between a broker and files or pipes, with a few pieces in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, Protocol, cast

import msgspec

from fairlane.cli.session import Broker
from fairlane.errors import FairlaneError
from fairlane.model.limits import PIECE_BYTES
from fairlane.model.message import Delivery, NewMessage


class _Streaming(Protocol):
    """A client, which uploads several pieces at the same time; an embedded broker does not need that."""

    def enqueue_stream(self, queue: str, source: Iterator[bytes], **terms: object) -> str:
        """Enqueue a payload that is read from an iterator."""


def enqueue_stream(broker: Broker, queue: str, message: NewMessage, source: io.BufferedIOBase) -> str:
    """Enqueue a message whose payload is read from a file or pipe, and return its id."""
    first = source.read(PIECE_BYTES + 1)
    if len(first) <= PIECE_BYTES:
        return broker.enqueue(queue, msgspec.structs.replace(message, payload=first))
    if hasattr(broker, "enqueue_stream"):
        terms = {name: getattr(message, name) for name in NewMessage.__struct_fields__}
        for name in ("payload", "upload"):
            del terms[name]
        return cast("_Streaming", broker).enqueue_stream(queue, _parts(first, source), **terms)
    upload = broker.begin_upload(queue, fairness_key=message.fairness_key)
    try:
        for index, piece in enumerate(_pieces(first, source, upload.piece_bytes)):
            broker.upload_piece(queue, upload.id, index, piece)
        return broker.enqueue(queue, msgspec.structs.replace(message, upload=upload.id))
    except BaseException:
        with suppress(FairlaneError):
            broker.drop_upload(queue, upload.id)
        raise


def _parts(first: bytes, source: io.BufferedIOBase) -> Iterator[bytes]:
    yield first
    while part := source.read(PIECE_BYTES):
        yield part


def _pieces(first: bytes, source: io.BufferedIOBase, piece_bytes: int) -> Iterator[bytes]:
    rest = first
    while rest:
        rest += source.read(max(0, piece_bytes - len(rest)))
        yield rest[:piece_bytes]
        rest = rest[piece_bytes:] or source.read(piece_bytes)


def copy_payload(broker: Broker, delivery: Delivery, target: BinaryIO) -> None:
    """Write the payload of a leased message, piece by piece."""
    if delivery.payload_size is None:
        target.write(delivery.payload)
        return
    offset = 0
    while offset < delivery.payload_size:
        found = broker.read_payload(delivery.queue, delivery.id, token=delivery.token, offset=offset)
        target.write(found.data)
        offset += len(found.data)
