"""The limits on what one caller may take from a server at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fairlane.errors import InvalidArgument
from fairlane.model.limits import PAYLOAD_BYTES_MAX
from fairlane.verbs.verb import Request

_MEBIBYTE: Final = 1024 * 1024
_ENVELOPE_BYTES: Final = 8 * _MEBIBYTE
"""What a request with one message of the greatest size may have besides its payload, as base64 for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits on requests and connections.

    Attributes:
        body_bytes_max: bytes in one HTTP request, or in one message of the stream.
        json_body_bytes_max: bytes in one HTTP request in JSON, which takes longer to decode than msgpack.
        calls_max: calls in flight on one connection of the stream; more are not read until one is answered.
        connections_max: connections of the stream, and HTTP requests that stream deliveries, at the same time.
        wait_ms_max: how long a request over HTTP or gRPC may wait for messages or capacity.
        requests_per_second: requests that one caller may make per second, counted by its API key, or by its address
            where authentication is disabled. None for no limit.
        requests_burst: requests that it may make at once; by default those of one second.
    """

    body_bytes_max: int = PAYLOAD_BYTES_MAX + _ENVELOPE_BYTES
    json_body_bytes_max: int = 8 * _MEBIBYTE
    calls_max: int = 1024
    connections_max: int = 4096
    wait_ms_max: int = 60_000
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

    def check_wait(self, request: Request[Any]) -> None:
        """Refuse a request that would hold an HTTP connection or gRPC call for too long.

        Raises:
            InvalidArgument: its ``wait_ms`` is greater than ``wait_ms_max``.
        """
        if getattr(request, "wait_ms", 0) > self.wait_ms_max:
            raise InvalidArgument(f"wait_ms is at most {self.wait_ms_max}, not {request.wait_ms}.")  # type: ignore[attr-defined]  # it has one
