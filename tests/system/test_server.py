"""A server process over HTTP and the stream: stopped, killed and restarted."""

from __future__ import annotations

import base64
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.kit.waiting import PATIENCE_S

from .server_process import HttpClient, ServerProcess, Stream, serving

HELLO = base64.b64encode(b"hello").decode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Run a server with the queue ``orders``."""
    with serving(tmp_path / "data") as process:
        with process.http() as http:
            create(http)
        yield process


def create(http: HttpClient) -> None:
    """Create the queue ``orders``."""
    assert http.post("/queues/create", json={"queue": "orders"}).json() == {}


def receipt(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return the receipt of a delivery."""
    return {"id": delivery["id"], "token": delivery["token"]}


def test_the_life_of_a_message_over_http(server: ServerProcess) -> None:
    """Enqueue, dequeue, nack, dequeue again and ack, all in JSON."""
    with server.http() as http:
        message = {"payload": HELLO, "fairness_key": "acme"}
        http.post("/queue/enqueue", json={"queue": "orders", "messages": [message]})
        first = http.post("/queue/dequeue", json={"queue": "orders", "wait_ms": 10_000}).json()["deliveries"][0]
        nack = {"queue": "orders", "receipts": [receipt(first)], "delay_ms": 0, "error": "no"}
        assert http.post("/queue/nack", json=nack).json() == {"results": [{"became": "waiting"}]}
        second = http.post("/queue/dequeue", json={"queue": "orders", "wait_ms": 10_000}).json()["deliveries"][0]
        assert (second["payload"], second["attempt"], second["failures"]) == (HELLO, 2, 1)
        stale = http.post("/queue/ack", json={"queue": "orders", "receipts": [receipt(first)]})
        assert stale.json()["results"][0]["error"]["code"] == "lease_mismatch"
        assert http.post("/queue/ack", json={"queue": "orders", "receipts": [receipt(second)]}).json() == {
            "results": [{}]
        }
        assert http.get("/queues/orders").json()["waiting"] == 0


def test_the_life_of_a_message_over_the_stream(server: ServerProcess) -> None:
    """One connection produces and consumes, with payloads as bytes."""
    with server.stream() as stream:
        stream.send("consume", queue="orders", credit=10)
        stream.call("enqueue", queue="orders", messages=[{"payload": b"\x00"}] * 3)
        deliveries = stream.deliveries(3)
        assert [delivery["payload"] for delivery in deliveries] == [b"\x00"] * 3
        acked = stream.call("ack", queue="orders", receipts=[receipt(delivery) for delivery in deliveries])
        assert acked == {"results": [{}] * 3}


def test_a_fragmented_message_keeps_its_order(server: ServerProcess) -> None:
    """A call in many fragments, with pings between them, is handled before later calls."""
    with server.stream() as stream:
        for number, name in enumerate((b"first" * 1_000, b"second", b"third"), 1):
            call = msgspec.msgpack.encode([0, number, "enqueue", {"queue": "orders", "messages": [{"payload": name}]}])
            stream.socket.send([call[at : at + 700] for at in range(0, len(call), 700)] if number < 3 else call)
            assert stream.socket.ping().wait(PATIENCE_S)
        assert sorted(stream.frame()[1] for _ in range(3)) == [1, 2, 3]
        leased = stream.call("lease", queue="orders", count=3)["deliveries"]
        assert [delivery["payload"] for delivery in leased] == [b"first" * 1_000, b"second", b"third"]


def test_text_messages_are_rejected(server: ServerProcess) -> None:
    """The connection closes with the code for text, after earlier calls are done."""
    with server.stream() as stream:
        stream.send("enqueue", queue="orders", messages=[{}])
        stream.socket.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(stream.frame, None))
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
    with server.stream() as stream:
        assert stream.call("stats", queue="orders")["waiting"] == 1


def test_acknowledged_work_survives_a_kill(server: ServerProcess) -> None:
    """After SIGKILL and a restart every acknowledged message exists, and a lease still holds."""
    with server.stream() as stream:
        enqueued = stream.call("enqueue", queue="orders", messages=[{"payload": b"x"}] * 50)
        leased = stream.call("lease", queue="orders", count=1)["deliveries"]
        server.kill()
    server.start()
    with server.stream() as stream:
        assert stream.call("stats", queue="orders")["waiting"] == 49
        assert stream.call("ack", queue="orders", receipts=[receipt(leased[0])]) == {"results": [{}]}
        rest = stream.call("lease", queue="orders", count=100)["deliveries"]
        assert {delivery["id"] for delivery in rest} == {result["id"] for result in enqueued["results"][1:]}


def test_a_term_signal_drains(server: ServerProcess) -> None:
    """The server rejects new work, ends the channel, accepts the ack, and exits with 0."""
    with server.stream() as stream:
        channel = stream.send("consume", queue="orders")
        stream.call("enqueue", queue="orders", messages=[{}])
        delivery = stream.deliveries(1)[0]
        server.signal(signal.SIGTERM)
        ended = stream.frame()
        assert (ended[0], ended[1], ended[2]["code"]) == (4, channel, "closed")
        with server.http() as http:
            refused = http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}]})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "closed")
        assert stream.call("ack", queue="orders", receipts=[receipt(delivery)]) == {"results": [{}]}
        with pytest.raises(ConnectionClosed) as closed:
            stream.frame()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    assert server.wait() == 0


def test_a_second_signal_ends_the_grace_period_and_releases_leases(server: ServerProcess) -> None:
    """Messages of a channel wait again after the restart, with a lost attempt."""
    with server.stream() as stream:
        stream.send("consume", queue="orders")
        stream.call("enqueue", queue="orders", messages=[{}])
        delivery = stream.deliveries(1)[0]
        server.signal(signal.SIGTERM)
        assert stream.frame()[0] == 4
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    server.start()
    with server.stream() as stream:
        view = stream.call("get", queue="orders", id=delivery["id"])
        assert (view["status"], view["failures"], len(view["errors"])) == ("waiting", 0, 1)


def test_messages_of_a_vanished_client_return(server: ServerProcess) -> None:
    """When a connection breaks without a close, another consumer gets its messages."""
    with server.http() as http:
        http.post("/queues/update", json={"queue": "orders", "policy": {"backoff_ms": 1, "backoff_max_ms": 1}})
    vanishing, staying = server.stream(), server.stream()
    with staying:
        vanishing.send("consume", queue="orders")
        vanishing.call("enqueue", queue="orders", messages=[{}])
        first = vanishing.deliveries(1)[0]
        staying.send("consume", queue="orders")
        vanishing.socket.socket.shutdown(socket.SHUT_RDWR)
        assert staying.deliveries(1)[0]["id"] == first["id"]
    vanishing.close()


def test_a_slow_reader_delays_no_other_client_and_gets_all(server: ServerProcess) -> None:
    """A client that reads nothing is limited by its credit, and others continue."""
    with server.stream() as slow, server.stream() as quick:
        slow.send("consume", queue="orders", credit=8)
        for _ in range(4):
            quick.call("enqueue", queue="orders", messages=[{"payload": bytes(1024 * 1024)}] * 8)
        stats = quick.call("stats", queue="orders")
        assert (stats["leased"], stats["waiting"]) == (8, 24)
        for _ in range(4):
            held = slow.deliveries(8)
            slow.call("ack", queue="orders", receipts=[receipt(delivery) for delivery in held])
        assert quick.call("stats", queue="orders")["size"] == 0


def test_two_hundred_connections_each_get_their_share(server: ServerProcess) -> None:
    """Two hundred consumers with a credit of one have two hundred messages in flight."""
    streams: list[Stream] = [server.stream() for _ in range(200)]
    try:
        for stream in streams:
            stream.send("consume", queue="orders", credit=1)
        streams[0].call("enqueue", queue="orders", messages=[{}] * 200)
        ids = {stream.deliveries(1)[0]["id"] for stream in streams}
        assert len(ids) == 200
    finally:
        for stream in streams:
            stream.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/queue/enqueue HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: nine\r\n\r\n",
        b"POST /v1/queue/enqueue HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99\r\n\r\n{",
        b"\x16\x03\x01\x02\x00\x01",
        b"\xff" * 4096,
    ],
)
def test_garbage_on_the_wire_does_no_harm(server: ServerProcess, junk: bytes) -> None:
    """Whatever bytes arrive, the server answers the next caller."""
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(junk)
    with server.http() as http:
        assert http.get("/queues/orders").status_code == 200


def test_an_oversized_stream_message_closes_only_its_connection(tmp_path: Path) -> None:
    """A message over the limit closes its connection with the matching code."""
    with serving(tmp_path / "data", "--body-bytes-max", "1000") as server:
        with server.stream() as stream:
            stream.socket.send(bytes(2_000))
            with pytest.raises(ConnectionClosed) as closed:
                stream.frame()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        with server.http() as http:
            answer = http.post("/queues/create", json={"queue": "x" * 2_000})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_authentication(tmp_path: Path) -> None:
    """The first API key is in a file only its owner can read; it creates others, which survive a restart."""
    with serving(tmp_path / "data", "--auth", "true") as server:
        file = tmp_path / "data" / "admin.key"
        assert file.stat().st_mode & 0o777 == 0o600
        with server.http() as http:
            assert http.get("/queues").status_code == 401
        with server.http(headers={"authorization": f"Bearer {file.read_text().strip()}"}) as http:
            create(http)
            grants = [{"right": "consume", "queues": "orders"}]
            key = http.post("/keys/create", json={"name": "worker", "grants": grants}).json()["key"]
        server.kill()
        server.start()
        headers = {"authorization": f"Bearer {key}"}
        with server.stream(additional_headers=headers) as stream:
            assert stream.call("lease", queue="orders") == {"deliveries": []}
            number = stream.send("enqueue", queue="orders", messages=[{}])
            assert stream.frame()[:2] == [2, number]
        with pytest.raises(InvalidStatus) as refused:
            server.stream()
        assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--host", "0.0.0.0"], "tls_certificate"),  # noqa: S104 - that is the point
        (["--durability", "none"], "--durability"),
        (["--config", "/nowhere.toml"], "nowhere"),
    ],
)
def test_a_server_with_invalid_settings_says_why(flags: list[str], word: str, tmp_path: Path) -> None:
    """It exits with 1 and prints one line."""
    command = [sys.executable, "-m", "fairlane.server", "--data", str(tmp_path / "data"), *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 1
    assert word in result.stderr
    assert "Traceback" not in result.stderr


def test_an_abandoned_lease_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    """Without connections and calls the server exits long before its grace period, and the lease survives."""
    with serving(tmp_path / "data", "--grace-ms", "600000") as server:
        with server.http() as http:
            create(http)
            http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}]})
            lease = {"queue": "orders", "visibility_ms": 3_600_000}
            delivery = http.post("/queue/dequeue", json=lease).json()["deliveries"][0]
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        server.start()
        with server.http() as http:
            acked = http.post("/queue/ack", json={"queue": "orders", "receipts": [receipt(delivery)]})
            assert acked.json() == {"results": [{}]}
