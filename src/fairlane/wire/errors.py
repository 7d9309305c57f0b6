"""Errors on the wire: one table from codes to HTTP and gRPC statuses, and the shape they all have."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.verbs.errors import ErrorBody

GRPC_OK: Final = 0
HTTP_STATUS: Final[dict[str, int]] = {
    "invalid_argument": 400,
    "hook_invalid": 400,
    "not_a_dlq": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "queue_not_found": 404,
    "message_not_found": 404,
    "reader_not_found": 404,
    "consumer_not_found": 404,
    "claim_not_found": 404,
    "sink_not_found": 404,
    "redrive_not_found": 404,
    "node_not_found": 404,
    "route_not_found": 404,
    "queue_exists": 409,
    "lease_mismatch": 409,
    "state_mismatch": 409,
    "consumer_fenced": 409,
    "stage_mismatch": 409,
    "not_pending": 409,
    "queues_apart": 409,
    "queue_split": 409,
    "journal_trimmed": 410,
    "payload_too_large": 413,
    "request_too_large": 413,
    "queue_elsewhere": 421,
    "key_full": 429,
    "too_many_waiters": 429,
    "too_many_connections": 429,
    "rate_limited": 429,
    "too_much_unread": 429,
    "queue_full": 503,
    "global_full": 503,
    "queue_moving": 503,
    "node_insecure": 503,
    "store_failed": 503,
    "store_full": 503,
    "store_locked": 503,
    "store_fenced": 503,
    "store_corrupt": 503,
    "store_damaged": 503,
    "closed": 503,
    "disconnected": 503,
    "wait_timed_out": 503,
    "deadline_passed": 503,
    "dropped": 503,
    "wrong_event_loop": 500,
    "wrong_process": 500,
    "java_not_found": 500,
    "executor_mismatch": 500,
    "journal_incomplete": 500,
    "candidate_invalid": 500,
    "internal": 500,
}
"""The HTTP status of each code."""

_INVALID, _NOT_FOUND, _EXISTS, _FORBIDDEN, _EXHAUSTED, _PRECONDITION = 3, 5, 6, 7, 8, 9
_ABORTED, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED, _OUT_OF_RANGE = 10, 13, 14, 16, 11
GRPC_STATUS: Final[dict[str, int]] = {
    "invalid_argument": _INVALID,
    "hook_invalid": _INVALID,
    "not_a_dlq": _INVALID,
    "payload_too_large": _INVALID,
    "request_too_large": _INVALID,
    "unauthenticated": _UNAUTHENTICATED,
    "forbidden": _FORBIDDEN,
    "queue_not_found": _NOT_FOUND,
    "message_not_found": _NOT_FOUND,
    "reader_not_found": _NOT_FOUND,
    "consumer_not_found": _NOT_FOUND,
    "claim_not_found": _NOT_FOUND,
    "sink_not_found": _NOT_FOUND,
    "redrive_not_found": _NOT_FOUND,
    "node_not_found": _NOT_FOUND,
    "route_not_found": _NOT_FOUND,
    "queue_exists": _EXISTS,
    "lease_mismatch": _ABORTED,
    "state_mismatch": _ABORTED,
    "consumer_fenced": _ABORTED,
    "stage_mismatch": _ABORTED,
    "not_pending": _PRECONDITION,
    "queue_elsewhere": _PRECONDITION,
    "queues_apart": _PRECONDITION,
    "queue_split": _PRECONDITION,
    "journal_trimmed": _OUT_OF_RANGE,
    "key_full": _EXHAUSTED,
    "queue_full": _EXHAUSTED,
    "store_full": _EXHAUSTED,
    "global_full": _EXHAUSTED,
    "too_many_waiters": _EXHAUSTED,
    "too_many_connections": _EXHAUSTED,
    "rate_limited": _EXHAUSTED,
    "too_much_unread": _EXHAUSTED,
    "wrong_event_loop": _INTERNAL,
    "internal": _INTERNAL,
}
"""The gRPC status of each code; what is not here is unavailable."""


def grpc_status(code: str) -> int:
    """Return the gRPC status of a code."""
    return GRPC_STATUS.get(code, _UNAVAILABLE)


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of an HTTP answer that refuses the whole request."""

    error: ErrorBody
