"""The limits on what one caller may take from a server at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from fairlane.errors import TooMuchUnread
from fairlane.model.limits import PAYLOAD_BYTES_MAX
from fairlane.verbs.verb import Request

R = TypeVar("R", bound=Request[Any])
_RETRY_AFTER_MS: Final = 1_000
_MEBIBYTE: Final = 1024 * 1024
_ENVELOPE_BYTES: Final = 8 * _MEBIBYTE
"""What a request with one message of the greatest size may have besides its payload, as base64 for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits on requests and connections.

    Attributes:
        body_bytes_max: bytes in one HTTP request, or in one message of the stream. A raw payload may be longer: it is
            stored in pieces, up to ``upload_bytes_max``.
        json_body_bytes_max: bytes in one HTTP request in JSON, which takes longer to decode than msgpack.
        arriving_total_bytes_max: bytes of requests that are being received, over HTTP and the stream; those of one API
            key, or of one address without a key, may have half of it. A request counts with its whole length once
            64 KiB of it have come.
        unread_bytes_max: bytes that one connection may have been sent and not read, of messages with their headers and
            state, and of answers; no more messages are leased for it then, and large answers are refused.
        unread_total_bytes_max: the same for all connections together; those of one API key may have half of it.
        calls_max: calls in flight on one connection of the stream; more are not read until one is answered.
        connections_max: open connections over HTTP and the stream, and as many again over gRPC.
        connections_per_address_max: of these, connections from one address that have shown no API key.
        connections_per_key_max: of these, connections of one API key. Over gRPC, where only connections with calls are
            known, it may have as many, and four times as many calls in progress.
        waiters_per_caller_max: long polls, channels and subscriptions of one caller at the same time, counted by its
            API key, or by its address where authentication is disabled.
        descriptors_reserved: file descriptors that are not used for connections, so that the store can work.
        head_timeout_ms: how long the head of a request may take to arrive.
        body_timeout_ms: how often the rate of a body, or of a message of the stream, is checked; one without progress
            ends after this time.
        body_bytes_per_second_min: the lowest rate at which a body or message may arrive.
        handshake_timeout_ms: how long a TLS handshake may take.
        auth_failures_per_second: requests from one address without a valid API key that are refused as such per second,
            and ten times as many at once. Further ones are refused as too many, and not logged.
        refusals_logged_per_second: refused requests of one address that are logged per second, and ten times as many at
            once. Others are counted and summed up.
        calls_logged_per_second: with ``access_log``, calls of one address that are logged per second, and ten times as
            many at once. Others are counted and summed up.
        idle_timeout_ms: how long a connection may be open between two requests.
        wait_ms_max: how long a request over HTTP or gRPC waits for messages or capacity; a longer ``wait_ms`` is
            shortened.
        requests_per_second: requests that one caller may make per second, counted by its API key, or by its address
            where authentication is disabled; an IPv6 address counts with its /64 network. None for no limit.
        requests_burst: requests that it may make at once; by default those of one second.
    """

    body_bytes_max: int = PAYLOAD_BYTES_MAX + _ENVELOPE_BYTES
    json_body_bytes_max: int = 8 * _MEBIBYTE
    arriving_total_bytes_max: int = 96 * _MEBIBYTE
    unread_bytes_max: int = 16 * _MEBIBYTE
    unread_total_bytes_max: int = 128 * _MEBIBYTE
    calls_max: int = 1024
    connections_max: int = 4096
    connections_per_address_max: int = 2048
    connections_per_key_max: int = 2048
    waiters_per_caller_max: int = 2048
    descriptors_reserved: int = 64
    head_timeout_ms: int = 10_000
    body_timeout_ms: int = 10_000
    body_bytes_per_second_min: int = 1024
    handshake_timeout_ms: int = 10_000
    idle_timeout_ms: int = 75_000
    auth_failures_per_second: int = 10
    refusals_logged_per_second: int = 10
    calls_logged_per_second: int = 1_000
    wait_ms_max: int = 3_600_000
    requests_per_second: int | None = None
    requests_burst: int | None = None

    def __post_init__(self) -> None:
        for name, made in self.__dataclass_fields__.items():
            value = getattr(self, name)
            if value is None and made.default is None:
                continue
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        if self.requests_burst is not None and self.requests_per_second is None:
            raise ValueError("requests_burst needs requests_per_second.")

    def too_much_unread(self) -> TooMuchUnread:
        """Return the error of a caller whose answer has no room beside what is not read yet."""
        return TooMuchUnread(
            f"Too many bytes are unread: unread_bytes_max is {self.unread_bytes_max} for a connection, and "
            f"unread_total_bytes_max is {self.unread_total_bytes_max} for all; one API key may use half of that.",
            retry_after_ms=_RETRY_AFTER_MS,
        )

    def shortened(self, request: R) -> R:
        """Return a request over HTTP or gRPC whose ``wait_ms`` is at most ``wait_ms_max``."""
        if getattr(request, "wait_ms", 0) <= self.wait_ms_max:
            return request
        return msgspec.structs.replace(request, wait_ms=self.wait_ms_max)
