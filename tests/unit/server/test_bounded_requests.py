"""Requests are bounded while they are decoded: in items, in headers and in bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from fairlane.errors import InvalidArgument
from fairlane.model import limits
from fairlane.model.message import NewMessage, Receipt
from fairlane.model.schedules import ScheduleSpec
from fairlane.model.views import DeadLetterFilter
from fairlane.server.interfaces.counting import FIELDS_MAX, check_msgpack
from fairlane.server.limits import CallLimits
from fairlane.verbs.leases import Ack, Forward
from fairlane.verbs.messages import Cancel, Enqueue
from fairlane.verbs.table import VERBS
from fairlane.wire.frames import Consume, Refused, Stop, WatchQueue, Withdraw

from .local_server import LocalServer, connected, opened, run

SHAPES = [*(verb.request for verb in VERBS.values()), Consume, Stop, Withdraw, WatchQueue]
MIB = 1024 * 1024


def unbounded(kind: msgspec.inspect.Type, path: str) -> list[str]:
    """Return where a type contains a list or map without a maximum length, or a value of any type."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return unbounded(kind.type, path)
    if isinstance(kind, msgspec.inspect.AnyType):
        return [path]
    found: list[str] = []
    if isinstance(kind, msgspec.inspect.CollectionType | msgspec.inspect.DictType) and kind.max_length is None:
        found.append(path)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            found += unbounded(getattr(kind, name), f"{path}[]")
    for each in getattr(kind, "types", ()):
        found += unbounded(each, path)
    for field in getattr(kind, "fields", ()):
        found += unbounded(field.type, f"{path}.{field.name}")
    return found


class Inner(msgspec.Struct):
    """A part of a request that was forgotten."""

    plain: list[int]


class Outer(msgspec.Struct):
    """A request with parts that were forgotten."""

    inner: dict[str, Inner] | None
    anything: Any


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_list_and_map_of_a_request_is_bounded(shape: type[msgspec.Struct]) -> None:
    """No request can hold more items than its types say, however deep they are."""
    assert unbounded(msgspec.inspect.type_info(shape), shape.__name__) == []


def test_an_unbounded_list_would_be_noticed() -> None:
    """The walk over the types sees a plain list, a plain map and Any inside other types."""
    found = unbounded(msgspec.inspect.type_info(Outer), "Outer")
    assert found == ["Outer.inner", "Outer.inner[].plain", "Outer.anything"]


def array(count: int, item: bytes) -> bytes:
    """Return a msgpack array of equal items."""
    return b"\xdd" + count.to_bytes(4) + item * count


def request(field: bytes, items: bytes) -> bytes:
    """Return a msgpack request to queue ``orders`` with one more field."""
    return b"\x82\xa5queue\xa6orders" + bytes((0xA0 | len(field),)) + field + items


async def posted(server: LocalServer, path: str, body: bytes, kind: str = "msgpack") -> tuple[int, dict[str, Any], int]:
    """Return the status, the error and the most bytes that answering took."""
    headers = {"content-type": f"application/{kind}", "accept": "application/json"}
    tracemalloc.start()
    try:
        answer = await server.http.post(f"/v1/{path}", content=body, headers=headers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return answer.status_code, answer.json()["error"], peak


RECEIPT = msgspec.msgpack.encode(Receipt("0000000000000001", 1))
ATTACKS = {
    "messages": ("queue/enqueue", request(b"messages", array(8 * MIB, b"\x80")), "messages", "BATCH_MAX"),
    "receipts": ("queue/ack", request(b"receipts", array(200_000, RECEIPT)), "receipts", "BATCH_MAX"),
    "ids": ("queue/cancel", request(b"ids", array(4 * MIB, b"\xa0")), "ids", "BATCH_MAX"),
    "policy": (
        "queues/update",
        request(b"policy", b"\x81\xa7weights" + b"\xdf" + MIB.to_bytes(4) + b"\xa1a\x01" * MIB),
        "policy[...]",
        "POLICY_KEYS_MAX",
    ),
    "headers": (
        "queue/enqueue",
        request(b"messages", b"\x91\x81\xa7headers\xdf" + MIB.to_bytes(4) + b"\xa1a\xa0" * MIB),
        "messages[0].headers",
        "HEADERS_MAX",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_list_or_map_that_is_too_long_is_refused_before_it_is_built(name: str) -> None:
    """The error names the field and the limit, and the server allocates little more than the body."""
    path, body, field, limit = ATTACKS[name]

    async def main() -> None:
        async with opened() as server:
            status, error, peak = await posted(server, path, body)
            assert (status, error["code"]) == (400, "invalid_argument")
            assert error["cause"].startswith(f"{field} has more than {limit} ({getattr(limits, limit)}) items.")
            assert peak < 2 * len(body) + 2 * MIB

    run(main())


def test_the_stream_refuses_the_same_with_the_same_words() -> None:
    """A call on the stream with too many messages gets the error that HTTP gives, and the connection goes on."""

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            _, error, _ = await posted(server, "queue/enqueue", ATTACKS["messages"][1])
            body = ATTACKS["messages"][1]
            socket.give(b"\x94\x00\x01\xa7enqueue" + body)
            refused = await socket.next(Refused)
            assert (refused.error.code, refused.error.cause) == (error["code"], error["cause"])
            socket.call("stop", Stop(channel=1, unseen=("x",) * 10_001))
            assert "unseen has more than BATCH_MAX (10000) items." in (await socket.next(Refused)).error.cause
            await socket.answer("stats", {"queue": "orders"}, dict)

    run(main())


def test_a_broker_in_the_same_process_refuses_the_same() -> None:
    """Without an interface in between, the broker checks the lengths itself, with the same words."""

    async def main() -> None:
        many = [NewMessage()] * 10_001
        async with opened() as server:
            for asked, cause in (
                (Enqueue(queue="orders", messages=many), "messages has more than BATCH_MAX (10000) items."),
                (Ack(queue="orders", receipts=[Receipt("", 1)] * 10_001), "receipts has more than BATCH_MAX"),
                (Cancel(queue="orders", ids=[""] * 10_001), "ids has more than BATCH_MAX"),
                (
                    Forward(queue="orders", receipt=Receipt("", 1), messages={str(at): [] for at in range(17)}),
                    "messages has more than FORWARD_QUEUES_MAX (16) items.",
                ),
                (
                    Forward(queue="orders", receipt=Receipt("", 1), messages={"a": many[:6_000], "b": many[:6_000]}),
                    "messages has more than BATCH_MAX (10000) items.",
                ),
            ):
                with pytest.raises(InvalidArgument) as refused:
                    await server.broker.call(asked)
                assert refused.value.cause.startswith(cause)

    run(main())


# ------------------------------------------------------------------------------------------------------------- repeated

MANY: bytes = b"\xdc" + (10_000).to_bytes(2) + b"\x80" * 10_000
"""The longest list of messages that a request may hold."""
REPEATED = {
    "a list": (
        b"\xde" + (101).to_bytes(2) + b"\xa5queue\xa6orders" + (b"\xa8messages" + MANY) * 100,
        "Invalid enqueue request: it has 101 fields; no request has more than 20.",
    ),
    "headers": (
        request(b"messages", b"\x91\xde" + (60_000).to_bytes(2) + b"\xa7headers\x81\xa1a\xa0" * 60_000),
        "Invalid enqueue request: a message has more than 20 fields.",
    ),
    "throttles": (
        request(b"messages", b"\x91\xde" + (60_000).to_bytes(2) + b"\xa9throttles\x91\xa1a" * 60_000),
        "Invalid enqueue request: a message has more than 20 fields.",
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_field_that_is_given_many_times_is_refused_before_it_is_decoded(name: str) -> None:
    """A decoder would build every one of the values and keep the last, so the number of fields is bounded too."""
    body, cause = REPEATED[name]

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            status, error, peak = await posted(server, "queue/enqueue", body)
            assert (status, error["code"], error["cause"]) == (400, "invalid_argument", cause)
            assert peak < 2 * len(body) + MIB
            socket.give(b"\x94\x00\x01\xa7enqueue" + body)
            assert (await socket.next(Refused)).error.cause == cause

    run(main())


MANY_HEADERS: bytes = b"\xde" + (60_000).to_bytes(2) + b"\xa7headers\x81\xa1a\xa0" * 60_000
PARTS = {
    "fan_out": (request(b"then", MANY_HEADERS), "a message"),
    "set_schedule": (request(b"spec", b"\x81\xa7message" + MANY_HEADERS), "a message"),
    "ensure_schedule": (request(b"spec", MANY_HEADERS), "a schedule or filter"),
    "peek": (request(b"wanted", b"\xde" + (60_000).to_bytes(2) + b"\xa3ids\x91\xa0" * 60_000), "a schedule or filter"),
}


@pytest.mark.parametrize("verb", PARTS)
def test_a_part_with_a_field_that_is_given_many_times_is_refused(verb: str) -> None:
    """What holds for the messages of a request holds for its single parts as well."""
    body, part = PARTS[verb]
    with pytest.raises(InvalidArgument, match=f"^Invalid {verb} request: {part} has more than 20 fields"):
        check_msgpack(verb, body)


@pytest.mark.parametrize(
    "shape", [*SHAPES, NewMessage, ScheduleSpec, DeadLetterFilter], ids=lambda shape: shape.__name__
)
def test_no_request_or_message_has_more_fields_than_are_accepted(shape: type[msgspec.Struct]) -> None:
    """The bound on fields never refuses a request that gives each of its fields once."""
    assert len(shape.__struct_fields__) < FIELDS_MAX


# -------------------------------------------------------------------------------------------------------------- headers


def test_the_headers_of_all_messages_together_are_bounded() -> None:
    """A thousand messages with 101 headers each are within each limit alone, and refused before they are decoded."""
    headers = {f"{number}": "x" for number in range(101)}
    batch = msgspec.msgpack.encode({"queue": "orders", "messages": [{"headers": headers}] * 1_000})
    forward = msgspec.msgpack.encode({"queue": "a", "messages": {"b": [{"headers": headers}] * 1_000}})
    for verb, body in (("enqueue", batch), ("stage", batch), ("forward", forward)):
        with pytest.raises(
            InvalidArgument, match=r"headers of all messages has more than BATCH_HEADERS_MAX \(100000\)"
        ):
            check_msgpack(verb, body)
    check_msgpack("enqueue", msgspec.msgpack.encode({"queue": "q", "messages": [{"headers": headers}] * 990}))

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            _, error, _ = await posted(server, "queue/enqueue", batch)
            socket.give(b"\x94\x00\x01\xa7enqueue" + batch)
            assert (await socket.next(Refused)).error.cause == error["cause"]
            with pytest.raises(InvalidArgument, match="BATCH_HEADERS_MAX"):
                await server.broker.enqueue_many("orders", [NewMessage(headers=headers)] * 1_000)

    run(main())


# ----------------------------------------------------------------------------------------------------------------- JSON


def test_json_items_are_counted_before_they_are_decoded() -> None:
    """A mebibyte of empty messages is refused by its commas, without decoding one of them."""

    async def main() -> None:
        body = b'{"queue":"orders","messages":[' + b"{}," * (MIB // 3) + b"{}]}"
        async with opened() as server:
            status, error, peak = await posted(server, "queue/enqueue", body, "json")
            assert (status, error["code"]) == (413, "request_too_large")
            assert "JSON_COMMAS_MAX" in error["cause"]
            assert "application/msgpack" in error["remedy"]
            assert peak < 2 * len(body) + MIB

    run(main())


def test_a_full_batch_in_json_is_accepted() -> None:
    """Ten thousand messages with several fields each are below the bound of commas."""

    async def main() -> None:
        message = {"payload": "eA==", "fairness_key": "acme", "headers": {"a": "1", "b": "2"}, "cost": 2, "weight": 1}
        async with opened() as server:
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [message] * 10_000})
            assert len(answer.json()["results"]) == 10_000

    run(main())


def test_json_has_a_smaller_body_limit_than_other_kinds() -> None:
    """A body above json_body_bytes_max is refused as JSON, with the name of the setting, and accepted as msgpack."""

    async def main() -> None:
        asked = {"queue": "orders", "messages": [{"payload": b"x" * 2_000}]}
        async with opened(limits=CallLimits(json_body_bytes_max=1_000)) as server:
            headers = {"content-type": "application/json"}
            refused = await server.http.post("/v1/queue/enqueue", content=msgspec.json.encode(asked), headers=headers)
            assert refused.status_code == 413
            assert (
                refused.json()["error"]["cause"] == "A JSON request can have at most 1000 bytes (json_body_bytes_max)."
            )
            headers = {"content-type": "application/msgpack", "accept": "application/json"}
            taken = await server.http.post("/v1/queue/enqueue", content=msgspec.msgpack.encode(asked), headers=headers)
            assert taken.json()["results"][0]["id"]

    run(main())
