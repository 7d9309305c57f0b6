"""The span that the program is in, if it uses OpenTelemetry: calls and messages carry it on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fairlane.model.message import NewMessage
from fairlane.wire.trace import TraceContext, trace_of, with_trace

if TYPE_CHECKING:  # nobody needs OpenTelemetry who does not use it
    from opentelemetry.trace import Span

API: Final = "opentelemetry.trace"
"""The module that a program which traces has imported: who has not, is in no span."""


def current_trace() -> TraceContext | None:
    """Return the trace context of the current span, or None without one."""
    api = sys.modules.get(API)
    return None if api is None else context_of(api.get_current_span())


def context_of(span: Span) -> TraceContext | None:
    """Return the trace context of a span, or None if it stands for none."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return trace_of(traceparent, context.trace_state.to_header() or None)


def traced(messages: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """Return messages with the trace context of the current span, if there is one, on each that has none."""
    trace = current_trace()
    return messages if trace is None else with_trace(messages, trace)
