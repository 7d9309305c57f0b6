"""An OTLP receiver over HTTP that keeps the spans it receives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.waiting import PATIENCE_S


@dataclass(frozen=True)
class Received:
    """One span."""

    service: str
    name: str
    trace_id: str
    parent: str
    links: tuple[str, ...]
    linked_ids: tuple[str, ...]
    """Message ids of the links."""
    attributes: dict[str, Any]
    status: str


class Receiver:
    """The receiver."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        self.raw = b""
        self.spans: list[Received] = []
        self._changed = threading.Condition()

    def take(self, body: bytes) -> None:
        """Store the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.raw += body
            for resource in request.resource_spans:
                service = _fields(resource.resource.attributes)["service.name"]
                self.spans += [_received(service, span) for scope in resource.scope_spans for span in scope.spans]
            self._changed.notify_all()

    def wait_for(self, wanted: Callable[[Received], bool]) -> Received:
        """Return the first span that fulfils a condition; wait for it if necessary."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(wanted, self.spans)), PATIENCE_S), self.spans
            return next(filter(wanted, self.spans))

    def named(self, name: str) -> Received:
        """Return the first span of a name; wait for it if necessary."""
        return self.wait_for(lambda span: span.name == name)


def _fields(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _received(service: str, span: Any) -> Received:
    return Received(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        linked_ids=tuple(_fields(link.attributes).get("messaging.message.id", "") for link in span.links),
        attributes=_fields(span.attributes),
        status=span.status.message,
    )


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive spans while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = self.path == "/v1/traces"
            if found:
                receiver.take(body)
            self.send_response(200 if found else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
