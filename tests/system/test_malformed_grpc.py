"""What is no good over gRPC: refused with a status and a code, and the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fairlane.wire.grpc import admin_pb2, broker_pb2
from tests.kit.waiting import PATIENCE_S

from .doors import METHODS
from .grpc_process import GrpcServer, serving
from .server_process import resident_bytes
from .test_grpc_server import batch, receipts

BODY_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """Serve the queue ``orders`` with small limits."""
    flags = ("--body-bytes-max", str(BODY_BYTES_MAX), "--durability", "os")
    with serving(tmp_path_factory.mktemp("data"), *flags) as process:
        with process.called() as (_, admins):
            admins.CreateQueue(admin_pb2.CreateQueueRequest(queue="orders"))
        yield process


@pytest.fixture
def server(process: GrpcServer) -> Iterator[GrpcServer]:
    """Give the server, and see at the end whether it is alive and has the messages that it answered for, only those."""
    yield process
    with process.called() as (brokers, _):
        enqueued = brokers.Enqueue(batch(1)).results[0].id
        leased = brokers.Lease(broker_pb2.LeaseRequest(queue="orders", count=10)).deliveries
        assert [delivery.id for delivery in leased] == [enqueued]
        (result,) = brokers.Ack(broker_pb2.AckRequest(queue="orders", receipts=receipts(leased))).results
        assert not result.HasField("error")


@pytest.fixture
def channel(server: GrpcServer) -> Iterator[grpc.Channel]:
    """Give a channel."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield channel


def refusal(call: Any, *arguments: Any, **options: Any) -> Any:
    """Return how a call is refused."""
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments, timeout=PATIENCE_S, **options)
    return refused.value


def path_of(method: Any) -> str:
    """Return where a method is called."""
    return f"/{method.containing_service.full_name}/{method.name}"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\xff" * 1_000,
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\x02\xff\xfe",
        b"\xfa\x7f\x01x",
        b"\x0b" * 10_000,
    ],
    ids=["cut", "garbage", "long text", "no text", "unknown field", "groups"],
)
def test_no_method_falls_over_what_it_can_not_read(channel: grpc.Channel, data: bytes) -> None:
    """Whatever the method, bytes that are no request of it are refused as an invalid argument."""
    for verb, method in METHODS.items():
        refused = refusal(channel.unary_unary(path_of(method)), data)
        told = (refused.code(), dict(refused.trailing_metadata()).get("fairlane-code"))
        assert told == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument"), verb


@pytest.mark.parametrize("path", ["/fairlane.v1.Broker/Nonsense", "/nobody.Knows/It", "/", "/fairlane.v1.Broker"])
def test_a_method_that_is_not_there_is_unimplemented(channel: grpc.Channel, path: str) -> None:
    """An unknown method or service has the status that every client understands."""
    assert refusal(channel.unary_unary(path), b"").code() == grpc.StatusCode.UNIMPLEMENTED


def test_too_large_a_request_is_refused(server: GrpcServer, channel: grpc.Channel) -> None:
    """A request above the limit is refused without being read, on plain calls and in a stream, and nothing is kept."""
    before = resident_bytes(server)
    large = broker_pb2.EnqueueRequest(queue="orders")
    large.messages.add(payload=bytes(50_000_000))
    refused = refusal(channel.unary_unary("/fairlane.v1.Broker/Enqueue"), large.SerializeToString())
    assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    consume: Any = channel.stream_stream("/fairlane.v1.Broker/Consume")
    with pytest.raises(grpc.RpcError) as ended:
        next(consume(iter([bytes(BODY_BYTES_MAX + 1)]), timeout=PATIENCE_S))
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident_bytes(server) - before < 30_000_000


def test_metadata_without_end_is_refused(channel: grpc.Channel) -> None:
    """A megabyte of metadata is refused, whoever sends it."""
    stats: Any = channel.unary_unary("/fairlane.v1.Admin/GetStats")
    metadata = tuple((f"x-{at}", "y" * 1_000) for at in range(1_000))
    assert refusal(stats, b"", metadata=metadata).code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [b"\xff"],
        [broker_pb2.ConsumeRequest(stop=broker_pb2.ConsumeStop()).SerializeToString()],
        [broker_pb2.ConsumeRequest().SerializeToString()],
        [broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders", credit=0)).SerializeToString()],
        [broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders", credit=1 << 40)).SerializeToString()],
        [broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders")).SerializeToString(), b"\xff"],
    ],
    ids=["nothing", "garbage", "stop", "empty", "no credit", "all credit", "garbage later"],
)
def test_a_consumer_that_makes_no_sense_is_refused(channel: grpc.Channel, messages: list[bytes]) -> None:
    """A stream that does not begin or go on as it should ends with an invalid argument, and holds nothing."""
    consume: Any = channel.stream_stream("/fairlane.v1.Broker/Consume")
    with pytest.raises(grpc.RpcError) as ended:
        next(consume(iter(messages), timeout=PATIENCE_S))
    assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_call_that_is_cancelled_at_once_leaves_nothing_behind(server: GrpcServer) -> None:
    """A thousand leases that are cancelled as soon as they are sent wait for nothing and hold nothing."""
    with server.called() as (brokers, admins):
        lease = broker_pb2.LeaseRequest(queue="orders", wait_ms=60_000)
        for call in [brokers.Lease.future(lease) for _ in range(1_000)]:
            call.cancel()
        while admins.GetStats(admin_pb2.GetStatsRequest(queue="orders")).waiters:
            pass
