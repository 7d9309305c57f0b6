"""Spans for what the server does, sent to an OTLP endpoint over HTTP.

They are put together in batches and sent by a thread, with bounded memory: when the endpoint does not keep up, spans
are dropped and calls are not. A span has the queue, counts, the correlation id and the code of a refusal; it never has
payloads, headers, state or keys.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fairlead import __version__
from fairlead.errors import FairleadError
from fairlead.model.message import Delivery, NewMessage
from fairlead.server.dispatch import Answer
from fairlead.server.origin import Origin
from fairlead.wire import verbs as wire
from fairlead.wire.trace import TraceContext, trace_in
from fairlead.wire.verbs import Shape

try:
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError("Sending traces needs OpenTelemetry: install fairlead[otel].") from error

LINKS_MAX: Final = 32
"""Traces of messages that one span refers to."""
_PATH: Final = "/v1/traces"
_LAST_WORDS_S: Final = 2.0
_KINDS: Final = {
    "enqueue": "send",
    "forward": "settle",
    "lease": "receive",
    "ack": "settle",
    "nack": "settle",
    "extend": "settle",
}
_W3C: Final = TraceContextTextMapPropagator()


class OtlpCall:
    """The span of one call."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def done(self, answer: Answer) -> None:
        """Note what was answered, as far as it can be counted."""
        span = self._span
        if isinstance(answer, wire.Leased):
            span.set_attribute("messaging.batch.message_count", len(answer.deliveries))
            for context in _contexts(_traces(answer.deliveries)):
                span.add_link(context)
        elif isinstance(answer, (wire.Enqueued, wire.Results)):
            refused = [result.error.code for result in answer.results if result.error is not None]
            if refused:
                span.set_attribute("fairlead.refused", len(refused))
                span.set_attribute("error.type", refused[0])

    def refused(self, error: FairleadError) -> None:
        """Note the code of a refusal; its text may name what is nobody else's business."""
        self._span.set_attribute("error.type", error.code)
        self._span.set_status(StatusCode.ERROR, error.code)

    def end(self) -> None:
        """Let the span be sent."""
        self._span.end()


class OtlpSpans:
    """Keeps spans of calls and deliveries; see ``Spans``."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("fairlead.server", __version__)

    def begin(self, verb: str, request: Shape, origin: Origin | None) -> OtlpCall:
        """Begin the span of a call: below the caller's own, or below that of its messages if they all have the same."""
        traces = _traces(_news(request))
        parent = origin.trace if origin is not None else None
        if parent is not None:
            traces.discard(parent)
        elif len(traces) == 1:
            parent = traces.pop()
        attributes = _attributes(verb, getattr(request, "queue", None))
        if origin is not None and origin.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = origin.correlation_id
        count = _count(request)
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        return OtlpCall(self._started(verb, attributes, parent, traces))

    def delivered(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Keep a span for deliveries: below that of the message if there is one, else linked with those of all."""
        traces = _traces(deliveries)
        parent = traces.pop() if len(traces) == 1 else None
        attributes = _attributes("deliver", queue) | {"messaging.batch.message_count": len(deliveries)}
        if len(deliveries) == 1:
            attributes["messaging.message.conversation_id"] = deliveries[0].correlation_id
        self._started("deliver", attributes, parent, traces).end()

    def _started(
        self, verb: str, attributes: dict[str, str | int], parent: TraceContext | None, traces: set[TraceContext]
    ) -> Span:
        queue = attributes.get("messaging.destination.name")
        return self._tracer.start_span(
            verb if queue is None else f"{verb} {queue}",
            context=_context(parent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[Link(context) for context in _contexts(traces)],
        )

    def close(self) -> None:
        """Send what is left, if the endpoint takes it."""
        self._provider.shutdown()


def _attributes(verb: str, queue: str | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"messaging.system": "fairlead", "messaging.operation.name": verb}
    if verb in _KINDS:
        attributes["messaging.operation.type"] = _KINDS[verb]
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    return attributes


def _news(request: Shape) -> Iterable[NewMessage]:
    if isinstance(request, (wire.Enqueue, wire.Stage)):
        return request.messages
    if isinstance(request, wire.Forward):
        return [message for messages in request.messages.values() for message in messages]
    return ()


def _count(request: Shape) -> int | None:
    if isinstance(request, (wire.Enqueue, wire.Stage)):
        return len(request.messages)
    receipts = getattr(request, "receipts", None)
    return None if receipts is None else len(receipts)


def _traces(messages: Iterable[NewMessage | Delivery]) -> set[TraceContext]:
    """Return the traces that messages bring along, up to so many."""
    traces: set[TraceContext] = set()
    for message in messages:
        trace = trace_in(message.headers)
        if trace is not None:
            traces.add(trace)
            if len(traces) == LINKS_MAX:
                break
    return traces


def _context(trace: TraceContext | None) -> Context:
    return Context() if trace is None else _W3C.extract(trace.headers(), Context())


def _contexts(traces: Iterable[TraceContext]) -> list[SpanContext]:
    return [get_current_span(_context(trace)).get_span_context() for trace in traces]


# -------------------------------------------------------------------------------------------------------------- sending


@asynccontextmanager
async def spans_sent(endpoint: str) -> AsyncIterator[OtlpSpans]:
    """Send spans to an endpoint for as long as the context lasts.

    Headers, time limits, sampling and the like are those of OpenTelemetry's own variables, read now.
    """
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "fairlead"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _PATH)))
    spans = OtlpSpans(provider)
    try:
        yield spans
    finally:
        await _closed(spans)


async def _closed(spans: OtlpSpans) -> None:
    """Close, and don't wait for an endpoint that does not answer: the thread goes with the process."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def close() -> None:
        spans.close()
        if not loop.is_closed():
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=close, name="fairlead-spans", daemon=True).start()
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            await closed.wait()
    except TimeoutError:
        return
