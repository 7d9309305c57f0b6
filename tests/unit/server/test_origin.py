"""Where a call comes from: trace context and correlation id on the messages that it enqueues."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidArgument
from fairlane.gateway.context import CallContext, with_context
from fairlane.model.limits import HEADERS_LENGTH_MAX, HEADERS_MAX
from fairlane.model.message import NewMessage, Receipt
from fairlane.model.trace import TraceContext, trace_of
from fairlane.server.settings import check, load
from fairlane.verbs.leases import Forward
from fairlane.verbs.messages import Enqueue
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.grpc_client import called
from tests.unit.server.local_server import opened, run

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ORIGIN = CallContext("c-1", TraceContext(TRACEPARENT, "shop=1"))
BOTH = {"traceparent": TRACEPARENT, "tracestate": "shop=1"}


def enqueued(*messages: NewMessage, origin: CallContext = ORIGIN) -> list[NewMessage]:
    """Return messages as a call with an origin enqueues them."""
    request = with_context(Enqueue(queue="orders", messages=list(messages)), origin)
    assert isinstance(request, Enqueue)
    return request.messages


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACEPARENT.upper(),
        TRACEPARENT.replace("00-", "ff-", 1),
        TRACEPARENT[:-1],
        TRACEPARENT + "\n",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "é" * 55,
        TRACEPARENT + "-" + "x" * 1000,
    ],
)
def test_what_is_no_traceparent_is_passed_over(text: str) -> None:
    """The standard asks for that: a broken trace must not break the work."""
    assert trace_of(text) is None


def test_a_traceparent_of_a_later_version_is_taken() -> None:
    """It may say more behind what is known today."""
    later = TRACEPARENT.replace("00-", "cc-", 1) + "-more"
    assert trace_of(later) == TraceContext(later)


@pytest.mark.parametrize("text", ["", "a" * 513, "a=\x00", "é=1"])
def test_a_tracestate_that_is_none_goes_and_the_trace_stays(text: str) -> None:
    """A tracestate is never worth a trace."""
    assert trace_of(TRACEPARENT, text) == TraceContext(TRACEPARENT)


def test_messages_get_what_they_have_not() -> None:
    """A correlation id and a trace of their own win, each for itself."""
    other = {"traceparent": TRACEPARENT.replace("4b", "5c"), "a": "b"}
    plain, own = enqueued(NewMessage(payload=b"x"), NewMessage(headers=other, correlation_id="mine"))
    assert (plain.payload, plain.headers, plain.correlation_id) == (b"x", BOTH, "c-1")
    assert (own.headers, own.correlation_id) == (other, "mine")


def test_forwarded_messages_get_it_too() -> None:
    """They are enqueued by the call as well."""
    receipt = Receipt(id="0" * 16, token=1)
    request = with_context(Forward(queue="orders", receipt=receipt, messages={"bills": [NewMessage()]}), ORIGIN)
    assert isinstance(request, Forward)
    assert (request.messages["bills"][0].headers, request.messages["bills"][0].correlation_id) == (BOTH, "c-1")


def test_without_a_trace_headers_stay_as_they_are() -> None:
    """Nothing is made up."""
    assert enqueued(NewMessage(), origin=CallContext("c-1"))[0].headers == {}


@pytest.mark.parametrize(
    "headers",
    [{str(number): "" for number in range(HEADERS_MAX - 1)}, {"a": "b" * (HEADERS_LENGTH_MAX - 60)}],
    ids=["many", "long"],
)
def test_a_message_without_room_keeps_its_headers(headers: dict[str, str]) -> None:
    """Tracing never makes a message break a limit that it keeps by itself."""
    assert enqueued(NewMessage(headers=headers))[0].headers == headers


def test_http_keeps_a_trace_with_the_message() -> None:
    """What the request says is in the headers of the delivery; what is broken is passed over."""

    async def main() -> None:
        async with opened() as server:
            body = {"queue": "orders", "messages": [{}]}
            assert (await server.post("queue/enqueue", body, traceparent="broken")).status_code == 200
            await server.post("queue/enqueue", body, **BOTH)
            answer = await server.post("queue/dequeue", {"queue": "orders", "count": 2})
            assert [delivery["headers"] for delivery in answer.json()["deliveries"]] == [{}, BOTH]

    run(main())


def test_grpc_keeps_a_trace_with_the_message() -> None:
    """It comes as metadata of the same names."""

    async def main() -> None:
        async with called() as caller:
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(payload=b"x")
            await caller.broker.Enqueue(request, metadata=tuple(BOTH.items()))
            leased = await caller.broker.Lease(broker.LeaseRequest(queue="orders"))
            assert dict(leased.deliveries[0].headers) == BOTH

    run(main())


def test_the_endpoint_comes_from_everywhere() -> None:
    """OpenTelemetry's own variable is the weakest, and an empty flag turns it off."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}
    assert load(None, environ, {}).otlp_endpoint == "http://a:4318"
    assert load('otlp_endpoint = "http://b:4318"', environ, {}).otlp_endpoint == "http://b:4318"
    assert load(None, environ, {"otlp_endpoint": ""}).otlp_endpoint is None
    assert load(None, {}, {}).otlp_endpoint is None


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://a:4317", "http://", "http://ann:secret@a:4318"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    """Before anything is opened, and without showing a password."""
    with pytest.raises(InvalidArgument, match="otlp_endpoint") as caught:
        check(load(None, {}, {"otlp_endpoint": endpoint}))
    assert "secret" not in str(caught.value)
