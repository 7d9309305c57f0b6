"""What a client sees when its request does not reach the application."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fairlane.asgi.protocol import ASGIApp, Receive, Scope, Send
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.errors import (
    DeadlinePassed,
    Dropped,
    FairlaneError,
    GlobalFull,
    InvalidArgument,
    KeyFull,
    UnavailableError,
    WaitTimedOut,
)
from fairlane.scheduler import DepartureReason, Refusal, RefusalReason

_MS_A_SECOND = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """A request that did not reach the application, and why.

    Attributes:
        status: the HTTP status that says so.
        error: the reason, with its code, cause and remedy.
        retry_after_ms: when coming back is likely to help, where that is known.
    """

    status: int
    error: FairlaneError
    retry_after_ms: int | None = None

    @property
    def retry_after_s(self) -> int | None:
        """The same in whole seconds, rounded up, as the ``Retry-After`` header wants it."""
        return None if self.retry_after_ms is None else -(-self.retry_after_ms // _MS_A_SECOND)


def refusal_error(refusal: Refusal, retry_after_ms: int) -> UnavailableError:
    """Return why a request may not even wait."""
    if refusal.reason is RefusalReason.KEY_FULL:
        cause = f"Key {refusal.key!r} has as many requests waiting as it may: {refusal.limit}."
        return KeyFull(cause, retry_after_ms=retry_after_ms)
    return GlobalFull(f"As many requests wait in all as may: {refusal.limit}.", retry_after_ms=retry_after_ms)


def departure_error(place: QueuedRequest, reason: DepartureReason, retry_after_ms: int) -> UnavailableError:
    """Return why a request that waited never had its turn."""
    if reason is DepartureReason.DROPPED:
        return Dropped("The request had to make room for another one.", retry_after_ms=retry_after_ms)
    if place.is_client_limit:
        cause = f"The request was not reached within the {place.wait_max_ms} ms that its client would wait."
        return DeadlinePassed(cause, retry_after_ms=retry_after_ms)
    cause = f"The request was not reached within the {place.wait_max_ms} ms that requests may wait here."
    return WaitTimedOut(cause, retry_after_ms=retry_after_ms)


def refused_with(error: FairlaneError) -> RefusedRequest:
    """Return how an error is told over HTTP."""
    match error:
        case InvalidArgument():
            status = 400
        case KeyFull():
            status = 429
        case _:
            status = 503
    retry_after_ms = error.retry_after_ms if isinstance(error, UnavailableError) else None
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
