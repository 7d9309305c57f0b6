"""Large payloads over HTTP: bodies in chunks, answers in pieces, and what is left when a caller goes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage
from fairlane.server.interfaces.asgi import Scope
from fairlane.server.interfaces.http import HttpInterface
from fairlane.verbs.keys import Grant
from tests.kit.waiting import until_answered
from tests.unit.server.local_server import LocalServer, opened, run

RAW = {"content-type": "application/octet-stream"}
SIZE = 3_000_000
PAYLOAD = bytes(range(250)) * (SIZE // 250)
SMALL = Settings(payload_bytes_max=1_000_000)
"""A payload of more than a million bytes is streamed to consumers."""


async def chunks(payload: bytes = PAYLOAD) -> AsyncIterator[bytes]:
    """Yield a body without a length."""
    for at in range(0, len(payload), 70_000):
        yield payload[at : at + 70_000]


async def sent(server: LocalServer, body: Any = PAYLOAD, query: str = "", **headers: str) -> Any:
    """Enqueue a raw payload."""
    return await server.http.post(f"/v1/queue/enqueue?queue=orders{query}", content=body, headers=RAW | headers)


@pytest.mark.parametrize("has_length", [True, False])
def test_a_long_body_is_stored_in_pieces_and_streamed_out(*, has_length: bool) -> None:
    """With a length or in chunks; no upload is left, and the answer has the length and every byte."""

    async def main() -> None:
        async with opened(settings=SMALL) as server:
            answer = await sent(server, PAYLOAD if has_length else chunks(), "&fairness_key=acme&header.a=b")
            assert answer.status_code == 200
            assert await server.broker.uploads("orders") == []
            view = await server.broker.get("orders", answer.json()["results"][0]["id"])
            assert (view.size, view.payload, view.headers, view.fairness_key) == (SIZE, None, {"a": "b"}, "acme")
            accepted = {"accept": "application/octet-stream"}
            leased = await server.http.post("/v1/queue/lease", json={"queue": "orders"}, headers=accepted)
            assert leased.headers["content-length"] == str(SIZE)
            assert leased.content == PAYLOAD
            assert (await server.broker.queue("orders")).leased == 1

    run(main())


def test_a_payload_is_read_in_ranges_or_as_a_whole() -> None:
    """In JSON up to the end of a piece, and raw from an offset to the end or for a number of bytes."""

    async def main() -> None:
        async with opened(settings=SMALL) as server:
            message_id = (await sent(server)).json()["results"][0]["id"]
            (delivery,) = (await server.post("queue/lease", {"queue": "orders"})).json()["deliveries"]
            assert (delivery["payload"], delivery["payload_size"]) == ("", SIZE)
            asked = {"queue": "orders", "id": message_id, "token": delivery["token"]}
            found = (await server.post("queue/payload", asked | {"offset": 5, "count": 4})).json()
            assert (base64.b64decode(found["data"]), found["size"]) == (PAYLOAD[5:9], SIZE)
            accept = "application/octet-stream"
            whole = await server.post("queue/payload", asked, accept=accept)
            assert (whole.content, whole.headers["x-fairlane-size"]) == (PAYLOAD, str(SIZE))
            rest = await server.post("queue/payload", asked | {"offset": SIZE - 7}, accept=accept)
            assert rest.content == PAYLOAD[-7:]
            some = await server.post("queue/payload", asked | {"offset": 600_000, "count": 700_000}, accept=accept)
            assert some.content == PAYLOAD[600_000:1_300_000]
            lost = await server.post("queue/payload", asked | {"token": 1}, accept=accept)
            assert (lost.status_code, lost.json()["error"]["code"]) == (409, "lease_mismatch")

    run(main())


def test_a_body_that_breaks_off_leaves_nothing() -> None:
    """The pieces that have arrived are dropped as soon as the caller is gone."""

    async def main() -> None:
        async with opened(settings=SMALL) as server:
            events = [{"type": "http.request", "body": PAYLOAD, "more_body": True}, {"type": "http.disconnect"}]

            async def receive() -> Any:
                return events.pop(0)

            async def send(event: Any) -> None:
                raise AssertionError(f"the caller is gone, and gets {event}")

            await HttpInterface(server.context)(scope_of("/v1/queue/enqueue", b"queue=orders"), receive, send)
            view = await server.broker.queue("orders")
            await until_dropped(server)
            assert (view.waiting, view.size) == (0, 0)

    run(main())


async def until_dropped(server: LocalServer) -> None:
    """Wait until no upload is open."""

    async def is_dropped() -> bool:
        return not await server.broker.uploads("orders")

    await until_answered(is_dropped, "the upload is dropped")


def scope_of(path: str, query: bytes = b"", **headers: str) -> Scope:
    """Return the scope of a request."""
    fields = {"host": "localhost", "content-type": "application/octet-stream"} | headers
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": pairs}


def test_a_consumer_that_leaves_before_the_end_has_not_got_the_message() -> None:
    """Its lease goes back at once, and the store is not read for it any further."""

    async def main() -> None:
        async with opened(settings=SMALL) as server:
            await sent(server)
            body = b'{"queue": "orders"}'
            events = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

            async def receive() -> Any:
                return events.pop(0)

            answered = []

            async def send(event: Any) -> None:
                answered.append(len(event.get("body", b"")))

            accept = {"content_type": "application/json", "accept": "application/octet-stream"}
            await HttpInterface(server.context)(scope_of("/v1/queue/lease", b"", **accept), receive, send)
            assert sum(answered) < SIZE

            async def is_back() -> bool:
                return (await server.broker.queue("orders")).waiting == 1

            await until_answered(is_back, "the message is given back")

    run(main())


def test_a_refused_message_leaves_no_upload() -> None:
    """A term that is not valid is refused before the body is read, a full queue after it."""

    async def main() -> None:
        async with opened(settings=SMALL) as server:
            invalid = await sent(server, chunks(), "&priority=urgent")
            assert (invalid.status_code, await server.broker.uploads("orders")) == (400, [])
            await server.broker.update_queue("orders", {"waiting_max": 1})
            await server.broker.enqueue("orders", NewMessage(payload=b"first"))
            full = await sent(server)
            assert full.status_code == 429
            await until_dropped(server)

    run(main())


def test_the_rights_are_those_of_an_enqueue() -> None:
    """A tenant uploads for its own key only, and without the right to produce nothing is read."""

    async def main() -> None:
        async with opened(requires_auth=True, settings=SMALL) as server:
            tenant = await server.key(Grant(right="produce", queues="orders", keys=("acme",)))
            consumer = await server.key(Grant(right="consume", queues="orders"))
            bearer = {"authorization": f"Bearer {tenant}"}
            assert (await sent(server, PAYLOAD, "&fairness_key=acme", **bearer)).status_code == 200
            assert (await sent(server, PAYLOAD, "&fairness_key=beta", **bearer)).status_code == 403
            assert (await sent(server, PAYLOAD, authorization=f"Bearer {consumer}")).status_code == 403
            await until_dropped(server)
            assert (await server.broker.queue("orders")).waiting == 1

    run(main())
