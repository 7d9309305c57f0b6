"""lockd's queue: the paths of its HTTP interface, and payloads of any size."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlane.broker.settings import Settings
from fairlane.server.interfaces.asgi import Scope
from fairlane.server.interfaces.http import HttpInterface
from tests.kit.waiting import PATIENCE_S
from tests.statements.orders_server import (
    HELLO,
    enqueued,
    leased,
    on_server,
    settling,
    streamed,
    with_state,
)
from tests.unit.server.local_server import LocalServer, opened


def test_205_metadata_and_payload() -> None:
    """An enqueue is JSON with a payload in base64, or the payload as the body with metadata in the query."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, payload=HELLO, headers={"a": "b"})
        raw = await server.http.post(
            "/v1/queue/enqueue?queue=orders&header.a=b",
            content=b"hello",
            headers={"content-type": "application/octet-stream"},
        )
        assert raw.status_code == 200
        for delivery in [await leased(server), await leased(server)]:
            assert (delivery["payload"], delivery["headers"]) == (HELLO, {"a": "b"})

    on_server(test)


def test_207_enqueue() -> None:
    """`POST /v1/queue/enqueue` adds messages, and answers with an id for each."""

    async def test(server: LocalServer) -> None:
        result = await enqueued(server, payload=HELLO)
        assert (await server.broker.get("orders", result["id"], with_body=True)).payload == b"hello"

    on_server(test)


def test_208_dequeue() -> None:
    """`POST /v1/queue/dequeue` leases a message, and answers with its payload and its token."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, payload=HELLO)
        delivery = await leased(server)
        assert (delivery["payload"], delivery["token"] > 0, delivery.get("state")) == (HELLO, True, None)
        assert (await server.broker.queue("orders")).leased == 1

    on_server(test)


def test_209_dequeue_with_state() -> None:
    """`POST /v1/queue/dequeueWithState` answers with the workflow state of the message, too."""

    async def test(server: LocalServer) -> None:
        await with_state(server)
        answer = await server.post("queue/dequeueWithState", {"queue": "orders"})
        assert answer.json()["deliveries"][0]["state"] == HELLO

    on_server(test)


@pytest.mark.parametrize(("path", "left"), [("ack", (0, 0)), ("nack", (1, 0)), ("extend", (0, 1))])
def test_212_messages_are_settled_in_batches(path: str, left: tuple[int, int]) -> None:
    """`/v1/queue/ack`, `nack` and `extend` take batches, in which each message succeeds or fails separately."""

    async def test(server: LocalServer) -> None:
        await enqueued(server)
        delivery = await leased(server)
        body = settling(delivery)
        body["receipts"].append({"id": delivery["id"], "token": delivery["token"] + 1})
        answer = await server.post(f"queue/{path}", body)
        assert answer.status_code == 207
        assert [set(result) & {"error"} for result in answer.json()["results"]] == [set(), {"error"}]
        queue = await server.broker.queue("orders")
        assert (queue.waiting, queue.leased) == left

    on_server(test)


async def first_line(path: str) -> dict[str, Any]:
    """Return the first delivery of a subscription to a message that has workflow state."""
    async with opened() as server:
        await with_state(server)
        async with streamed(server, "POST", path, b'{"queue": "orders"}') as parts:
            line: dict[str, Any] = json.loads(await asyncio.wait_for(parts.get(), PATIENCE_S))
            return line


def test_210_subscribe() -> None:
    """`POST /v1/queue/subscribe` sends deliveries as lines of JSON for as long as the client stays."""

    async def test(server: LocalServer) -> None:
        async with streamed(server, "POST", "queue/subscribe", b'{"queue": "orders"}') as parts:
            for _ in range(3):
                sent = await enqueued(server, payload=HELLO)
                line = json.loads(await parts.get())
                assert (line["id"], line["payload"], line.get("state")) == (sent["id"], HELLO, None)
                assert (await server.post("queue/ack", settling(line))).status_code == 200

    on_server(test)


def test_211_subscribe_with_state() -> None:
    """`POST /v1/queue/subscribeWithState` sends deliveries with the workflow state of their messages."""
    line = asyncio.run(first_line("queue/subscribeWithState"))
    assert (line["payload"], line["state"]) == (HELLO, HELLO)


def test_219_ids_are_uuids() -> None:
    """A message id is a UUID of version 8 that sorts by age within a queue."""

    async def test(server: LocalServer) -> None:
        ids = [(await enqueued(server))["id"] for _ in range(20)]
        assert {uuid.UUID(each).version for each in ids} == {8}
        assert ids == sorted(ids)

    on_server(test)


async def sent(size: int) -> AsyncIterator[bytes]:
    """Yield a payload of zeros in chunks."""
    for at in range(0, size, 100_000):
        yield bytes(min(100_000, size - at))


RAW = {"content-type": "application/octet-stream"}
LARGE = 20_000_000


def test_220_payloads_are_streamed_to_the_store() -> None:
    """A raw payload is stored in pieces while it arrives, and belongs to no message before its end."""

    async def test(server: LocalServer) -> None:
        seen: list[tuple[bool, int]] = []

        async def body() -> AsyncIterator[bytes]:
            async for part in sent(LARGE):
                yield part
                waiting = (await server.broker.queue("orders")).waiting
                seen.extend((upload.size > 0, waiting) for upload in await server.broker.uploads("orders"))

        answer = await server.http.post("/v1/queue/enqueue?queue=orders", content=body(), headers=RAW)
        assert answer.status_code == 200
        assert (True, 0) in seen
        assert all(waiting == 0 for _, waiting in seen)
        (view,) = await server.broker.peek("orders", with_body=True)
        assert (view.size, view.payload) == (LARGE, None)

    on_server(test)


def test_221_payloads_are_streamed_to_the_consumer() -> None:
    """A consumer that accepts raw bytes is sent a large payload piece by piece, and none is above a MiB."""

    async def test(server: LocalServer) -> None:
        await server.http.post("/v1/queue/enqueue?queue=orders", content=sent(LARGE), headers=RAW)
        parts: list[int] = []

        async def receive() -> Any:
            if body:
                return {"type": "http.request", "body": body.pop()}
            return await asyncio.Future()

        async def send(event: Any) -> None:
            parts.append(len(event.get("body", b"")))

        body = [b'{"queue": "orders"}']
        fields = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"accept", RAW["content-type"].encode()),
        ]
        scope: Scope = {
            "type": "http", "method": "POST", "path": "/v1/queue/dequeue", "query_string": b"", "headers": fields,
        }  # fmt: skip
        await HttpInterface(server.context)(scope, receive, send)
        assert (sum(parts), max(parts) <= 1024**2) == (LARGE, True)

    on_server(test)


def test_222_a_large_payload_needs_no_settings() -> None:
    """A payload of 100 MB comes out as it went in, without any settings."""
    noise, digest = random.Random(222), hashlib.sha256()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            part = noise.randbytes(100_000)
            digest.update(part)
            yield part

    async def test(server: LocalServer) -> None:
        answer = await server.http.post("/v1/queue/enqueue?queue=orders", content=body(), headers=RAW)
        assert answer.status_code == 200, answer.text
        fields = {"accept": RAW["content-type"]}
        answer = await server.http.post("/v1/queue/dequeue", json={"queue": "orders"}, headers=fields)
        assert len(answer.content) == 100_000_000
        assert hashlib.sha256(answer.content).digest() == digest.digest()

    on_server(test)


def test_223_a_payload_of_a_gigabyte_needs_no_settings() -> None:
    """An upload that announces 1 GB begins without any settings; a body above `upload_bytes_max`, 16 GiB, is refused
    unread."""

    async def test(server: LocalServer) -> None:
        upload = await server.broker.begin_upload("orders", size=10**9)
        assert upload.piece_bytes == 512 * 1024
        assert Settings().upload_bytes_max == 16 * 1024**3
        raw = {"content-type": "application/octet-stream", "content-length": str(17 * 1024**3)}
        answer = await server.http.post("/v1/queue/enqueue?queue=orders", content=sent(10), headers=raw)
        assert answer.status_code == 413
        assert "upload_bytes_max" in answer.json()["error"]["cause"]

    on_server(test)
