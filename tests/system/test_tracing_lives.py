"""Traces of whole messages: delivery and ack join the message's trace, batches are linked, waits have exemplars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from .otlp_receiver import Receiver, receiving
from .server_process import HttpClient, serving

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
OTHER_SPAN_ID = "b7ad6b7169203331"
OTHER = f"00-0af7651916cd43dd8448eb211c80319c-{OTHER_SPAN_ID}-01"
CALLER_SPAN_ID = "53995c3f42cd8ad8"
CALLER = f"00-aaaa651916cd43dd8448eb211c80319c-{CALLER_SPAN_ID}-01"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Receive spans, which are exported soon after they end."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def http(tmp_path: Path, receiver: Receiver) -> Iterator[HttpClient]:
    """Run a server with a queue that exports spans to the receiver."""
    with serving(tmp_path / "data", "--otlp-endpoint", receiver.endpoint) as server, server.http() as http:
        ask(http, "queues/create", queue="orders")
        yield http


def ask(http: HttpClient, path: str, *, trace: str | None = None, **body: Any) -> Any:
    """Call a verb."""
    answer = http.post(f"/{path}", json=body, headers={} if trace is None else {"traceparent": trace})
    assert answer.status_code == 200, answer.text
    return answer.json()


def sent(http: HttpClient, *traces: str) -> list[dict[str, Any]]:
    """Enqueue a message in each trace, lease them together, and return their receipts in that order."""
    ask(http, "queue/enqueue", queue="orders", messages=[{"headers": {"traceparent": trace}} for trace in traces])
    leased = ask(http, "queue/dequeue", queue="orders", count=len(traces))["deliveries"]
    found = {each["headers"]["traceparent"]: {"id": each["id"], "token": each["token"]} for each in leased}
    return [found[trace] for trace in traces]


def test_an_ack_and_a_nack_are_in_the_trace_of_their_message(http: HttpClient, receiver: Receiver) -> None:
    """The ack names only an id, and its span is still a child of the producer's; so is every later attempt."""
    (receipt,) = sent(http, TRACEPARENT)
    ask(http, "queue/nack", queue="orders", receipts=[receipt], delay_ms=0)
    nack = receiver.named("nack orders")
    assert (nack.trace_id, nack.parent, nack.links) == (TRACE_ID, SPAN_ID, ())
    (again,) = ask(http, "queue/dequeue", queue="orders", wait_ms=10_000)["deliveries"]
    receipt = {"id": again["id"], "token": again["token"]}
    ask(http, "queue/extend", queue="orders", receipts=[receipt])
    assert receiver.named("extend orders").parent == SPAN_ID
    ask(http, "queue/ack", queue="orders", receipts=[receipt])
    ack = receiver.named("ack orders")
    assert (ack.trace_id, ack.parent) == (TRACE_ID, SPAN_ID)
    assert http.post("/queue/nack", json={"queue": "orders", "receipts": [receipt]}).status_code == 404
    late = receiver.wait_for(lambda span: span.name == "nack orders" and "fairlane.refused" in span.attributes)
    assert late.trace_id != TRACE_ID


def test_a_batch_links_to_the_traces_of_its_messages(http: HttpClient, receiver: Receiver) -> None:
    """Lease and ack have one span each, linked to both producers with the message ids."""
    receipts = sent(http, TRACEPARENT, OTHER)
    ids = {receipt["id"] for receipt in receipts}
    lease = receiver.named("lease orders")
    assert (lease.parent, set(lease.links), set(lease.linked_ids)) == ("", {SPAN_ID, OTHER_SPAN_ID}, ids)
    assert lease.attributes["messaging.batch.message_count"] == 2
    ask(http, "queue/ack", queue="orders", receipts=receipts)
    ack = receiver.named("ack orders")
    assert (ack.parent, set(ack.links), set(ack.linked_ids)) == ("", {SPAN_ID, OTHER_SPAN_ID}, ids)


def test_calls_are_children_of_the_callers_span(http: HttpClient, receiver: Receiver) -> None:
    """The ack is below the worker's span and links to the producer of its message."""
    receipts = sent(http, TRACEPARENT)
    ask(http, "queue/ack", trace=CALLER, queue="orders", receipts=receipts)
    ack = receiver.named("ack orders")
    assert (ack.parent, ack.links) == (CALLER_SPAN_ID, (SPAN_ID,))


def test_waits_have_exemplars(http: HttpClient, receiver: Receiver) -> None:
    """Prometheus' own parser finds the trace of a message in the bucket of its wait; unsampled traces are left out."""
    sent(http, TRACEPARENT)
    sent(http, OTHER.removesuffix("01") + "00")
    wait_ms = receiver.wait_for(lambda span: span.name == "lease orders" and span.links == (SPAN_ID,)).attributes[
        "fairlane.wait_ms"
    ]
    text = http.get(
        str(http.base_url).replace("/v1/", "/metrics"), headers={"accept": "application/openmetrics-text"}
    ).text
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call] # it has no types
    (family,) = [each for each in families if each.name == "fairlane_delivery_wait_seconds"]
    (found,) = [each for each in family.samples if each.exemplar is not None]
    assert found.exemplar.labels == {"trace_id": TRACE_ID, "span_id": SPAN_ID}
    assert found.exemplar.value == wait_ms / 1000 <= float(found.labels["le"])
