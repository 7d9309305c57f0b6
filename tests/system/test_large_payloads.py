"""Large payloads at a real server: unchanged, or rejected before they are read."""

from __future__ import annotations

import hashlib
import json
import random
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE_S

from .server_process import ServerProcess, serving

MIB = 1024 * 1024


def head_of_answer(server: ServerProcess, head: str, body: bytes = b"") -> bytes:
    """Send a request and return the answer up to the end of the connection."""
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(
            f"POST /v1/queue/enqueue?queue=orders HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode()
        )
        with suppress(ConnectionError):  # it may have heard enough
            connection.sendall(body)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def test_sixteen_mebibytes_stay_unchanged(tmp_path: Path) -> None:
    """Every byte is the same, without an encoding around them."""
    payload = random.Random(7).randbytes(16 * MIB)
    with serving(tmp_path / "data") as server, server.http() as http:
        http.post("/queues/create", json={"queue": "orders"})
        raw = {"content-type": "application/octet-stream"}
        sent = http.post("/queue/enqueue", params={"queue": "orders"}, content=payload, headers=raw)
        assert sent.status_code == 200
        got = http.post("/queue/dequeue", json={"queue": "orders"}, headers={"accept": "application/octet-stream"})
        assert hashlib.sha256(got.content).digest() == hashlib.sha256(payload).digest()
        receipt = {"id": got.headers["x-fairlane-id"], "token": int(got.headers["x-fairlane-token"])}
        assert http.post("/queue/ack", json={"queue": "orders", "receipts": [receipt]}).json() == {"results": [{}]}


@pytest.mark.parametrize(
    ("kind", "code"),
    [("application/octet-stream", "payload_too_large"), ("application/json", "request_too_large")],
)
def test_a_body_is_rejected_by_its_length_before_it_is_read(tmp_path: Path, kind: str, code: str) -> None:
    """The client need not send twenty gigabytes to learn that they are too many."""
    with serving(tmp_path / "data") as server:
        with server.http() as http:
            http.post("/queues/create", json={"queue": "orders"})
        answer = head_of_answer(server, f"Content-Type: {kind}\r\nContent-Length: {20 * 1024 * MIB}")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == code


def test_a_body_without_a_length_is_rejected_at_the_limit(tmp_path: Path) -> None:
    """The server rejects it at the first byte over the limit."""
    chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
    with serving(tmp_path / "data", "--upload-bytes-max", str(2 * MIB)) as server:
        with server.http() as http:
            http.post("/queues/create", json={"queue": "orders"})
        head = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked"
        answer = head_of_answer(server, head, chunk * 50)  # and never the end
    assert answer.startswith(b"HTTP/1.1 413")
