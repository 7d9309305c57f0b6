"""Traces from end to end: spans of producer, server and worker at a real OTLP receiver."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from opentelemetry import trace

from fairlane.client import Client
from fairlane.model.message import NewMessage
from tests.kit.waiting import PATIENCE_S

from .otlp_receiver import Receiver, receiving
from .server_process import ROOT, ServerProcess, serving

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = b"what only the two of them may know"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Receive spans, which are exported soon after they end."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with receiving() as receiver:
        yield receiver


@contextmanager
def traced_server(tmp_path: Path, receiver: Receiver, *flags: str) -> Iterator[ServerProcess]:
    """Run a server with the queues ``orders`` and ``bills`` that exports spans to the receiver."""
    with serving(tmp_path / "data", "--otlp-endpoint", receiver.endpoint, *flags) as server:
        with server.stream() as stream:
            for queue in ("orders", "bills"):
                stream.call("create_queue", queue=queue)
        yield server


def current_span() -> trace.Span:
    """Return a producer's span, as its framework would create it."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=False, trace_flags=flags)
    return trace.NonRecordingSpan(context)


def test_an_http_request_is_a_child_of_the_callers_span(tmp_path: Path, receiver: Receiver) -> None:
    """The span has queue, count and correlation id; the message keeps the trace, and its lease links to it."""
    with traced_server(tmp_path, receiver) as server, server.http() as http:
        fields = {"traceparent": TRACEPARENT, "tracestate": "shop=1", "x-correlation-id": "c-1"}
        body = {"queue": "orders", "messages": [{"payload": base64.b64encode(SECRET).decode()}, {}]}
        http.post("/queue/enqueue", json=body, headers=fields)
        span = receiver.named("enqueue orders")
        assert (span.service, span.trace_id, span.parent, span.links) == ("fairlane", TRACE_ID, SPAN_ID, ())
        assert span.attributes == {
            "messaging.system": "fairlane",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.batch.message_count": 2,
            "messaging.message.conversation_id": "c-1",
        }
        leased = http.post("/queue/dequeue", json={"queue": "orders"}).json()["deliveries"][0]
        assert leased["headers"] == {"traceparent": TRACEPARENT, "tracestate": "shop=1"}
        lease = receiver.named("lease orders")
        assert (lease.attributes["messaging.batch.message_count"], lease.links) == (1, (SPAN_ID,))
        http.post("/queue/ack", json={"queue": "orders", "receipts": [{"id": leased["id"], "token": 1}]})
        ack = receiver.named("ack orders")
        assert (ack.attributes["fairlane.refused"], ack.attributes["error.type"]) == (1, "lease_mismatch")


def test_a_failed_call_has_its_error_code(tmp_path: Path, receiver: Receiver) -> None:
    """The span of a failed call has the error code and nothing else about the error."""
    with traced_server(tmp_path, receiver) as server, server.http() as http:
        http.post("/queue/stats", json={"queue": "ordres"})
        span = receiver.named("stats ordres")
        assert (span.status, span.attributes["error.type"]) == ("queue_not_found", "queue_not_found")


def test_the_stream_carries_a_trace_with_a_call(tmp_path: Path, receiver: Receiver) -> None:
    """The fifth element of a call is its trace; a message's own trace overrides it, and deliveries are spans too."""
    with traced_server(tmp_path, receiver) as server, server.stream() as stream:
        request = {"queue": "orders", "messages": [{"headers": {"traceparent": OTHER}}, {"payload": SECRET}]}
        stream.socket.send(msgspec.msgpack.encode([0, 77, "enqueue", request, [TRACEPARENT]]))
        assert stream.frame()[:2] == [1, 77]
        span = receiver.named("enqueue orders")
        assert (span.trace_id, span.parent, span.links) == (TRACE_ID, SPAN_ID, ("b7ad6b7169203331",))
        stream.send("consume", queue="orders", credit=1)
        first = stream.deliveries(1)[0]
        assert first["headers"] == {"traceparent": OTHER}
        assert receiver.named("deliver orders").parent == "b7ad6b7169203331"
        stream.call("ack", queue="orders", receipts=[{"id": first["id"], "token": first["token"]}])
        assert stream.deliveries(1)[0]["headers"] == {"traceparent": TRACEPARENT}


def test_payloads_keys_and_headers_are_not_exported(tmp_path: Path, receiver: Receiver) -> None:
    """The receiver gets no confidential data."""
    with serving(tmp_path / "data", "--otlp-endpoint", receiver.endpoint, "--auth", "true") as server:
        key = (tmp_path / "data" / "admin.key").read_text().strip()
        with server.http(headers={"authorization": f"Bearer {key}"}) as http:
            http.post("/queues/create", json={"queue": "orders"})
            message = {"payload": base64.b64encode(SECRET).decode(), "headers": {"token": "my-header-secret"}}
            http.post("/queue/enqueue", json={"queue": "orders", "messages": [message]})
            http.post("/config/set", json={"values": {"password": "my-config-secret"}})
            http.post("/queue/dequeue", json={"queue": "orders"})
            receiver.named("lease orders")
            receiver.named("set_config")
        for secret in (SECRET, base64.b64encode(SECRET), b"my-header-secret", b"my-config-secret", key.encode()):
            assert secret not in receiver.raw


def test_the_opentelemetry_variable_is_read_at_startup(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable needs no setting; the service name can be set the same way."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "queues")
    with serving(tmp_path / "data") as server, server.http() as http:
        http.post("/queues/list", json={})
        assert receiver.named("queues").service == "queues"


def test_remaining_spans_are_exported_at_shutdown(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans that wait for their batch are exported before the process ends."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    with traced_server(tmp_path, receiver) as server:
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert receiver.named("create_queue orders").service == "fairlane"


def test_an_unreachable_endpoint_delays_no_calls(tmp_path: Path) -> None:
    """Calls are answered, and the server shuts down normally."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving(tmp_path / "data", "--otlp-endpoint", f"http://127.0.0.1:{port}") as server:
        with server.http() as http:
            assert http.post("/queues/create", json={"queue": "orders"}).status_code == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@contextmanager
def working(server: ServerProcess, receiver: Receiver) -> Iterator[None]:
    """Run the traced worker, and drain it at the end."""
    address = f"ws://{server.address}"
    environ = os.environ | {"FAIRLANE_SERVER": address, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    command = [sys.executable, "-m", "fairlane", "worker", "tests.system.traced_worker:app"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_one_trace_goes_from_the_producer_through_two_workers(tmp_path: Path, receiver: Receiver) -> None:
    """The worker's span is a child of the producer's and links to it; forwarded messages are below its own."""
    with traced_server(tmp_path, receiver) as server, Client(f"ws://{server.address}") as client:
        with trace.use_span(current_span()):
            client.enqueue("orders", b"shoes")
        with working(server, receiver):
            process = receiver.named("process orders")
            assert (process.service, process.trace_id, process.parent) == ("shop", TRACE_ID, SPAN_ID)
            assert process.links == (SPAN_ID,)
            assert process.attributes["fairlane.result"] == "ForwardTo"
            assert process.attributes["messaging.destination.name"] == "orders"
            second = receiver.named("process bills")
            assert (second.trace_id, second.links) == (TRACE_ID, (second.parent,))
            assert second.parent != SPAN_ID
            assert receiver.named("print").trace_id == TRACE_ID
            server_span = receiver.wait_for(lambda span: span.name == "enqueue orders")
            assert (server_span.trace_id, server_span.parent) == (TRACE_ID, SPAN_ID)


def test_a_handler_that_fails_fails_its_span(tmp_path: Path, receiver: Receiver) -> None:
    """The worker's span records the exception of the handler."""
    with (
        traced_server(tmp_path, receiver) as server,
        Client(f"ws://{server.address}") as client,
        working(server, receiver),
    ):
        client.enqueue("orders", b"bad")
        assert receiver.named("process orders").status == "ValueError: no such order"


def test_every_way_of_enqueueing_carries_the_span(tmp_path: Path, receiver: Receiver) -> None:
    """Single, batched, by a producer, or forwarded by an ack; a message with its own trace keeps it."""
    with traced_server(tmp_path, receiver) as server, Client(f"ws://{server.address}") as client:
        client.enqueue("orders", b"without")
        with trace.use_span(current_span()):
            client.enqueue("orders", b"one")
            client.enqueue_many("orders", [NewMessage(), NewMessage(headers={"traceparent": OTHER})])
            with client.producer("orders") as producer:
                producer.send(b"produced")
            message = client.lease("orders")[0]
            client.ack(message, forward={"orders": [NewMessage()]})
        leased = client.lease("orders", 10)
        found = sorted(message.headers["traceparent"] for message in leased)
        assert found == sorted([TRACEPARENT] * 4 + [OTHER])
        assert message.headers == {}
        forward = receiver.named("forward orders")
        assert (forward.trace_id, forward.parent) == (TRACE_ID, SPAN_ID)
