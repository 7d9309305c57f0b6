"""What is no good on the stream: refused by number, or the connection is closed with a code; others go on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.kit.waiting import PATIENCE_S

from .server_process import ServerProcess, Stream, resident_bytes, serving

BODY_BYTES_MAX = 200_000
HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Protocol: fairlane.v1\r\n\r\n"
)
CALLS_MAX = 8
encode = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serve the queue ``orders`` with small limits."""
    flags = ("--body-bytes-max", str(BODY_BYTES_MAX), "--calls-max", str(CALLS_MAX), "--durability", "os")
    with serving(tmp_path_factory.mktemp("data"), *flags) as process:
        with process.stream() as stream:
            stream.call("create_queue", queue="orders")
        yield process


@pytest.fixture
def server(process: ServerProcess) -> Iterator[ServerProcess]:
    """Give the server, and see at the end whether it is alive, and nobody holds or waits for anything."""
    yield process
    with process.stream() as stream:
        while (stats := stream.call("stats", queue="orders"))["consumers"] or stats["waiters"]:
            pass
        (enqueued,) = stream.call("enqueue", queue="orders", messages=[{"payload": b"x"}])["results"]
        (delivery,) = stream.call("lease", queue="orders", count=10)["deliveries"]
        assert delivery["id"] == enqueued["id"]
        receipt = {"id": delivery["id"], "token": delivery["token"]}
        assert stream.call("ack", queue="orders", receipts=[receipt]) == {"results": [{}]}


@pytest.fixture
def stream(server: ServerProcess) -> Iterator[Stream]:
    """Give a connection."""
    with server.stream() as stream:
        yield stream


def code_of_the_end(stream: Stream) -> int:
    """Return the code with which the server closes a connection; frames before it are passed over."""
    with pytest.raises(ConnectionClosed) as closed:
        list(iter(stream.frame, None))
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x94\x00",
        encode([]),
        encode(5),
        encode("text"),
        encode({"verb": "stats"}),
        encode([0, 1]),
        encode([0, 1, "stats"]),
        encode([0, "1", "stats", {}]),
        encode([0, 1, 2, {}]),
        encode([0, 1.5, "stats", {}]),
        encode([9, 1, "stats", {}]),
        encode([1, 1, {}]),
        encode([[0, 1, "stats", {}], [1, 1, {}]]),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x94\x00\x01\xa5stats" + b"\x91" * 100_000,
    ],
    ids=repr,
)
def test_a_message_that_is_no_frame_ends_its_connection(stream: Stream, message: bytes) -> None:
    """Garbage, cut and nested messages, and frames that only a server sends, are closed with 1007."""
    stream.socket.send(message)
    assert code_of_the_end(stream) == 1007


def test_a_text_message_ends_its_connection(stream: Stream) -> None:
    """The stream speaks msgpack in binary messages: text is closed with 1003."""
    stream.socket.send('[0, 1, "stats", {"queue": "orders"}]')
    assert code_of_the_end(stream) == 1003


def test_too_large_a_message_ends_its_connection(stream: Stream) -> None:
    """One byte above the limit, in one piece or in many, is closed with 1009."""
    stream.socket.send(bytes(BODY_BYTES_MAX + 1))
    assert code_of_the_end(stream) == 1009


def test_a_fragmented_message_is_bounded_too(server: ServerProcess) -> None:
    """Fragments beyond the limit are cut off, their memory is given back, and who only sends is still told why."""
    before = resident_bytes(server)
    rest_of_fragment = b"\xff" + (65_536).to_bytes(8) + bytes(4 + 65_536)  # masked with zeros
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(HANDSHAKE)
        with connection.makefile("rb") as answers:
            assert answers.readline().startswith(b"HTTP/1.1 101 ")
            while answers.readline() != b"\r\n":
                pass
            connection.sendall(b"\x02" + rest_of_fragment)
            for _ in range(500):
                connection.sendall(b"\x00" + rest_of_fragment)
            told = answers.read()
    assert told[:1] == b"\x88"
    assert int.from_bytes(told[2:4]) == 1009
    assert resident_bytes(server) - before < 30_000_000


@pytest.mark.parametrize(
    "bytes_on_the_wire",
    [
        b"\x82\x05hello",
        b"\xf2\x80\x00\x00\x00\x00",
        b"\x83\x80\x00\x00\x00\x00",
        b"\x80\x80\x00\x00\x00\x00",
        b"\x09\x80\x00\x00\x00\x00",
        b"\x89\xfe\x01\x00" + bytes(4 + 256),
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(4),
        b"\x82\xff\x3f\xff\xff\xff\xff\xff\xff\xff" + bytes(4),
        b"\x88\x81\x00\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=repr,
)
def test_a_broken_websocket_frame_ends_its_connection(stream: Stream, bytes_on_the_wire: bytes) -> None:
    """What breaks the rules of WebSockets is closed as they ask for."""
    stream.socket.socket.sendall(bytes_on_the_wire)
    assert code_of_the_end(stream) in (1002, 1009)


@pytest.mark.parametrize(
    ("verb", "request_", "code"),
    [
        ("nonsense", {}, "route_not_found"),
        ("x" * 10_000, {}, "route_not_found"),
        ("stats", {}, "invalid_argument"),
        ("stats", {"queue": 5}, "invalid_argument"),
        ("stats", {"queue": "orders", "surprise": 1}, "invalid_argument"),
        ("stats", {"queue": "nowhere"}, "queue_not_found"),
        ("consume", {"queue": "nowhere"}, "queue_not_found"),
        ("consume", {"queue": "orders", "credit": 0}, "invalid_argument"),
        ("consume", {"queue": "orders", "credit": -1}, "invalid_argument"),
        ("consume", {"queue": "orders", "credit": 1 << 40}, "invalid_argument"),
        ("consume", {"queue": "orders", "credit": 1 << 63}, "invalid_argument"),
        ("consume", {"queue": "orders", "visibility_ms": -1}, "invalid_argument"),
        ("consume", {"queue": "orders", "owner": "x" * 1_000}, "invalid_argument"),
        ("stop", {"channel": 99}, "invalid_argument"),
        ("stop", {}, "invalid_argument"),
        ("lease", {"queue": "orders", "wait_ms": -1}, "invalid_argument"),
        ("lease", {"queue": "orders", "count": 0}, "invalid_argument"),
    ],
)
def test_a_bad_call_is_refused_and_the_connection_goes_on(
    stream: Stream, verb: str, request_: dict[str, Any], code: str
) -> None:
    """What is wrong with one call is told under its number; the next is answered."""
    number = stream.send(verb, **request_)
    kind, answered, error = stream.frame()
    assert (kind, answered, error["code"]) == (2, number, code)
    assert stream.call("stats", queue="orders")["waiting"] == 0


@pytest.mark.parametrize(
    ("verb", "field", "columns"),
    [
        ("enqueue", "messages", {}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\1\0\0\0"}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\1\0\0\0", "payloads": b""}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\1\0\0", "payloads": b"x"}),
        ("enqueue", "messages", {"keys": [], "sizes": b"\1\0\0\0", "payloads": b"x"}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\xff\xff\xff\xff", "payloads": b"x"}),
        ("enqueue", "messages", {"keys": [1], "sizes": b"\1\0\0\0", "payloads": b"x"}),
        ("enqueue", "messages", {"keys": [["a", "b"]], "sizes": b"\1\0\0\0", "payloads": b"x"}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": [1], "payloads": b"x"}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\1\0\0\0", "payloads": "x"}),
        ("enqueue", "messages", {"keys": ["a"], "sizes": b"\1\0\0\0", "payloads": b"x", "more": 1}),
        ("enqueue", "messages", {"keys": [None] * 10_001, "sizes": bytes(4 * 10_001), "payloads": b""}),
        ("enqueue", "messages", {"keys": [], "sizes": bytes(4 * 10_001), "payloads": b""}),
        ("ack", "receipts", {}),
        ("ack", "receipts", {"journal": 1, "numbers": bytes(8), "tokens": b""}),
        ("ack", "receipts", {"journal": 1, "numbers": bytes(7), "tokens": bytes(7)}),
        ("ack", "receipts", {"journal": -1, "numbers": bytes(8), "tokens": bytes(8)}),
        ("ack", "receipts", {"journal": 1, "numbers": b"\xff" * 8, "tokens": bytes(8)}),
        ("ack", "receipts", {"journal": "1", "numbers": bytes(8), "tokens": bytes(8)}),
        ("ack", "receipts", {"journal": 1, "numbers": bytes(80_008), "tokens": bytes(80_008)}),
    ],
)
def test_bad_columns_are_refused_and_the_connection_goes_on(
    server: ServerProcess, verb: str, field: str, columns: dict[str, Any]
) -> None:
    """Columns that are missing, too long or don't fit together change nothing, and the next call is answered."""
    with server.stream(subprotocols=["fairlane.v2"]) as stream:
        number = stream.send(verb, **{"queue": "orders", field: columns})
        kind, answered, error = stream.frame()
        assert (kind, answered, error["code"]) == (2, number, "invalid_argument"), error
        assert stream.call("stats", queue="orders")["waiting"] == 0


def test_a_channel_that_is_open_can_not_be_opened_again(stream: Stream) -> None:
    """The number of an open channel is refused for another; the first goes on, and can be stopped once."""
    channel = stream.send("consume", queue="orders", credit=1)
    assert stream.frame()[:2] == [1, channel]
    stream.socket.send(encode([0, channel, "consume", {"queue": "orders"}]))
    kind, number, error = stream.frame()
    assert (kind, number, error["code"]) == (2, channel, "invalid_argument")
    assert stream.call("stop", channel=channel) == {}
    stream.send("stop", channel=channel)
    assert stream.frame()[2]["code"] == "invalid_argument"


def test_credit_is_not_gained_by_acking_what_is_not_held(server: ServerProcess, stream: Stream) -> None:
    """Acks of made-up leases, of messages that are not there and of one message twice make no room."""
    channel = stream.send("consume", queue="orders", credit=2)
    stream.call("enqueue", queue="orders", messages=[{} for _ in range(6)])
    first, second = stream.deliveries(2)
    made_up = {"id": first["id"], "token": first["token"] + 1_000}
    for receipts in ([made_up] * 5, [{"id": "f" * 16, "token": 1}] * 5):
        results = stream.call("ack", queue="orders", receipts=receipts)["results"]
        assert all("error" in result for result in results)
    good = {"id": first["id"], "token": first["token"]}
    results = stream.call("ack", queue="orders", receipts=[good] * 5)["results"]
    assert [("error" in result) for result in results] == [False, True, True, True, True]
    assert stream.call("stats", queue="orders")["leased"] == 2
    (third,) = stream.deliveries(1)
    assert stream.call("stop", channel=channel, unseen=[second["id"], third["id"], "f" * 16], received=-7) == {}
    with server.stream() as other:
        assert other.call("stats", queue="orders")["leased"] == 0
        assert other.call("purge", queue="orders")["count"] == 5


def test_a_flood_of_calls_is_taken_in_turns(server: ServerProcess) -> None:
    """A thousand calls in one breath beyond calls_max are all answered, each once."""
    with server.stream() as stream:
        numbers = {stream.send("stats", queue="orders") for _ in range(1_000)}
        answered = [stream.frame() for _ in range(1_000)]
        assert {frame[0] for frame in answered} == {1}
        assert {frame[1] for frame in answered} == numbers


def test_leases_that_wait_are_bounded(server: ServerProcess) -> None:
    """Beyond calls_max leases that wait on a connection more are refused, and the others go on waiting."""
    with server.stream() as stream:
        waiting = [stream.send("lease", queue="orders", wait_ms=60_000) for _ in range(CALLS_MAX)]
        refused = stream.send("lease", queue="orders", wait_ms=60_000)
        kind, number, error = stream.frame()
        assert (kind, number, error["code"]) == (2, refused, "too_many_waiters")
        stream.call("enqueue", queue="orders", messages=[{} for _ in waiting])
        frames = [stream.frame() for _ in waiting]
        assert {frame[1] for frame in frames} == set(waiting)
        receipts = [{"id": each["id"], "token": each["token"]} for frame in frames for each in frame[2]["deliveries"]]
        assert stream.call("ack", queue="orders", receipts=receipts) == {"results": [{}] * CALLS_MAX}


def test_a_handshake_must_be_right(server: ServerProcess) -> None:
    """A stream at a wrong place, or without its subprotocol, is refused as over HTTP."""
    with pytest.raises(InvalidStatus) as refused:
        server.stream(subprotocols=None)
    assert refused.value.response.status_code == 400
    with pytest.raises(InvalidStatus) as refused:
        Stream(f"ws://{server.address}/v1/elsewhere", {"subprotocols": ["fairlane.v1"]})
    assert refused.value.response.status_code == 404
