"""W3C trace context: the place of a call or a message in a distributed trace.

It travels as two texts, ``traceparent`` and ``tracestate``: as HTTP headers, as gRPC metadata, as the fifth element of
a call on the stream, and with a message as headers of those names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlane.model.limits import HEADERS_LENGTH_MAX, HEADERS_MAX
from fairlane.model.message import NewMessage

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_TRACESTATE_LENGTH_MAX: Final = 512
_LENGTH_MAX: Final = 128


class TraceContext(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The span that a call or a message belongs to."""

    traceparent: str
    tracestate: str | None = None

    @property
    def trace_id(self) -> str:
        """The trace, as 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The span, as 16 hexadecimal digits."""
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        """Whether the trace is recorded."""
        return bool(int(self.traceparent[53:55], 16) & 1)

    def headers(self) -> dict[str, str]:
        """Return the context as message headers."""
        if self.tracestate is None:
            return {TRACEPARENT: self.traceparent}
        return {TRACEPARENT: self.traceparent, TRACESTATE: self.tracestate}


def trace_of(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Return the trace context of two texts. A malformed one is ignored, as the standard demands."""
    if traceparent is None or len(traceparent) > _LENGTH_MAX or _TRACEPARENT.fullmatch(traceparent) is None:
        return None
    if tracestate is not None and not _is_tracestate(tracestate):
        tracestate = None
    return TraceContext(traceparent, tracestate)


def trace_in(headers: Mapping[str, str]) -> TraceContext | None:
    """Return the trace context in the headers of a message."""
    return trace_of(headers.get(TRACEPARENT), headers.get(TRACESTATE)) if headers else None


def with_trace(messages: Sequence[NewMessage], trace: TraceContext) -> list[NewMessage]:
    """Return messages with a trace context in the headers of each that has none."""
    traced, replace = trace.headers(), msgspec.structs.replace
    return [
        replace(message, headers={**message.headers, **traced}) if _fits(message.headers, traced) else message
        for message in messages
    ]


def _fits(headers: Mapping[str, str], traced: Mapping[str, str]) -> bool:
    """Return whether headers have no trace yet and can take one within the limits: tracing never refuses a message."""
    if not headers:
        return True
    if TRACEPARENT in headers:
        return False
    length = sum(len(name) + len(value) for part in (headers, traced) for name, value in part.items())
    return len(headers) + len(traced) <= HEADERS_MAX and length <= HEADERS_LENGTH_MAX


def _is_tracestate(text: str) -> bool:
    return 0 < len(text) <= _TRACESTATE_LENGTH_MAX and text.isascii() and text.isprintable()
