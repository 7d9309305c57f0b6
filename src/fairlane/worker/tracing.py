"""A span for each handled message, as a child of the producer's span and linked to it.

Spans are created only in programs that have imported OpenTelemetry when the worker starts. Some libraries import it
although nobody uses it (a client for Redis does), and a span costs more than all the rest of a worker. So where no
provider would record the span, only messages that carry a trace get one, which passes that trace on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlane import __version__
from fairlane.client.tracing import API, current_trace
from fairlane.model.trace import TRACEPARENT, with_trace
from fairlane.worker.message import WorkMessage
from fairlane.worker.policy import Answer, AsyncHandle
from fairlane.worker.results import ForwardTo

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link


def traced(handle: AsyncHandle) -> AsyncHandle:
    """Return a handler that runs in a span; the handler itself if the program does not use OpenTelemetry."""
    if API not in sys.modules:
        return handle
    from opentelemetry import trace

    tracer = trace.get_tracer("fairlane.worker", __version__)
    is_recorded = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)

    async def in_span(message: WorkMessage) -> Answer:
        if not is_recorded and TRACEPARENT not in message.headers:
            return await handle(message)
        parent, links = _origin_of(message.headers)
        with tracer.start_as_current_span(
            f"process {message.queue}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(message),
            links=links,
        ) as span:
            answer = await handle(message)
            if answer is not None:
                span.set_attribute("fairlane.result", type(answer).__name__)
            return _with_trace_context(answer)

    return in_span


def _origin_of(headers: Mapping[str, str]) -> tuple[Context, list[Link]]:
    """Return the context of the producer's span and a link to it."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(headers, Context())
    producer = get_current_span(context).get_span_context()
    return context, [Link(producer)] if producer.is_valid else []


def _attributes(message: WorkMessage) -> dict[str, str | int]:
    return {
        "messaging.system": "fairlane",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.queue,
        "messaging.message.id": message.id,
        "messaging.message.conversation_id": message.correlation_id,
        "fairlane.attempt": message.attempt,
    }


def _with_trace_context(answer: Answer) -> Answer:
    """Return the answer with the trace context on the messages that it forwards."""
    if not isinstance(answer, ForwardTo) or (trace := current_trace()) is None:
        return answer
    messages = {queue: with_trace(news, trace) for queue, news in answer.messages.items()}
    return replace(answer, messages=messages)
