"""Tests of the spans of handlers in programs that import OpenTelemetry and set no provider."""

from __future__ import annotations

from opentelemetry import context, trace

from fairlane.client import NewMessage
from fairlane.worker import WorkMessage

from .bench import WorkerBench, on_bench

_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_only_messages_that_carry_a_trace_are_handled_in_one() -> None:
    """Without a provider a handler runs in the trace of its message, and outside any span if that has none."""

    async def test(bench: WorkerBench) -> None:
        contexts: dict[bytes, context.Context] = {}

        @bench.app.handler("jobs")
        async def handle(message: WorkMessage) -> None:
            contexts[message.payload] = context.get_current()

        async with bench.app:
            headers = {"traceparent": f"00-{_TRACE_ID}-00f067aa0ba902b7-01"}
            await bench.client.enqueue("jobs", NewMessage(payload=b"traced", headers=headers))
            await bench.client.enqueue("jobs", NewMessage(payload=b"plain"))
            await bench.until(lambda: len(contexts) == 2)
        assert contexts[b"plain"] == {}
        span = trace.get_current_span(contexts[b"traced"]).get_span_context()
        assert f"{span.trace_id:032x}" == _TRACE_ID

    on_bench(test)
