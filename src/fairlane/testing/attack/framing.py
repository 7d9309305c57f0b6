"""Attacks by what surrounds a request: heads, trailers, fragments, and the headers that browsers and proxies judge."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from websockets.exceptions import ConnectionClosed

from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import AttackedServer
from fairlane.verbs.keys import Grant

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_CHUNKED: Final = "Host: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
_TRAILERS: Final = 960_000
_TRAILER: Final = b"a:\r\n"
_LONG_BYTES: Final = 5_000_000
_STEP: Final = 64 * 1024
_FRAMES: Final = 1_000_000
_AT_ONCE: Final = 10_000
_PING: Final = b"\x89\x80" + bytes(4)
_FIRST: Final = b"\x02\x80" + bytes(4)
_EMPTY: Final = b"\x00\x80" + bytes(4)
"""A continuation of a message that adds nothing to it, masked with zeros."""


def trailers(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send hundreds of thousands of trailers, or one of megabytes, while the server waits and after it has answered."""
    floods = (_TRAILER * _TRAILERS, b"a: " + b"x" * _LONG_BYTES)
    starts = ("POST /v1/queue/stats HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\n")
    begin()
    closed = 0
    for start in starts:
        for flood in floods:
            head = start + _CHUNKED.format(target.address.host)
            closed += _is_cut_off(target, head.encode() + b"2\r\n{}\r\n0\r\n", flood)
    tries = len(starts) * len(floods)
    return Outcome(tries, closed, "" if closed == tries else f"{tries - closed} connections took all trailers")


def _is_cut_off(target: AttackedServer, start: bytes, flood: bytes) -> bool:
    """Return whether the server closes a connection before it has taken all that is sent."""
    with target.address.socket() as connection:
        try:
            connection.sendall(start)
            for at in range(0, len(flood), _STEP):
                connection.sendall(flood[at : at + _STEP])
            while connection.recv(4096):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
    return True


def empty_fragments(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send one message on a stream in a million fragments without data."""
    queue = target.queue("fragments")
    api_key = target.api_key("fragments", Grant(right="produce", queues=queue))
    begin()
    with target.stream(api_key) as stream:
        with suppress(OSError):
            stream.socket.sendall(_FIRST)
            _send_frames(stream, _EMPTY)
        try:
            stream.recv(timeout=10)
        except ConnectionClosed:
            return Outcome(_FRAMES, 1)
        except TimeoutError:
            return Outcome(_FRAMES, 0, "the connection took all fragments")
    return Outcome(_FRAMES, 0, "a message without data was answered")


def many_pings(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send a million pings on a stream, as fast as it takes them."""
    api_key = target.api_key("pings", Grant(right="produce", queues="attack-nothing"))
    begin()
    with target.stream(api_key) as stream, suppress(OSError):
        _send_frames(stream, _PING)
    return Outcome(_FRAMES)


def _send_frames(stream: ClientConnection, frame: bytes) -> None:
    for _ in range(_FRAMES // _AT_ONCE):
        stream.socket.sendall(frame * _AT_ONCE)


def large_heads(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send requests with a header of 70 kB, or with 10,000 headers, each of them in one piece."""
    tries = (["a: " + "x" * 70_000], ["a: b"] * 10_000)
    begin()
    statuses = [_status(target, headers) for headers in tries]
    taken = sum(status == http.client.OK for status in statuses)
    return Outcome(len(tries), len(tries) - taken, f"{taken} heads beyond the limits were taken" if taken else "")


def foreign_sites(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Ask as two hosts at once; without authentication also as the web page of another site, or of another scheme."""
    host = f"{target.address.host}:{target.address.port}"
    tries = [["Host: evil.test"]]
    if not target.has_keys:
        tries += [["Origin: http://evil.test"], [f"Origin: x://{host}"]]
    begin()
    statuses = [_status(target, headers, path="/v1/queues/list", method="POST") for headers in tries]
    taken = sum(status == http.client.OK for status in statuses)
    return Outcome(len(tries), len(tries) - taken, f"{taken} requests of other sites were answered" if taken else "")


def framed_pages(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Look for pages that may be framed or run scripts of others, and for answers whose type a browser may guess."""
    begin()
    faults = []
    for path in ("/", "/docs", "/healthz", "/v1/queues/list"):
        headers = _answer(target, path)
        if headers.get("x-content-type-options") != "nosniff":
            faults.append(f"{path} has no nosniff")
        if not headers.get("content-type", "").startswith("text/html"):
            continue
        policy = headers.get("content-security-policy", "")
        if "frame-ancestors" not in policy or "'unsafe-inline'" in policy.partition("script-src")[2].partition(";")[0]:
            faults.append(f"the policy of {path} is {policy!r}")
    return Outcome(4, 4 - len(faults), "; ".join(faults))


def _answer(target: AttackedServer, path: str) -> dict[str, str]:
    connection = target.address.connect()
    try:
        connection.request("GET", path)
        found = connection.getresponse()
        found.read()
        return {name.lower(): value for name, value in found.getheaders()}
    finally:
        connection.close()


def _status(target: AttackedServer, headers: list[str], *, path: str = "/healthz", method: str = "GET") -> int:
    """Return the status of the answer to a request with more headers; 0 if there is none."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.address.host}:{target.address.port}", "Connection: close"]
    body = "{}" if method == "POST" else ""
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    if target.admin_key is not None:
        lines.append(f"Authorization: Bearer {target.admin_key}")
    with target.address.socket() as connection, suppress(OSError):
        connection.sendall("\r\n".join([*lines, *headers, "", body]).encode())
        return int(connection.recv(4096).split(b" ")[1])
    return 0


ATTACKS: Final = (
    Attack("trailers", "audit", "trailers without end", trailers),
    Attack("empty-fragments", "audit", "a message in a million empty fragments", empty_fragments),
    Attack("ping-flood", "audit", "a million pings on a stream", many_pings),
    Attack("large-heads", "L8", "heads beyond the limits in one piece", large_heads),
    Attack("foreign-sites", "L1, L4", "requests for other hosts and sites", foreign_sites),
    Attack("framed-pages", "L7", "pages without the headers that protect them", framed_pages),
)
