"""The limits that the rules of the broker know."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.model.limits import (
    PAYLOAD_BYTES_MAX,
    PIECE_BYTES,
    RESULT_BYTES_MAX,
    UPLOAD_BYTES_MAX,
    UPLOAD_SILENCE_MS,
    UPLOADS_BYTES_MAX,
    UPLOADS_MAX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for all queues together, as the broker was opened with."""

    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    waiting_max: int | None = None
    waiting_bytes_max: int | None = None
    result_bytes_max: int = RESULT_BYTES_MAX
    upload_bytes_max: int = UPLOAD_BYTES_MAX
    uploads_max: int = UPLOADS_MAX
    uploads_bytes_max: int = UPLOADS_BYTES_MAX
    upload_silence_ms: int = UPLOAD_SILENCE_MS
    piece_bytes: int = PIECE_BYTES
