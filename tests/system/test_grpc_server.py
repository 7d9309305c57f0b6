"""gRPC on a real server process: its way from a request to the disk, a signal, a kill, TLS and keys."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from fairlane.wire.grpc import admin_pb2 as admin
from fairlane.wire.grpc import broker_pb2 as broker
from fairlane.wire.grpc import types_pb2
from tests.kit.waiting import PATIENCE_S

from .grpc_process import GrpcServer, serving
from .server_process import ROOT


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GrpcServer]:
    """Serve with the queue ``orders``."""
    with serving(tmp_path / "data") as process:
        with process.called() as (_, admins):
            admins.CreateQueue(admin.CreateQueueRequest(queue="orders"))
        yield process


def batch(count: int) -> broker.EnqueueRequest:
    """Return a request for so many messages."""
    request = broker.EnqueueRequest(queue="orders")
    for number in range(count):
        request.messages.add(payload=b"%d" % number, fairness_key=["acme"])
    return request


def receipts(deliveries: Any) -> list[types_pb2.Receipt]:
    """Return the rights to deliveries."""
    return [types_pb2.Receipt(id=delivery.id, token=delivery.token) for delivery in deliveries]


def opening(**fields: Any) -> broker.ConsumeRequest:
    """Return the first message of a consumer."""
    return broker.ConsumeRequest(open=broker.ConsumeOpen(queue="orders", **fields))


def test_what_was_answered_survives_a_kill(server: GrpcServer) -> None:
    """After SIGKILL and a new start every message that was answered is there, and a lease still holds."""
    with server.called() as (brokers, _):
        enqueued = brokers.Enqueue(batch(50)).results
        leased = brokers.Lease(broker.LeaseRequest(queue="orders", count=1)).deliveries
        server.kill()
    server.start()
    with server.called() as (brokers, admins):
        assert admins.GetStats(admin.GetStatsRequest(queue="orders")).waiting == 49
        acked = brokers.Ack(broker.AckRequest(queue="orders", receipts=receipts(leased)))
        assert not acked.results[0].HasField("error")
        rest = brokers.Lease(broker.LeaseRequest(queue="orders", count=100)).deliveries
        assert {delivery.id for delivery in rest} == {result.id for result in enqueued[1:]}


def test_a_blocking_client_consumes_with_credit(server: GrpcServer) -> None:
    """Plain grpcio, in threads: acks go on the stream, deliveries come, all of them once."""
    said: SimpleQueue[broker.ConsumeRequest | None] = SimpleQueue()
    said.put(opening(credit=7))
    with server.called() as (brokers, _):
        brokers.Enqueue(batch(100))
        stream = brokers.Consume(iter(said.get, None))
        seen: list[bytes] = []
        acked = 0
        for response in stream:
            assert len(response.deliveries) <= 7
            seen += [delivery.payload for delivery in response.deliveries]
            acked += len(response.results.results)
            if response.deliveries:
                said.put(broker.ConsumeRequest(ack=broker.AckItems(receipts=receipts(response.deliveries))))
            if acked == 100:
                said.put(broker.ConsumeRequest(stop=broker.ConsumeStop()))
                said.put(None)
        assert seen == [b"%d" % number for number in range(100)]
        assert stream.code() == grpc.StatusCode.OK


def test_a_term_signal_drains(server: GrpcServer) -> None:
    """No new work is taken, the stream is told, the ack is taken, then all ends with 0."""
    said: SimpleQueue[broker.ConsumeRequest | None] = SimpleQueue()
    said.put(opening())
    with server.called() as (brokers, _):
        stream = brokers.Consume(iter(said.get, None))
        brokers.Enqueue(batch(1))
        delivery = next(stream).deliveries[0]
        server.signal(signal.SIGTERM)
        assert next(stream).ended.code == "closed"
        with pytest.raises(grpc.RpcError) as refused:
            brokers.Enqueue(batch(1))
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        said.put(broker.ConsumeRequest(ack=broker.AckItems(receipts=receipts([delivery]))))
        rest = _rest(stream)
        assert [len(response.results.results) for response in rest] in ([1], [])  # it may end before it is told
        said.put(None)
        assert stream.code() == grpc.StatusCode.UNAVAILABLE
        assert server.wait() == 0


def _rest(stream: Any) -> list[Any]:
    found = []
    try:
        for response in stream:
            found.append(response)  # noqa: PERF402 - what came before the end is wanted
    except grpc.RpcError:
        pass
    return found


def test_a_client_that_dies_lets_go(server: GrpcServer) -> None:
    """The messages of a killed process come to another consumer."""
    script = (
        "import sys, grpc\n"
        "from fairlane.wire.grpc import broker_pb2 as b, broker_pb2_grpc as g\n"
        "import threading\n"
        "opened = [b.ConsumeRequest(open=b.ConsumeOpen(queue='orders'))]\n"
        "for r in g.BrokerStub(grpc.insecure_channel(sys.argv[1])).Consume(iter(opened)):\n"
        "    print(len(r.deliveries), flush=True)\n"
    )
    with server.called() as (brokers, _):
        command = [sys.executable, "-c", script, server.grpc_address]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as client:
            brokers.Enqueue(batch(1))
            assert client.stdout is not None
            assert client.stdout.readline() == "1\n"
            client.kill()
        again = brokers.Lease(broker.LeaseRequest(queue="orders", wait_ms=30_000)).deliveries[0]
        assert (again.attempt, again.failures, again.errors[0].reason) == (2, 0, "release")


def test_many_wait_at_once(server: GrpcServer) -> None:
    """Three hundred leases wait on one connection, and each gets one message."""
    with server.called() as (brokers, admins):
        lease = broker.LeaseRequest(queue="orders", wait_ms=50_000)
        waiting = [brokers.Lease.future(lease) for _ in range(300)]
        while admins.GetStats(admin.GetStatsRequest(queue="orders")).waiters < 300:
            pass
        brokers.Enqueue(batch(300))
        got = [call.result().deliveries[0].id for call in waiting]
        assert len(set(got)) == 300


def test_what_is_no_grpc_hurts_nobody(server: GrpcServer) -> None:
    """Rubbish and HTTP/1.1 on the port are turned away, and the next is served."""
    host, _, port = server.grpc_address.rpartition(":")
    for rubbish in (
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(rubbish)
            connection.shutdown(socket.SHUT_WR)
            with ThreadPoolExecutor(1) as reading:
                reading.submit(_read_all, connection).result(timeout=PATIENCE_S)
    with server.called() as (brokers, _):
        assert brokers.Enqueue(batch(1)).results[0].id


def _read_all(connection: socket.socket) -> None:
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass


def test_a_key_is_asked_for(tmp_path: Path) -> None:
    """The first key of the server opens this door as well."""
    with serving(tmp_path / "data", "--auth", "true") as server, server.called() as (_, admins):
        with pytest.raises(grpc.RpcError) as refused:
            admins.ListQueues(admin.ListQueuesRequest())
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        key = (tmp_path / "data" / "admin.key").read_text().strip()
        metadata = (("authorization", f"Bearer {key}"),)
        assert not admins.ListQueues(admin.ListQueuesRequest(), metadata=metadata).queues


def test_a_port_that_is_taken_is_told(server: GrpcServer, tmp_path: Path) -> None:
    """The server does not start, and says why."""
    port = server.grpc_address.rpartition(":")[2]
    command = [
        sys.executable,
        "-m",
        "fairlane.server",
        "--port",
        "0",
        "--grpc-port",
        port,
        "--data",
        str(tmp_path / "b"),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{port} for gRPC" in result.stderr
