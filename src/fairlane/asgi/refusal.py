"""The response to a request that does not reach the application, and the estimate of when a retry may reach it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass

from fairlane import errors
from fairlane.asgi.protocol import ASGIApp, Receive, Scope, Send
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.scheduler import DepartureReason, Refusal, RefusalReason

_MS_A_SECOND = 1_000
_COMPLETIONS_KEPT = 64
RETRY_AFTER_LEAST_MS = 1_000
RETRY_AFTER_MAX_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """A request that did not reach the application, and the reason.

    Attributes:
        status: the HTTP status of the response.
        error: the reason, with its code, cause and remedy.
        retry_after_ms: when a retry is likely to succeed, if that is known.
    """

    status: int
    error: errors.FairlaneError
    retry_after_ms: int | None = None

    @property
    def retry_after_s(self) -> int | None:
        """The same in seconds, rounded up, for the ``Retry-After`` header."""
        return None if self.retry_after_ms is None else -(-self.retry_after_ms // _MS_A_SECOND)


def refusal_error(refusal: Refusal, retry_after_ms: int) -> errors.UnavailableError:
    """Return the error for a request that may not wait."""
    if refusal.reason is RefusalReason.KEY_FULL:
        cause = f"Key {refusal.key!r} has reached its limit of {refusal.limit} waiting requests."
        return errors.KeyFull(cause, retry_after_ms=retry_after_ms)
    cause = f"The service has reached its limit of {refusal.limit} waiting requests."
    return errors.GlobalFull(cause, retry_after_ms=retry_after_ms)


def departure_error(request: QueuedRequest, reason: DepartureReason, retry_after_ms: int) -> errors.UnavailableError:
    """Return the error for a request that waited and was dropped or expired."""
    if reason is DepartureReason.DROPPED:
        return errors.Dropped("The request was dropped for a newer one.", retry_after_ms=retry_after_ms)
    if request.is_client_limit:
        cause = f"The request did not get its turn within its client's deadline of {request.wait_max_ms} ms."
        return errors.DeadlinePassed(cause, retry_after_ms=retry_after_ms)
    cause = f"The request did not get its turn within the service's limit of {request.wait_max_ms} ms."
    return errors.WaitTimedOut(cause, retry_after_ms=retry_after_ms)


def refused_with(error: errors.FairlaneError) -> RefusedRequest:
    """Return the HTTP form of an error."""
    match error:
        case errors.InvalidArgument():
            status = 400
        case errors.KeyFull():
            status = 429
        case _:
            status = 503
    retry_after_ms = error.retry_after_ms if isinstance(error, errors.UnavailableError) else None
    return RefusedRequest(status=status, error=error, retry_after_ms=retry_after_ms)


def render_json(_scope: Scope, refused: RefusedRequest) -> ASGIApp:
    """Return the default response: ``{"error": {"code", "message", "remedy", "retry_after_ms"}}``."""
    error: dict[str, str | int] = {
        "code": refused.error.code,
        "message": refused.error.cause,
        "remedy": refused.error.remedy,
    }
    if refused.retry_after_ms is not None:
        error["retry_after_ms"] = refused.retry_after_ms
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.retry_after_s is not None:
        headers.append((b"retry-after", str(refused.retry_after_s).encode()))

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return respond


class CompletionRate:
    """An estimate of how long the current backlog will take.

    It counts from when the backlog began, so that a quiet hour before does not distort the rate, and only considers the
    latest completions. If no request has finished since then, the backlog is known to last at least as long as it has
    lasted, and that is the estimate.
    """

    def __init__(self) -> None:
        # The first entry is the start of the backlog, each later one a completion.
        self._instants: deque[int] = deque(maxlen=_COMPLETIONS_KEPT + 1)

    @property
    def is_known(self) -> bool:
        """Whether a request has finished since the backlog began."""
        return len(self._instants) > 1

    def begin(self, now_ms: int) -> None:
        """Record that requests have begun to wait."""
        self._instants.clear()
        self._instants.append(now_ms)

    def note_completion(self, now_ms: int) -> None:
        """Record that a request has finished."""
        if self._instants:
            self._instants.append(now_ms)

    def estimate_ms(self, ahead: int, now_ms: int) -> int:
        """Return the estimated time until ``ahead`` requests have had their turns, within fixed bounds."""
        if not self._instants:
            return RETRY_AFTER_LEAST_MS
        elapsed_ms = now_ms - self._instants[0]
        completions = len(self._instants) - 1
        estimate_ms = ahead * elapsed_ms // completions if completions else elapsed_ms
        return max(RETRY_AFTER_LEAST_MS, min(estimate_ms, RETRY_AFTER_MAX_MS))
