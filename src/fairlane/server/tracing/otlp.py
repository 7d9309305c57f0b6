"""Spans of a server, exported to an OTLP endpoint over HTTP.

A thread exports spans in batches, with bounded memory: if the endpoint does not keep up, spans are dropped and calls
are not delayed. A span has the queue, counts, ids and the error code; it never has payloads, headers, state or keys.

A message carries its trace in its headers, but an acknowledgement names only its id. The server therefore remembers the
traces of the messages it delivered, up to ``HELD_MAX``, and puts the span of an acknowledgement into the trace of its
message.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fairlane import __version__
from fairlane.errors import FairlaneError
from fairlane.gateway.context import CallContext
from fairlane.model.message import Delivery, NewMessage
from fairlane.model.trace import TraceContext, trace_in
from fairlane.server.dispatch import Answer
from fairlane.server.metrics.families import Exemplar
from fairlane.verbs.batches import Stage
from fairlane.verbs.leases import Ack, Extend, Forward, LeasedMessages, Nack
from fairlane.verbs.messages import Enqueue, EnqueueResults, Results
from fairlane.verbs.verb import Shape

try:
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError("Tracing needs OpenTelemetry; install fairlane[otel].") from error

LINKS_MAX: Final = 32
"""The limit on traces that one span links to."""
HELD_MAX: Final = 65_536
"""Delivered messages whose traces are remembered."""
_PATH: Final = "/v1/traces"
_SETTLED: Final = frozenset(("ack", "nack", "forward"))
_CLOSE_S: Final = 2.0
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

    __slots__ = ("_request", "_span", "_spans", "_verb")

    def __init__(self, spans: OtlpSpans, span: Span, verb: str, request: Shape) -> None:
        self._spans = spans
        self._span = span
        self._verb = verb
        self._request = request

    def done(self, answer: Answer) -> None:
        """Record counts of the answer."""
        span = self._span
        if isinstance(answer, LeasedMessages):
            span.set_attributes(self._spans.delivering(getattr(self._request, "queue", ""), answer.deliveries))
            for link in _links(_traces(answer.deliveries)):
                span.add_link(link.context, link.attributes)
        elif isinstance(answer, (EnqueueResults, Results)):
            refused = [result.error.code for result in answer.results if result.error is not None]
            if refused:
                span.set_attribute("fairlane.refused", len(refused))
                span.set_attribute("error.type", refused[0])
        if self._verb in _SETTLED:
            self._spans.settled(self._request)

    def refused(self, error: FairlaneError) -> None:
        """Record the error code; the text of an error may contain private data."""
        self._span.set_attribute("error.type", error.code)
        self._span.set_status(StatusCode.ERROR, error.code)

    def end(self) -> None:
        """End the span, which queues it for export."""
        self._span.end()


class OtlpSpans:
    """Records spans of calls and deliveries; see ``Spans``.

    ``seen`` receives an exemplar for each delivery with a sampled trace: the message that waited longest, among those
    delivered for the first time.
    """

    def __init__(
        self,
        provider: TracerProvider,
        *,
        now_ms: Callable[[], int],
        seen: Callable[[str, Exemplar], None],
        held_max: int = HELD_MAX,
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("fairlane.server", __version__)
        self._now_ms = now_ms
        self._seen = seen
        self._held_max = held_max
        self._held: OrderedDict[tuple[str, str], TraceContext] = OrderedDict()

    def begin(self, verb: str, request: Shape, origin: CallContext | None) -> OtlpCall:
        """Start the span of a call, below the caller's span, or below the trace that all its messages share."""
        traces = _traces(_news(request)) or self._traces_held(request)
        parent = origin.trace if origin is not None else None
        if parent is not None:
            traces.pop(parent, None)
        elif len(traces) == 1:
            parent, _ = traces.popitem()
        attributes = _attributes(verb, getattr(request, "queue", None))
        if origin is not None and origin.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = origin.correlation_id
        count = _count(request)
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        return OtlpCall(self, self._started(verb, attributes, parent, traces), verb, request)

    def delivered(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Record a span for deliveries: below the trace they share, otherwise linked to all of theirs."""
        traces = _traces(deliveries)
        parent = next(iter(traces)) if len(traces) == 1 else None
        attributes = _attributes("deliver", queue) | self.delivering(queue, deliveries)
        if len(deliveries) == 1:
            attributes["messaging.message.conversation_id"] = deliveries[0].correlation_id
            attributes["messaging.message.id"] = deliveries[0].id
        self._started("deliver", attributes, parent, {} if parent is not None else traces).end()

    def delivering(self, queue: str, deliveries: Sequence[Delivery]) -> dict[str, str | int]:
        """Remember the traces of delivered messages, and return the attributes of their span."""
        now_ms, longest_ms, trace = self._now_ms(), 0, None
        for delivery in deliveries:
            found = trace_in(delivery.headers)
            if found is not None:
                self._held[queue, delivery.id] = found
            wait_ms = now_ms - delivery.enqueued_ms
            if delivery.attempt == 1 and wait_ms >= longest_ms:
                longest_ms, trace = wait_ms, found
        while len(self._held) > self._held_max:
            self._held.popitem(last=False)
        if trace is not None and trace.is_sampled:
            self._seen(queue, Exemplar(trace.trace_id, trace.span_id, longest_ms / 1000, now_ms / 1000))
        return {"messaging.batch.message_count": len(deliveries), "fairlane.wait_ms": longest_ms}

    def settled(self, request: Shape) -> None:
        """Forget the traces of settled messages."""
        for place in _places(request):
            self._held.pop(place, None)

    def _traces_held(self, request: Shape) -> dict[TraceContext, str]:
        """Return the traces of the messages that a call names by receipts."""
        if not self._held:
            return {}
        found = ((self._held.get(place), place[1]) for place in _places(request))
        return _bounded((trace, message_id) for trace, message_id in found if trace is not None)

    def _started(
        self,
        verb: str,
        attributes: dict[str, str | int],
        parent: TraceContext | None,
        traces: Mapping[TraceContext, str],
    ) -> Span:
        queue = attributes.get("messaging.destination.name")
        return self._tracer.start_span(
            verb if queue is None else f"{verb} {queue}",
            context=_context(parent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=_links(traces),
        )

    def close(self) -> None:
        """Export the remaining spans, if the endpoint accepts them."""
        self._provider.shutdown()


def _attributes(verb: str, queue: str | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"messaging.system": "fairlane", "messaging.operation.name": verb}
    if verb in _KINDS:
        attributes["messaging.operation.type"] = _KINDS[verb]
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    return attributes


def _news(request: Shape) -> Iterable[NewMessage]:
    if isinstance(request, (Enqueue, Stage)):
        return request.messages
    if isinstance(request, Forward):
        return [message for messages in request.messages.values() for message in messages]
    return ()


def _count(request: Shape) -> int | None:
    if isinstance(request, (Enqueue, Stage)):
        return len(request.messages)
    receipts = getattr(request, "receipts", None)
    return None if receipts is None else len(receipts)


def _places(request: Shape) -> list[tuple[str, str]]:
    """Return queue and id of each message that a call names by a receipt."""
    if isinstance(request, Forward):
        return [(request.queue, request.receipt.id)]
    if isinstance(request, (Ack, Nack, Extend)):
        return [(request.queue, receipt.id) for receipt in request.receipts]
    return []


def _traces(messages: Iterable[NewMessage | Delivery]) -> dict[TraceContext, str]:
    """Return the traces of messages, up to the limit, each with a message id if there is one."""
    found = ((trace_in(message.headers), message) for message in messages)
    return _bounded((trace, getattr(message, "id", "")) for trace, message in found if trace is not None)


def _bounded(found: Iterable[tuple[TraceContext, str]]) -> dict[TraceContext, str]:
    traces: dict[TraceContext, str] = {}
    for trace, message_id in found:
        traces.setdefault(trace, message_id)
        if len(traces) == LINKS_MAX:
            break
    return traces


def _context(trace: TraceContext | None) -> Context:
    return Context() if trace is None else _W3C.extract(trace.headers(), Context())


def _links(traces: Mapping[TraceContext, str]) -> list[Link]:
    return [
        Link(
            get_current_span(_context(trace)).get_span_context(),
            {"messaging.message.id": message_id} if message_id else None,
        )
        for trace, message_id in traces.items()
    ]


# -------------------------------------------------------------------------------------------------------------- export


@asynccontextmanager
async def exported_spans(
    endpoint: str, *, now_ms: Callable[[], int], seen: Callable[[str, Exemplar], None]
) -> AsyncIterator[OtlpSpans]:
    """Export spans to an endpoint while the context lasts.

    OpenTelemetry's own environment variables set headers, timeouts and sampling; they are read now.
    """
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "fairlane"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _PATH)))
    spans = OtlpSpans(provider, now_ms=now_ms, seen=seen)
    try:
        yield spans
    finally:
        await _closed(spans)


async def _closed(spans: OtlpSpans) -> None:
    """Close without waiting for an endpoint that does not respond: the thread ends with the process."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def close() -> None:
        spans.close()
        if not loop.is_closed():
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=close, name="fairlane-spans", daemon=True).start()
    try:
        async with asyncio.timeout(_CLOSE_S):
            await closed.wait()
    except TimeoutError:
        return
