"""Attacks by connections, on the log, and on the files of a server."""

from __future__ import annotations

import resource
import selectors
import socket
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from typing import Final

import msgspec

from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import MSGPACK, AttackedServer, Response
from fairlane.verbs.keys import Grant

_SOCKETS: Final = 1_300
_CLOSED_S: Final = 30.0
_UNFINISHED, _UNFINISHED_BYTES = 40, 12 * 1024 * 1024
_CHANNELS: Final = 4_096
_LOG_BYTES_MAX: Final = 1024 * 1024
_SILENCES: Final = (
    b"",
    b"POST /v1/que",
    b"POST /v1/queue/enqueue HTTP/1.1\r\nHost: a\r\nContent-",
    b"POST /v1/queue/enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n",
)


def silent_sockets(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Open more connections than a process may have files, send a part of a request on each, and wait."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SOCKETS + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else hard, hard))
    queue = target.queue("silent")
    api_key = target.api_key("silent", Grant(right="produce", queues=queue))
    begin()
    with ExitStack() as stack:
        opened = [
            _silent(target, stack, silence) for _, silence in zip(range(_SOCKETS), cycle(_SILENCES), strict=False)
        ]
        fresh = target.post("queue/enqueue", {"queue": queue, "messages": [{}]}, api_key=api_key)
        closed = _closed([each for each in opened if each is not None]) + opened.count(None)
    harm = "" if fresh.is_success else f"a new client was refused with {fresh.status}"
    if closed < _SOCKETS:
        harm = harm or f"{_SOCKETS - closed} silent connections were still open after {_CLOSED_S:.0f} s"
    return Outcome(_SOCKETS, closed, harm)


def _silent(target: AttackedServer, stack: ExitStack, silence: bytes) -> socket.socket | None:
    try:
        connection = stack.enter_context(target.address.socket())
        connection.sendall(silence)
    except OSError:
        return None
    return connection


def _closed(connections: list[socket.socket]) -> int:
    """Return how many connections the server closes in time."""
    closed, until = 0, time.perf_counter() + _CLOSED_S
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        while closed < len(connections) and (left := until - time.perf_counter()) > 0:
            for key, _ in selector.select(left):
                if _is_at_end(key.data):
                    selector.unregister(key.fileobj)
                    closed += 1
    return closed


def _is_at_end(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except OSError:
        return True


def unfinished_requests(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send the most of a long request on many connections, over HTTP and the stream, and never the end."""
    queue, other = target.queue("unfinished"), target.queue("unfinished-other")
    api_key = target.api_key("unfinished", Grant(right="produce", queues=queue))
    honest = target.api_key("unfinished-other", Grant(right="produce", queues=other))
    key = "" if api_key is None else f"Authorization: Bearer {api_key}\r\n"
    head = f"POST /v1/queue/enqueue HTTP/1.1\r\nHost: {target.address.host}\r\n{key}"
    posted = f"{head}Content-Type: application/msgpack\r\nContent-Length: {_UNFINISHED_BYTES + 1}\r\n\r\n".encode()
    begin()
    with ExitStack() as stack:
        for _ in range(_UNFINISHED):
            _send_without_waiting(stack.enter_context(target.address.socket()), posted)
            stream = stack.enter_context(target.stream(api_key))
            frame = b"\x82\xff" + (_UNFINISHED_BYTES + 1).to_bytes(8, "big") + bytes(4)
            _send_without_waiting(stream.socket, frame)
        large = msgspec.msgpack.encode({"queue": other, "messages": [{"payload": bytes(1024 * 1024)}]})
        taken = target.post("queue/enqueue", large, api_key=honest, content_type=MSGPACK)
    harm = "" if taken.is_success or not target.has_keys else f"another tenant was refused with {taken.status}"
    return Outcome(2 * _UNFINISHED, 0, harm)


def _send_without_waiting(connection: socket.socket, head: bytes) -> None:
    """Send as much of a long request as the server takes at once."""
    connection.sendall(head)
    connection.settimeout(0.2)
    piece = bytes(256 * 1024)
    try:
        for _ in range(_UNFINISHED_BYTES // len(piece)):
            connection.sendall(piece)
    except OSError:
        pass


def many_channels(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Open thousands of waiting consumers on one connection, then see whether another tenant may wait."""
    queues = [target.queue("channels"), target.queue("channels-other")]
    greedy, other = (target.api_key(f"channels-{queue}", Grant(right="consume", queues=queue)) for queue in queues)
    begin()
    refused = 0
    with target.stream(greedy) as stream:
        for number in range(1, _CHANNELS + 1):
            stream.send(msgspec.msgpack.encode([0, number, "consume", {"queue": queues[0], "credit": 1}]))
            answer = stream.recv(timeout=30, decode=False)
            refused += msgspec.msgpack.decode(answer)[0] != 1
        waited = target.post("queue/lease", {"queue": queues[1], "wait_ms": 100}, api_key=other)
    harm = "" if waited.is_success else f"another tenant's lease was refused with {waited.status}"
    return Outcome(_CHANNELS, refused, harm)


def forged_log_lines(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Write lines into the log by paths that are refused, and fill the disk with them."""
    tries = 1_500
    path = "x%0a2026-01-01%20info%20forged%1b[2J" + "y" * 50_000
    before = target.log.stat().st_size if target.log is not None else 0
    begin()
    answers = [_get(target, path) for _ in range(tries)]
    refused = sum(not answer.is_success for answer in answers)
    if target.log is None:
        return Outcome(tries, refused)
    written = target.log.read_bytes()[before:]
    harm = f"the log grew by {len(written)} bytes" if len(written) > _LOG_BYTES_MAX else ""
    if b"\x1b" in written or b"\n2026-01-01 info forged" in written:
        harm = "a line of the log was forged"
    return Outcome(tries, refused, harm)


def _get(target: AttackedServer, path: str) -> Response:
    connection = target.address.connect()
    try:
        connection.request("GET", f"/v1/{path}")
        return Response(connection.getresponse().status)
    except OSError:
        return Response(0)
    finally:
        connection.close()


def readable_files(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Look for files of the server that other users of the machine may read."""
    if target.data is None:
        return Outcome(skipped="the data directory is unknown")
    begin()
    found = [target.data, *target.data.rglob("*")]
    open_to_all = [path for path in found if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
    harm = f"{len(open_to_all)} files are open to others, such as {open_to_all[0].name}" if open_to_all else ""
    return Outcome(len(found), len(found) - len(open_to_all), harm)


ATTACKS: Final = (
    Attack("silent-connections", "H2", "silent connections", silent_sockets),
    Attack("unfinished-requests", "H2", "long requests without an end", unfinished_requests),
    Attack("many-waiters", "M1", "thousands of waiting consumers", many_channels),
    Attack("log-lines", "M5, L3", "forged and huge log lines", forged_log_lines),
    Attack("file-modes", "M8", "files that others may read", readable_files),
)
