"""Attacks by the size and shape of a request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Final, TypeAlias

import msgspec

from fairlane.model.limits import BATCH_MAX
from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import JSON, MSGPACK, AttackedServer
from fairlane.verbs.keys import Grant

_MIB: Final = 1024 * 1024
_BODY_BYTES: Final = 24 * _MIB - 1024
_AT_ONCE, _TIMES = 16, 20
_GRPC_AT_ONCE, _GRPC_BYTES = 4, 4 * _MIB
_RECEIPT: Final = msgspec.msgpack.encode({"id": "0", "token": 1})


def _listing(queue: str, field: str, item: bytes, size: int) -> bytes:
    """Return the msgpack of a request whose list fills the body with one item."""
    count = size // len(item)
    head = b"\x82" + b"".join(msgspec.msgpack.encode(each) for each in ("queue", queue, field))
    return head + b"\xdd" + count.to_bytes(4, "big") + item * count


def _repeating(queue: str, size: int) -> bytes:
    """Return the msgpack of an enqueue that gives its messages again and again, each time as many as are allowed."""
    field = msgspec.msgpack.encode("messages") + b"\xdc" + BATCH_MAX.to_bytes(2, "big") + b"\x80" * BATCH_MAX
    count = size // len(field)
    head = b"".join(msgspec.msgpack.encode(each) for each in ("queue", queue))
    return b"\xde" + (count + 1).to_bytes(2, "big") + head + field * count


def long_lists(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send lists of millions of tiny items, in one field or in many, also with an API key that has no right to."""
    return _send_lists(target, begin, size=_BODY_BYTES, times=1, at_once=1)


def long_lists_at_once(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send shorter lists, still far too long, over many connections at a time."""
    return _send_lists(target, begin, size=_MIB, times=_TIMES, at_once=_AT_ONCE)


def _send_lists(target: AttackedServer, begin: Callable[[], None], *, size: int, times: int, at_once: int) -> Outcome:
    queue = target.queue("lists")
    own = target.api_key("lists", Grant(right="admin", queues=queue))
    foreign = target.api_key("stranger", Grant(right="consume", queues="nothing-here"))
    tries = _tries(queue, own, size)
    if target.has_keys:
        tries += [
            ("queue/enqueue", _listing(queue, "messages", b"\x80", size), MSGPACK, key) for key in (foreign, None)
        ]
    tries *= times
    begin()

    def is_taken(tried: _Try) -> bool:
        path, body, kind, key = tried
        return target.post(path, body, api_key=key, content_type=kind).is_success

    with ThreadPoolExecutor(at_once) as pool:
        taken = sum(pool.map(is_taken, tries))
    return Outcome(len(tries), len(tries) - taken, f"{taken} requests were accepted" if taken else "")


_Try: TypeAlias = tuple[str, bytes, str, str | None]
"""A path, a body, its type, and an API key."""


def _tries(queue: str, own: str | None, size: int) -> list[_Try]:
    return [
        ("queue/enqueue", _listing(queue, "messages", b"\x80", min(size, 4 * _MIB)), MSGPACK, own),
        ("queue/enqueue", _listing(queue, "messages", b"\x80", size), MSGPACK, own),
        ("queue/ack", _listing(queue, "receipts", _RECEIPT, size), MSGPACK, own),
        ("queue/cancel", _listing(queue, "ids", b"\xa1a", size), MSGPACK, own),
        ("queue/enqueue", _repeating(queue, size), MSGPACK, own),
        ("queue/enqueue", _json(queue, min(size, _MIB)), JSON, own),
        ("queue/enqueue", _json(queue, size), JSON, own),
    ]


def _json(queue: str, size: int) -> bytes:
    return b'{"queue":"%s","messages":[%s{}]}' % (queue.encode(), b"{}," * (size // 3))


def forged_node(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Pretend to be a node of the cluster, with long names that a node would have to remember."""
    queue = target.queue("forged")
    api_key = target.api_key("forged", Grant(right="admin", queues=queue))
    tries = 1_000
    begin()
    taken = 0
    for at in range(tries):
        forged = {"x-fairlane-forwarded": "1", "x-fairlane-lease": f"{at:06}" + "n" * 50_000}
        body = {"queue": queue, "messages": [{}]}
        taken += target.post("queue/enqueue", body, api_key=api_key, headers=forged).is_success
    waiting = target.admin.queue(queue).waiting
    harm = f"{taken} requests with a forged header were carried out" if taken or waiting else ""
    return Outcome(tries, tries - taken, harm)


def repeated_fields(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send requests that give one field millions of times, over gRPC several at a time."""
    queue = target.queue("fields")
    api_key = target.api_key("fields", Grant(right="admin", queues=queue))
    name = queue.encode()
    headers = b"\xa7headers\x81\xa1a\xa0"
    count = _BODY_BYTES // len(headers)
    parts = (("queue/fan_out", b"\xa4then"), ("schedules/set", b"\xa4spec\x81\xa7message"))
    head = b"\x82\xa5queue" + msgspec.msgpack.encode(queue)
    end = b"\xdf" + count.to_bytes(4, "big") + headers * count
    tries = [(path, head + field + end) for path, field in parts]
    body = b"\n" + bytes((len(name),)) + name + b"\x18\x00" * (_GRPC_BYTES // 2)
    begin()
    taken = sum(target.post(path, body, api_key=api_key, content_type=MSGPACK).is_success for path, body in tries)
    attempted = len(tries)
    if target.grpc is not None:
        attempted += _GRPC_AT_ONCE
        taken += _GRPC_AT_ONCE - _refused_grpc(target.grpc, body, _GRPC_AT_ONCE, api_key)
    return Outcome(attempted, attempted - taken, f"{taken} requests were accepted" if taken else "")


def grpc_without_key(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Send large gRPC messages without an API key."""
    if target.grpc is None:
        return Outcome(skipped="no gRPC address")
    tries = 12
    begin()
    refused = _refused_grpc(target.grpc, b"\n\x80\x80\x80\x0b" + b"q" * (22 * _MIB), tries, None)
    return Outcome(tries, refused, "" if refused == tries else "a message without an API key was accepted")


def _refused_grpc(address: str, body: bytes, tries: int, api_key: str | None) -> int:
    """Enqueue with the same body several times at once over one connection; return how many calls were refused."""
    grpc = import_module("grpc")
    metadata = [] if api_key is None else [("authorization", f"Bearer {api_key}")]

    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/fairlane.v1.Broker/Enqueue", lambda body: body, lambda body: body)

        def is_refused(_: int) -> bool:
            try:
                call(body, metadata=metadata)
            except grpc.RpcError:
                return True
            return False

        with ThreadPoolExecutor(tries) as pool:
            return sum(pool.map(is_refused, range(tries)))


ATTACKS: Final = (
    Attack("long-lists", "C1", "lists of millions of tiny items", long_lists),
    Attack("long-lists-at-once", "C1", "long lists over 16 connections at a time", long_lists_at_once),
    Attack("repeated-fields", "C1", "one field given millions of times", repeated_fields),
    Attack("forged-node", "M3", "forged headers of a node", forged_node),
    Attack("grpc-bodies", "M4", "large gRPC messages without an API key", grpc_without_key, needs_keys=True),
)
