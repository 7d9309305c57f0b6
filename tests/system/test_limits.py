"""Connections and waiters over the limits of a server: rejected clearly, and accepted when others leave."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from fairlane.wire.grpc import broker_pb2
from tests.kit.waiting import PATIENCE_S, wait_until

from .grpc_process import serving as serving_grpc
from .server_process import ServerProcess, serving


def test_connections_over_the_limit_are_rejected(tmp_path: Path) -> None:
    """A connection over the limit is answered with 503; when another leaves, a new one is accepted."""
    with serving(tmp_path / "data", "--connections-max", "2") as server:
        first, second = server.stream(), server.stream()
        second.call("create_queue", queue="orders")
        with second:
            with pytest.raises(InvalidStatus) as refused:
                server.stream()
            assert refused.value.response.status_code == 503
            assert b"too_many_connections" in refused.value.response.body
            assert second.call("stats", queue="orders")["waiting"] == 0
            first.close()
            wait_until(lambda: is_let_in(server), what="the server has seen the other go")


def is_let_in(server: ServerProcess) -> bool:
    """Return whether a new connection is served."""
    try:
        with server.stream() as stream:
            return bool(stream.call("stats", queue="orders"))
    except (InvalidHandshake, OSError):
        return False


def test_requests_that_never_end_are_bounded(tmp_path: Path) -> None:
    """Of two long requests of one caller only one is received; the other waits, and is answered when the first is gone.

    On the stream, a message that stalls ends its connection.
    """
    flags = ("--arriving-total-bytes-max", str(2 * 1024 * 1024), "--body-timeout-ms", "1000")
    size = 800 * 1024
    with serving(tmp_path / "data", *flags) as server, server.http() as http:
        http.post("/queues/create", json={"queue": "orders"})
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stalled:
            stalled.sendall(b"POST /v1/queue/enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            stalled.sendall(b"Content-Length: %d\r\n\r\n" % size + b" " * (size // 2))
            body = b'{"queue": "orders", "messages": [{}]}'.ljust(size)
            answer = http.post("/queue/enqueue", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200
            assert stalled.recv(100).startswith(b"HTTP/1.1 408")
        with server.stream() as stream:
            stream.socket.socket.sendall(b"\x82\xff" + size.to_bytes(8) + bytes(4) + bytes(size // 2))
            with pytest.raises(ConnectionClosed) as closed:
                stream.socket.recv(timeout=PATIENCE_S)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


def test_subscriptions_over_the_limit_are_rejected(tmp_path: Path) -> None:
    """Over HTTP and gRPC a consumer over the limit gets too_many_waiters; when one leaves, another is accepted."""
    subscribe: dict[str, Any] = {"method": "POST", "url": "/queue/subscribe", "json": {"queue": "orders"}}
    opening = broker_pb2.ConsumeRequest(open=broker_pb2.ConsumeOpen(queue="orders"))
    with serving_grpc(tmp_path / "data", "--waiters-per-caller-max", "2") as server, server.http() as http:
        http.post("/queues/create", json={"queue": "orders"})
        with http.stream(**subscribe) as one, server.called() as (brokers, _):
            assert one.status_code == 200
            with http.stream(**subscribe) as two:
                assert two.status_code == 200
                refused = http.post("/queue/subscribe", json={"queue": "orders"})
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_waiters")
                with pytest.raises(grpc.RpcError) as ended:
                    next(brokers.Consume(iter([opening])))
                assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            while http.get("/queues/orders").json()["consumers"] > 1:
                pass
            consuming = brokers.Consume(iter([opening]))
            http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}, {}]})
            assert consuming.initial_metadata()
            consuming.cancel()


def test_waiters_over_the_limit_are_rejected(tmp_path: Path) -> None:
    """A lease over the limit is rejected at once with a retry time; the other waiters keep waiting."""
    with serving(tmp_path / "data", "--waiters-max", "3") as server, server.stream() as stream, server.http() as http:
        stream.call("create_queue", queue="orders")
        for _ in range(3):
            stream.send("lease", queue="orders", wait_ms=60_000)
        while stream.call("stats", queue="orders")["waiters"] < 3:
            pass
        refused = http.post("/queue/dequeue", json={"queue": "orders", "wait_ms": 60_000})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_waiters")
        assert int(refused.headers["retry-after"]) >= 1
        assert http.post("/queue/dequeue", json={"queue": "orders"}).json() == {"deliveries": []}
        http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}] * 3})
        assert [len(stream.frame()[2]["deliveries"]) for _ in range(3)] == [1, 1, 1]
