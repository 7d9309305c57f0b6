"""A worker in a program that traces: its spans go to the endpoint that the environment names."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from fairlane.model.message import NewMessage
from fairlane.worker import ForwardTo, Worker, WorkMessage

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

app = Worker()


@app.handler("orders")
async def ship(message: WorkMessage) -> ForwardTo:
    if message.payload == b"bad":
        raise ValueError("no such order")
    return ForwardTo({"bills": [NewMessage(payload=b"a bill")]})


@app.handler("bills")
def bill(message: WorkMessage) -> None:
    with trace.get_tracer("shop").start_as_current_span("print"):
        assert message.payload == b"a bill"
