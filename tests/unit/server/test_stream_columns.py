"""Columns on the stream: who may send and gets them, and that they mean the same as rows."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from fairlane.model.message import NewMessage
from fairlane.verbs.keys import Grant
from fairlane.verbs.messages import Enqueue
from fairlane.wire.frames import Answer, Refused

from .local_server import Socket, connected, opened, run

KEYS = ["a", "b", None, "a", "b"]
PAYLOADS = [b"one", b"", b"three", b"four", b"five"]


def columns(keys: list[str | None] = KEYS, payloads: list[bytes] = PAYLOADS) -> dict[str, Any]:
    """Return new messages as the protocol reference says."""
    sizes = struct.pack(f"<{len(payloads)}I", *map(len, payloads))
    return {"keys": keys, "sizes": sizes, "payloads": b"".join(payloads)}


async def asked(socket: Socket, verb: str, request: object) -> Any:
    """Return the answer to a call, or the code of its refusal."""
    socket.call(verb, request)
    frame = await socket.frame()
    if isinstance(frame, Refused):
        return frame.error.code
    assert isinstance(frame, Answer)
    return msgspec.msgpack.decode(frame.answer)


def test_a_batch_goes_through_as_columns() -> None:
    """What is enqueued as columns is leased as columns, byte for byte, and acknowledged as columns."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            enqueued = (await asked(socket, "enqueue", {"queue": "orders", "messages": columns()}))["results"]
            assert enqueued["count"] == 5
            leased = (await asked(socket, "lease", {"queue": "orders", "count": 9}))["deliveries"]
            sizes = struct.unpack("<5I", leased["sizes"])
            numbers = struct.unpack("<5Q", leased["numbers"])
            begins = [sum(sizes[:at]) for at in range(5)]
            payloads = [leased["payloads"][begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
            named = [(key or "default", payload) for key, payload in zip(KEYS, PAYLOADS, strict=True)]
            found = dict(zip(numbers, zip(leased["keys"], payloads, strict=True), strict=True))
            assert found == dict(enumerate(named, enqueued["first"]))
            assert struct.unpack("<5I", leased["attempts"]) == (1,) * 5
            assert leased["journal"] == enqueued["journal"]
            tokens = struct.pack("<5Q", *range(leased["token"], leased["token"] + 5))
            receipts = {"journal": leased["journal"], "numbers": leased["numbers"], "tokens": tokens}
            assert await asked(socket, "ack", {"queue": "orders", "receipts": receipts}) == {"results": [{}] * 5}
            again = (await asked(socket, "ack", {"queue": "orders", "receipts": receipts}))["results"]
            assert {result["error"]["code"] for result in again} == {"message_not_found"}

    run(main())


def test_receipts_of_another_journal_or_lease_acknowledge_nothing() -> None:
    """Each is refused by itself, as in rows."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            await asked(socket, "enqueue", {"queue": "orders", "messages": columns()})
            leased = (await asked(socket, "lease", {"queue": "orders", "count": 9}))["deliveries"]
            stale = struct.pack("<5Q", *[leased["token"] + 77] * 5)
            receipts = {"journal": leased["journal"], "numbers": leased["numbers"], "tokens": stale}
            results = (await asked(socket, "ack", {"queue": "orders", "receipts": receipts}))["results"]
            assert {result["error"]["code"] for result in results} == {"lease_mismatch"}
            receipts["journal"] ^= 1
            results = (await asked(socket, "ack", {"queue": "orders", "receipts": receipts}))["results"]
            assert {result["error"]["code"] for result in results} == {"message_not_found"}
            assert (await server.broker.queue("orders")).leased == 5

    run(main())


def test_a_message_that_is_no_good_is_refused_by_itself() -> None:
    """The results of such a batch come in rows, and the other messages are enqueued."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            request = {"queue": "orders", "messages": columns(["a", "", None, "c" * 1_025, "b"])}
            results = (await asked(socket, "enqueue", request))["results"]
            assert ["error" in result for result in results] == [False, True, False, True, False]

    run(main())


def test_a_repeat_of_columns_has_the_ids_of_the_first_time() -> None:
    """Numbers of producers work for columns, and a repeat in rows is one too."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            request = {"queue": "orders", "messages": columns(), "producer": "p", "numbers": [40]}
            first = (await asked(socket, "enqueue", request))["results"]["first"]
            ids = [result["id"] for result in (await asked(socket, "enqueue", request))["results"]]
            rows = [NewMessage(payload=payload, fairness_key=key) for key, payload in zip(KEYS, PAYLOADS, strict=True)]
            in_rows = Enqueue(queue="orders", messages=rows, producer="p", numbers=(40,))
            assert [result["id"] for result in (await asked(socket, "enqueue", in_rows))["results"]] == ids
            assert [int(each[:8] + each[9:13] + each[15:18], 16) for each in ids] == list(range(first, first + 5))
            assert (await server.broker.queue("orders")).waiting == 5

    run(main())


@pytest.mark.parametrize(
    "special",
    [
        NewMessage(headers={"a": "b"}),
        NewMessage(priority="high"),
        NewMessage(cost=3),
        NewMessage(deadline_ms=60_000),
        NewMessage(correlation_id="c"),
        NewMessage(visibility_timeout_ms=77_000),
    ],
    ids=repr,
)
def test_messages_with_more_than_columns_hold_are_leased_in_rows(special: NewMessage) -> None:
    """One such message is enough for a batch in rows, in which nothing of it is missing."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            await server.broker.enqueue_many("orders", [NewMessage(payload=b"x")] * 4 + [special])
            deliveries = (await asked(socket, "lease", {"queue": "orders", "count": 9}))["deliveries"]
            assert isinstance(deliveries, list)
            assert len(deliveries) == 5

    run(main())


def test_the_first_protocol_has_rows_only() -> None:
    """A client that asks for ``fairlane.v1`` gets rows, and columns that it sends are refused."""

    async def main() -> None:
        async with opened() as server, connected(server) as socket:
            assert await asked(socket, "enqueue", {"queue": "orders", "messages": columns()}) == "invalid_argument"
            await server.broker.enqueue_many("orders", [NewMessage()] * 5)
            assert len((await asked(socket, "lease", {"queue": "orders", "count": 9}))["deliveries"]) == 5

    run(main())


def test_rights_come_before_columns_are_read() -> None:
    """A caller without the right is refused whatever the columns hold; one with it for some keys, by the keys."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            consumer = await server.key(Grant(right="consume", queues="*"))
            producer = await server.key(Grant(right="produce", queues="orders", keys=("a", "b")))
            async with connected(server, key=consumer, has_columns=True) as socket:
                request = {"queue": "orders", "messages": {"keys": 5}}
                assert await asked(socket, "enqueue", request) == "forbidden"
            async with connected(server, key=producer, has_columns=True) as socket:
                assert await asked(socket, "enqueue", request) == "invalid_argument"
                assert await asked(socket, "ack", {"queue": "orders", "receipts": {"keys": 5}}) == "forbidden"
                others: list[list[str | None]] = [["a", "b", "c", "a", "b"], KEYS]
                for other in others:
                    found = await asked(socket, "enqueue", {"queue": "orders", "messages": columns(other)})
                    if other is KEYS:  # None may get another key from a policy, so the broker decides for each message
                        found = next(result["error"]["code"] for result in found["results"] if "error" in result)
                    assert found == "forbidden"
                allowed = columns(["a", "b", "a", "a", "b"])
                found = await asked(socket, "enqueue", {"queue": "orders", "messages": allowed})
                assert found["results"]["count"] == 5

    run(main())


def test_a_consumer_gets_columns_over_its_channel() -> None:
    """Deliveries of a channel come as columns, at most its credit, and unseen ones go back."""

    async def main() -> None:
        async with opened() as server, connected(server, has_columns=True) as socket:
            await server.broker.enqueue_many("orders", [NewMessage(payload=bytes([at])) for at in range(9)])
            channel = socket.call("consume", {"queue": "orders", "credit": 6})
            frames: list[Any] = []
            while len(frames) < 2:
                event = await socket.outgoing.get()
                frames += msgspec.msgpack.decode(event["bytes"])
            assert [frame[0] for frame in frames] == [1, 3]
            assert frames[1][2]["payloads"] == bytes(range(6))
            assert await asked(socket, "stop", {"channel": channel, "received": 0}) == {}
            stats = await server.broker.queue("orders")
            assert (stats.waiting, stats.leased) == (9, 0)
            (first,) = (await asked(socket, "lease", {"queue": "orders"}))["deliveries"]
            assert first["attempt"] == 1

    run(main())
