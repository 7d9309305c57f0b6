"""Attacks by the size of answers, and by not reading them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec

from fairlane.model.message import NewMessage
from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import JSON, AttackedServer, pause
from fairlane.verbs.keys import Grant

_MIB: Final = 1024 * 1024
_WAITING, _PAYLOAD = 100, b"x" * _MIB
_HEADED, _HEADERS = 1_000, {"h": "x" * 65_000}
_STATED, _STATE = 40, b"s" * _MIB
_ANSWER_BYTES_MAX: Final = 4 * _MIB  # the default of the setting
_UNREAD_S: Final = 3.0


def unread_stream(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Ask for everything on a stream, and read nothing."""
    queue, api_key = _filled(target, "unread-stream")
    begin()
    with ExitStack() as stack:
        for _ in range(4):
            stream = stack.enter_context(target.stream(api_key))
            stream.send(msgspec.msgpack.encode([0, 1, "consume", {"queue": queue, "credit": 10_000}]))
            stack.callback(stream.socket.shutdown, socket.SHUT_RDWR)  # a close would read what is left
        pause(_UNREAD_S)
    return Outcome(4)


def unread_answers(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Ask for the same large answer many times, and read nothing."""
    queue, api_key = _filled(target, "unread-answers")
    body = msgspec.json.encode({"queue": queue, "count": _WAITING, "with_body": True})
    authorization = "" if api_key is None else f"Authorization: Bearer {api_key}\r\n"
    host = target.address.host
    head = f"POST /v1/queue/peek HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON}\r\n{authorization}"
    begin()
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(target.address.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        pause(_UNREAD_S)
    return Outcome(20)


def _filled(target: AttackedServer, name: str) -> tuple[str, str | None]:
    """Return a queue with large messages, and an API key of its consumer."""
    queue = target.queue(name)
    for _ in range(_WAITING // 10):
        target.admin.enqueue_many(queue, [NewMessage(payload=_PAYLOAD)] * 10)
    return queue, target.api_key(name, Grant(right="consume", queues=queue))


def large_headers(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Lease messages by the thousand that have large headers and no payload."""
    queue = target.queue("headers")
    api_key = target.api_key("headers", Grant(right="consume", queues=queue))
    for _ in range(_HEADED // 100):
        target.admin.enqueue_many(queue, [NewMessage(headers=_HEADERS)] * 100)
    begin()
    return _leased_at_once(target, {"queue": queue, "count": _HEADED}, api_key, len(_HEADERS["h"]))


def large_state(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Lease messages with as much workflow state as they may have."""
    queue, _ = _with_state(target, "state", _STATED, payload=b"")
    api_key = target.api_key("state", Grant(right="consume", queues=queue))
    begin()
    return _leased_at_once(target, {"queue": queue, "count": _STATED, "with_state": True}, api_key, len(_STATE))


def _leased_at_once(
    target: AttackedServer, request: dict[str, object], api_key: str | None, size_bytes: int
) -> Outcome:
    """Lease twenty times as many messages as an answer should have, and see how many each answer has."""
    answers = [target.post("queue/lease", request, api_key=api_key) for _ in range(20)]
    most = max(len(answer.content["deliveries"]) for answer in answers if answer.is_success) * size_bytes
    harm = f"one answer had {most // _MIB} MiB" if most > 2 * _ANSWER_BYTES_MAX else ""
    return Outcome(len(answers), sum(not answer.is_success for answer in answers), harm)


def unread_state(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Ask many times for state, payloads and results, and read none of them."""
    queue, ids = _with_state(target, "unread-state", 3, payload=_STATE)
    api_key = target.api_key("unread-state", Grant(right="admin", queues=queue))
    (done,) = target.admin.lease(queue, 1)
    done.ack(result=_STATE)
    left = next(known for known in ids if known != done.id)
    verbs = [("result", done.id), ("get_state", left), ("read_payload", left)]
    calls = [[0, at, verb, {"queue": queue, "id": known}] for at, (verb, known) in enumerate(verbs * 200, 1)]
    begin()
    with ExitStack() as stack:
        for _ in range(4):
            stream = stack.enter_context(target.stream(api_key))
            for call in calls:
                stream.send(msgspec.msgpack.encode(call))
            stack.callback(stream.socket.shutdown, socket.SHUT_RDWR)  # a close would read what is left
        pause(_UNREAD_S)
    return Outcome(4 * len(calls))


def _with_state(target: AttackedServer, name: str, count: int, *, payload: bytes) -> tuple[str, list[str]]:
    """Return a queue with messages that have state and may have a result, and their ids."""
    queue = target.queue(name, backoff_ms=0, result_ttl_ms=600_000)
    for _ in range(count):
        target.admin.enqueue(queue, payload)
    held = [message for _ in range(count) for message in target.admin.lease(queue, 1)]
    for message in held:
        message.set_state(_STATE)
        message.defer(0)
    return queue, [message.id for message in held]


ATTACKS: Final = (
    Attack("unread-stream", "M2", "a stream that reads nothing", unread_stream),
    Attack("unread-answers", "M2", "large answers that are never read", unread_answers),
    Attack("unread-state", "M2", "state and results that are never read", unread_state),
    Attack("large-headers", "C1, M2", "leases of large headers", large_headers),
    Attack("large-state", "C1, M2", "leases of large state", large_state),
)
