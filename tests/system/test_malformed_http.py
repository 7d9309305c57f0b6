"""What is no good over HTTP: it gets an error that says so, or a closed connection, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane.verbs.table import VERBS
from tests.kit.waiting import PATIENCE_S

from .server_process import HttpClient, ServerProcess, resident_bytes, serving

BODY_BYTES_MAX = 100_000
DEEP = 100_000
JSON = {"content-type": "application/json"}
MSGPACK = {"content-type": "application/msgpack"}
POST = b"POST /v1/queue/enqueue HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve the queue ``orders`` with small limits."""
    flags = ("--body-bytes-max", str(BODY_BYTES_MAX), "--durability", "os")
    with serving(tmp_path_factory.mktemp("data"), *flags) as process:
        with process.http() as http:
            http.post("/queues/create", json={"queue": "orders"})
        yield process


@pytest.fixture
def server(process: ServerProcess) -> Iterator[ServerProcess]:
    """Give the server, and see at the end whether it is alive and has the messages that it answered for, only those."""
    yield process
    with process.http() as http:
        (enqueued,) = http.post("/queue/enqueue", json={"queue": "orders", "messages": [{}]}).json()["results"]
        (delivery,) = http.post("/queue/dequeue", json={"queue": "orders", "count": 10}).json()["deliveries"]
        assert delivery["id"] == enqueued["id"]
        receipt = {"id": delivery["id"], "token": delivery["token"]}
        assert http.post("/queue/ack", json={"queue": "orders", "receipts": [receipt]}).json() == {"results": [{}]}


@pytest.fixture
def http(server: ServerProcess) -> Iterator[HttpClient]:
    """Give a client."""
    with server.http() as client:
        yield client


def said(server: ServerProcess, *parts: bytes, is_all: bool = True) -> bytes:
    """Return all that the server answers to bytes until it hangs up, or we do because that was all."""
    host, port = server.address.rsplit(":", 1)
    answer = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if is_all:
                connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65_536):
                answer += data
        except (ConnectionResetError, BrokenPipeError):
            pass  # it has seen enough
    return answer


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{}",
        b'{"queue": 1, "messages": []}',
        b'{"queue": "orders"}',
        b'{"queue": "orders", "messages": {}}',
        b'{"queue": "orders", "messages": [{"payload": "no base64!"}]}',
        b'{"queue": "orders", "messages": [{"payload": 5}]}',
        b'{"queue": "orders", "messages": [{"delay_ms": 1.5}]}',
        b'{"queue": "orders", "messages": [{"delay_ms": NaN}]}',
        b'{"queue": "orders", "messages": [{}], "wait_ms": 1e400}',
        b'{"queue": "orders", "messages": [{}], "wait_ms": -99999999999999999999999999}',
        b'{"queue": "orders", "messages": [{}], "surprise": 1}',
        b'{"queue": "orders", "messages": [{"surprise": 1}]}',
        b'{"queue": "orders", "messages": [{}]} trailing',
        b'{"queue": "\xff\xfe", "messages": [{}]}',
        b'{"queue": "\\ud800", "messages": [{}]}',
        b'{"queue": "orders", "messages": ' + b"[" * (DEEP // 2),
        b'{"surprise": ' + b"[" * 40_000 + b"]" * 40_000 + b"}",
    ],
)
def test_a_body_that_is_no_request_is_refused(http: HttpClient, body: bytes) -> None:
    """Bad JSON, wrong types, unknown fields and bad text get 400 and an error that names the verb."""
    refused = http.post("/queue/enqueue", content=body, headers=JSON)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
    assert any(word in refused.json()["error"]["cause"] for word in ("enqueue", "wait_ms", "queue name"))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'{"surprise": [' + b"[" * 40_000),
        (JSON, b'{"policy": ' + b'{"a":' * 15_000 + b"1" + b"}" * 15_000 + b', "queue": "orders"}'),
        (MSGPACK, b"\xc1"),
        (MSGPACK, b"\x81\xa5queue"),
        (MSGPACK, b"\x82\xa5queue\xa6orders\xa6policy" + b"\x91" * 90_000),
        (MSGPACK, b"\x81\xa5queue\xdb\xff\xff\xff\xff"),
        (MSGPACK, b"\xdf\xff\xff\xff\xff"),
    ],
    ids=["deep", "deep policy", "reserved", "cut", "deep msgpack", "long text", "large map"],
)
def test_no_verb_falls_over_what_it_can_not_read(http: HttpClient, kind: dict[str, str], body: bytes) -> None:
    """Whatever the verb, nesting without end and lengths that lie are refused as bad input, not as faults of ours."""
    for verb in VERBS.values():
        refused = http.post(f"/{verb.path}", content=body, headers=kind | {"accept": "application/json"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument"), verb


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/jsonp",
        None,
    ],
)
def test_a_body_of_another_kind_is_refused(http: HttpClient, kind: str | None) -> None:
    """What a page of another site could send without asking is refused, even if it is good JSON."""
    body = json.dumps({"queue": "orders", "messages": [{}]}).encode()
    refused = http.post("/queue/enqueue", content=body, headers={} if kind is None else {"content-type": kind})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET", "OPTIONS"])
def test_a_verb_is_asked_with_post_only(http: HttpClient, method: str) -> None:
    """Other methods get 405 and the one that is allowed."""
    refused = http.request(method, "/queue/enqueue")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "path", ["/v1/nowhere", "/v1/queue/../queue/enqueue", "//", "/v1/queue/enqueue/", "/" + "x" * 50_000, "/%00%ff"]
)
def test_a_path_that_leads_nowhere_is_refused(server: ServerProcess, path: str) -> None:
    """Whatever the path, there is an answer with a code."""
    answer = said(server, f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
    assert answer.split(b" ", 2)[1] in (b"404", b"400")


def test_a_body_that_is_too_large_is_refused(http: HttpClient) -> None:
    """With its length told and without, one byte too many gets 413, and nothing is enqueued."""
    frame = len(json.dumps({"queue": "orders", "messages": [{"payload": ""}]}))
    body = {"queue": "orders", "messages": [{"payload": "A" * (BODY_BYTES_MAX - frame + 1)}]}
    text = json.dumps(body).encode()
    assert len(text) == BODY_BYTES_MAX + 1

    def in_parts() -> Iterator[bytes]:
        for at in range(0, len(text), 10_000):
            yield text[at : at + 10_000]

    for content in (text, in_parts()):
        refused = http.post("/queue/enqueue", content=content, headers=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")


def test_a_body_that_never_ends_is_cut_off(server: ServerProcess) -> None:
    """Chunk after chunk beyond the limit is answered with 413, and the server keeps none of it."""
    before = resident_bytes(server)
    chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
    answer = said(server, POST + b"transfer-encoding: chunked\r\n\r\n", *([chunk] * 1_000))
    assert answer == b"" or answer.split(b" ", 2)[1] == b"413"
    assert resident_bytes(server) - before < 30_000_000


@pytest.mark.parametrize(
    "rest",
    [
        b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n2\r\n{}{}{}\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        b"transfer-encoding: chunked, identity\r\n\r\n{}",
        b"transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"content-length: -1\r\n\r\n{}",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        b"content-length: 18446744073709551617\r\n\r\n{}",
        b"bad header\r\n\r\n{}",
        b"x: \x00\r\n\r\n{}",
        b" folded: x\r\n\r\n{}",
    ],
)
def test_a_request_that_is_framed_badly_is_refused_once(server: ServerProcess, rest: bytes) -> None:
    """Lengths that lie or contradict each other get at most one answer, an error, and the connection is closed."""
    answer = said(server, POST + rest)
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert answer == b"" or answer.split(b" ", 2)[1] in (b"400", b"413", b"501")


@pytest.mark.parametrize("part", [b"x: " + b"y" * 65_536 + b"\r\n", b"y" * 65_536], ids=["many lines", "one line"])
def test_headers_without_end_are_cut_off(server: ServerProcess, part: bytes) -> None:
    """Sixty megabytes of headers are not taken in: the server hangs up long before."""
    before = resident_bytes(server)
    answer = said(server, POST + b"z: ", *([part] * 1_000))
    assert answer == b"" or answer.split(b" ", 2)[1] in (b"400", b"431")
    assert resident_bytes(server) - before < 30_000_000


@pytest.mark.parametrize(
    "lines",
    [b"x: " + b"y" * 70_000 + b"\r\n", b"x: y\r\n" * 10_000, b"x: y\r\n" * 300],
    ids=["one of 70 kB", "10,000", "300"],
)
def test_a_head_that_comes_whole_is_bounded_like_one_in_parts(server: ServerProcess, lines: bytes) -> None:
    """Too many or too large headers in one read get 431, and the application never sees the request."""
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    assert said(server, request + b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert said(server, request + b"x: y\r\n" * 250 + b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert said(server, request + lines + b"\r\n").startswith(b"HTTP/1.1 431 ")


def test_requests_in_one_breath_are_answered_in_order(server: ServerProcess) -> None:
    """Three requests sent at once on one connection have three answers, the bad one in its place."""
    good = b'{"queue": "orders"}'
    stats = b"POST /v1/queue/stats HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    one = stats + b"content-length: %d\r\n\r\n" % len(good) + good
    bad = stats + b"content-length: 1\r\n\r\n{"
    last = stats + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(good) + good
    answers = said(server, one + bad + one + last, is_all=False).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"400", b"200", b"200"]


def test_a_request_that_is_never_finished_holds_up_nobody(server: ServerProcess) -> None:
    """A hundred connections that stop in the middle of a request leave the server to others."""
    host, port = server.address.rsplit(":", 1)
    idle: list[Any] = []
    try:
        for at in range(100):
            idle.append(socket.create_connection((host, int(port))))
            idle[-1].sendall((POST + b"content-length: 50\r\n\r\n{")[: 20 + at])
        with server.http() as http:
            assert http.get("/queues/orders").status_code == 200
    finally:
        for connection in idle:
            connection.close()


NUMBERS = (2**63, 2**64, -(2**63) - 1, 10**30)
SAMPLES: dict[str, dict[str, Any]] = {
    "/queue/enqueue": {"queue": "orders", "messages": [{"delay_ms": 1, "cost": 1}]},
    "/queue/dequeue": {"queue": "orders", "count": 1, "visibility_ms": 1},
    "/queue/ack": {"queue": "orders", "receipts": [{"id": "0" * 16, "token": 1, "cost": 1}]},
    "/queue/nack": {"queue": "orders", "receipts": [{"id": "0" * 16, "token": 1}], "delay_ms": 1},
    "/queue/extend": {"queue": "orders", "receipts": [{"id": "0" * 16, "token": 1}], "visibility_ms": 1},
    "/queue/peek": {"queue": "orders", "count": 1, "wanted": {"older_than_ms": 1, "newer_than_ms": 1}},
    "/queues/redrive": {"queue": "orders.dlq", "count": 1, "rate": 1, "is_dry_run": True},
    "/queues/hook/try": {"queue": "orders", "hook": "on_failure", "script": "", "payload_size": 1, "attempts": 1},
    "/journal/read": {"after": 1, "count": 1},
    "/journal/reader/set": {"name": "r", "position": 1},
    "/keys/create": {"name": "n", "grants": [], "expires_ms": 1},
    "/queues/update": {"queue": "orders", "policy": {"waiting_max": 1}},
    "/queues/create": {"queue": "more", "policy": {"quantum": 1, "weights": {"a": 1}, "backoff_factor": 1}},
}


def with_numbers(value: Any, number: int) -> Iterator[Any]:
    """Return a value with each of its numbers replaced in turn."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from (value | {name: changed} for changed in with_numbers(part, number))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], changed, *value[at + 1 :]] for changed in with_numbers(part, number))
    elif type(value) is int:
        yield number


@pytest.mark.parametrize("path", SAMPLES)
def test_numbers_beyond_all_bounds_are_no_fault_of_ours(http: HttpClient, path: str) -> None:
    """A number that fits in no 64 bits is refused, or found not to exist, wherever a number is asked for.

    A wait is the exception: one that is too long is shortened.
    """
    for number in NUMBERS:
        for body in with_numbers(SAMPLES[path], number):
            assert http.post(path, json=body).status_code in (200, 400, 404), (body, path)
