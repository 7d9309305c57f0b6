"""Errors on the wire: one table from codes to HTTP and gRPC statuses, and the shape they all have."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.verbs.errors import ErrorBody

_INVALID, _NOT_FOUND, _EXISTS, _FORBIDDEN, _EXHAUSTED, _PRECONDITION = 3, 5, 6, 7, 8, 9
_ABORTED, _OUT_OF_RANGE, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 10, 11, 13, 14, 16
_CODES: Final = (
    (400, _INVALID, ("invalid_argument", "hook_invalid", "not_a_dlq")),
    (401, _UNAUTHENTICATED, ("unauthenticated",)),
    (403, _FORBIDDEN, ("forbidden",)),
    (404, _NOT_FOUND, ("queue_not_found", "message_not_found", "reader_not_found", "consumer_not_found")),
    (404, _NOT_FOUND, ("claim_not_found", "sink_not_found", "redrive_not_found", "schedule_not_found")),
    (404, _NOT_FOUND, ("node_not_found", "route_not_found", "upload_not_found")),
    (409, _EXISTS, ("queue_exists",)),
    (409, _ABORTED, ("lease_mismatch", "state_mismatch", "consumer_fenced", "stage_mismatch", "journal_mismatch")),
    (409, _ABORTED, ("message_cancelled", "message_dead", "upload_mismatch", "payload_streamed")),
    (409, _PRECONDITION, ("repeat_too_late", "not_pending", "out_of_order", "queues_apart", "queue_split")),
    (410, _OUT_OF_RANGE, ("journal_trimmed",)),
    (413, _INVALID, ("payload_too_large", "result_too_large", "request_too_large")),
    (421, _PRECONDITION, ("queue_elsewhere",)),
    (429, _EXHAUSTED, ("key_full", "queue_full", "global_full", "too_many_waiters", "too_many_connections")),
    (429, _EXHAUSTED, ("rate_limited", "too_much_unread", "too_much_arriving", "too_many_uploads")),
    (503, _EXHAUSTED, ("store_full",)),
    (503, _UNAVAILABLE, ("queue_moving", "node_insecure", "closed", "disconnected")),
    (503, _UNAVAILABLE, ("store_failed", "store_locked", "store_fenced", "store_corrupt", "store_damaged")),
    (503, _UNAVAILABLE, ("wait_timed_out", "call_timed_out", "deadline_passed", "dropped")),
    (500, _INTERNAL, ("wrong_event_loop", "internal")),
    (500, _UNAVAILABLE, ("wrong_process", "java_not_found", "executor_mismatch")),
    (500, _UNAVAILABLE, ("journal_incomplete", "candidate_invalid", "model_inaccurate")),
)
"""The HTTP status, the gRPC status, and the codes that have both."""

HTTP_STATUS: Final = {code: http for http, _, codes in _CODES for code in codes}
"""The HTTP status of each code."""
GRPC_STATUS: Final = {code: grpc for _, grpc, codes in _CODES for code in codes}
"""The gRPC status of each code; what is not here is unavailable."""


def grpc_status(code: str) -> int:
    """Return the gRPC status of a code."""
    return GRPC_STATUS.get(code, _UNAVAILABLE)


class RefusedItem(msgspec.Struct, frozen=True):
    """The result for one item of a request whose items were all refused."""

    error: ErrorBody


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an HTTP answer that refuses the whole request.

    Attributes:
        error: the error, or the first one where each item was refused for itself.
        results: the result for each item then, in order.
    """

    error: ErrorBody
    results: list[RefusedItem] = []
