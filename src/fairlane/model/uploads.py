"""Uploads: payloads that arrive in pieces before their message is enqueued."""

from __future__ import annotations

import msgspec


class UploadView(msgspec.Struct, frozen=True, kw_only=True):
    """An open upload.

    Attributes:
        id: names it in ``upload_piece``, ``drop_upload`` and in the message that takes it.
        piece_bytes: the size of its pieces; the last may be shorter.
        size: the bytes that have arrived.
        pieces: the pieces that have arrived.
        heard_ms: when the last one did. After ``upload_silence_ms`` without another the upload is dropped.
        by: the caller that began it, if it is known.
    """

    id: str
    queue: str
    piece_bytes: int
    size: int
    pieces: int
    heard_ms: int
    by: str | None = None
