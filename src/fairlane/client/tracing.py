"""The current OpenTelemetry span, which calls and messages carry to the server and to consumers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fairlane.model.message import NewMessage
from fairlane.model.trace import TraceContext, trace_of, with_trace

if TYPE_CHECKING:  # OpenTelemetry is optional
    from opentelemetry.trace import Span

API: Final = "opentelemetry.trace"
"""A program that has not imported this module cannot be in a span."""


def current_trace() -> TraceContext | None:
    """Return the trace context of the current span; None if there is none."""
    api = sys.modules.get(API)
    return None if api is None else context_of(api.get_current_span())


def context_of(span: Span) -> TraceContext | None:
    """Return the trace context of a span; None if the span is not valid."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return trace_of(traceparent, context.trace_state.to_header() or None)


def traced(messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """Return messages with the current trace context added to those that have none."""
    trace = current_trace()
    return messages if trace is None else with_trace(messages, trace)
