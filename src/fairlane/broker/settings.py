"""The settings of a broker."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.model import limits
from fairlane.model.broker_limits import Limits
from fairlane.model.limits import HOOK_MEMORY_BYTES_MIN, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, TIMESPAN_MS_MAX

_MEBIBYTE = 1024 * 1024
_HOUR_MS = 3_600_000
_MOST = 1 << 53
_LEAST = {"hook_memory_bytes_max": HOOK_MEMORY_BYTES_MIN}
_AT_MOST = (("piece_bytes", "upload_bytes_max"), ("upload_bytes_max", "uploads_bytes_max"))
"""Pairs of settings of which the first may not exceed the second, or no upload could use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that hold for all queues of a broker. Every number is a whole number of at least 1.

    Attributes:
        payload_bytes_max: the largest payload accepted in one request; larger ones are uploaded in pieces.
        upload_bytes_max: the largest payload accepted in pieces.
        uploads_max: how many uploads one caller may have open.
        uploads_bytes_max: how many bytes its open uploads may have together.
        upload_silence_ms: how long an upload may go without a new piece before it is dropped.
        piece_bytes: the size of the pieces of an uploaded payload.
        cycle_bytes_max: about how many bytes of pieces one commit holds; more wait, so that others are not delayed.
            None for what suits the store: one piece, or 4 MiB where each commit takes long anyway.
        waiting_max: how many messages all queues together may hold; None for no limit.
        waiting_bytes_max: how many bytes of payload they may hold; None for no limit.
        result_bytes_max: the largest result accepted.
        results_max: how many messages that have ended are remembered, with their results, in all queues together. If
            there are more, those are forgotten early whose time ends first.
        results_bytes_max: how many bytes of results are kept, likewise.
        disk_reserve_bytes: how many bytes of the disk new messages may not use; an eighth of the disk if that is less.
        waiters_max: how many consumers may wait at the same time.
        cache_bytes_max: how much memory the bodies that were written or read lately may take.
        answer_bytes_max: how many bytes of messages one lease or peek returns, with headers and state, about: the last
            message may exceed it. One cycle hands out no more, so that large messages do not block the event loop.
        journal_retention_ms: how long the journal is kept for readers, unless a queue's policy asks for longer.
        journal_bytes_max: how many bytes of journal are kept for readers at most.
        reader_hold_ms: how long a registered reader that does not move keeps the journal from being trimmed.
        segment_events: how many events a segment of the journal has when it is sealed.
        segment_ms: how old a segment is when it is sealed, if it has fewer events.
        cycle_events_max: about how many events of requests, and how many leases, one commit holds; more wait.
        hook_queue_ms_max: about how long the scripts of one queue run in one cycle; remaining messages wait in order.
        hook_cycle_ms_max: about how long all scripts run in one cycle.
        hook_timeout_ms: how long a script may take for one message, unless the queue's policy says otherwise.
        hook_memory_bytes_max: how much memory a script may use, unless the queue's policy says otherwise.
        hook_breaker_threshold: after how many consecutive faults the scripts of a queue are bypassed, likewise.
        hook_breaker_cooldown_ms: how long they are bypassed, likewise.
        hook_breaker_share_percent: the part of the time that the scripts of a queue may use before they are bypassed.
        hook_breaker_window_ms: the time of which they may use that part at once.
    """

    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    upload_bytes_max: int = limits.UPLOAD_BYTES_MAX
    uploads_max: int = limits.UPLOADS_MAX
    uploads_bytes_max: int = limits.UPLOADS_BYTES_MAX
    upload_silence_ms: int = limits.UPLOAD_SILENCE_MS
    piece_bytes: int = limits.PIECE_BYTES
    cycle_bytes_max: int | None = None
    waiting_max: int | None = 4_000_000  # 0.2 GB of memory as rows, 1.8 to 4.2 GB as objects
    waiting_bytes_max: int | None = 256 * 1024 * _MEBIBYTE
    result_bytes_max: int = RESULT_BYTES_MAX
    results_max: int = 1_000_000  # about 0.4 GB of memory
    results_bytes_max: int = 1024 * _MEBIBYTE
    disk_reserve_bytes: int = 256 * _MEBIBYTE
    waiters_max: int = 4096
    cache_bytes_max: int = 64 * _MEBIBYTE
    answer_bytes_max: int = 4 * _MEBIBYTE
    journal_retention_ms: int = 24 * _HOUR_MS
    journal_bytes_max: int = 1024 * _MEBIBYTE
    reader_hold_ms: int = 7 * 24 * _HOUR_MS
    segment_events: int = 250_000
    segment_ms: int = 10 * 60_000
    cycle_events_max: int = 1_000
    hook_queue_ms_max: int = 5
    hook_cycle_ms_max: int = 10
    hook_timeout_ms: int = 10
    hook_memory_bytes_max: int = _MEBIBYTE
    hook_breaker_threshold: int = 3
    hook_breaker_cooldown_ms: int = 10_000
    hook_breaker_share_percent: int = 20
    hook_breaker_window_ms: int = 10_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is None and name in ("waiting_max", "waiting_bytes_max", "cycle_bytes_max"):
                continue
            least = _LEAST.get(name, 1)
            most = TIMESPAN_MS_MAX if name.endswith("_ms") else 100 if name.endswith("_percent") else _MOST
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
        for name, bound in _AT_MOST:
            value, most = getattr(self, name), getattr(self, bound)
            if value > most:
                raise ValueError(f"{name} ({value}) exceeds {bound} ({most}): lower the one or raise the other.")

    def for_ledger(self) -> Limits:
        """Return what the rules of the broker have to know of them."""
        return Limits(**{name: getattr(self, name) for name in Limits.__dataclass_fields__})
