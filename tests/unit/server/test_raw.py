"""Payloads as they are: a message as the body of a request or of an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.verbs.keys import Grant
from tests.unit.server.local_server import LocalServer, opened, run

if TYPE_CHECKING:
    import httpx

PAYLOAD = bytes(range(256)) * 40
RAW = {"content-type": "application/octet-stream"}


async def enqueue(server: LocalServer, query: object, body: bytes = PAYLOAD, **headers: str) -> httpx.Response:
    """Enqueue a payload."""
    text = query if isinstance(query, str) else urlencode(query, doseq=True)  # type: ignore[arg-type] # pairs
    fields = RAW | {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.http.post(f"/v1/queue/enqueue?{text}", content=body, headers=fields)


async def dequeue(server: LocalServer, **request: Any) -> httpx.Response:
    """Lease a payload."""
    accept = {"accept": "application/octet-stream"}
    return await server.http.post("/v1/queue/dequeue", json={"queue": "orders"} | request, headers=accept)


def test_a_payload_goes_in_and_out_as_it_is() -> None:
    """What is said in the query is said of the message, and headers of the answer say all that a delivery does."""

    async def main() -> None:
        async with opened() as server:
            terms = {"fairness_key": ["acme", "web"], "cost": 3, "priority": "high", "header.town": "Köln"}
            answer = await enqueue(server, {"queue": "orders", "dedup_id": "null"} | terms, x_correlation_id="c-1")
            message_id = answer.json()["results"][0]["id"]
            leased = await dequeue(server)
            assert (leased.status_code, leased.content) == (200, PAYLOAD)
            assert leased.headers["content-type"] == "application/octet-stream"
            assert leased.headers["x-correlation-id"] == "c-1"
            told = json.loads(leased.headers["x-fairlane-delivery"])
            assert told["headers"] == {"town": "Köln"}
            assert (told["fairness_key"], told["cost"], told["priority"]) == (["acme", "web"], 3, "high")
            receipt = {"id": leased.headers["x-fairlane-id"], "token": int(leased.headers["x-fairlane-token"])}
            assert receipt == {"id": message_id, "token": told["token"]}
            assert leased.headers["x-fairlane-attempt"] == "1"
            assert int(leased.headers["x-fairlane-expires-ms"]) == told["expires_ms"]
            acked = await server.post("queue/ack", {"queue": "orders", "receipts": [receipt]})
            assert acked.json() == {"results": [{"correlation_id": "c-1"}]}

    run(main())


def test_nothing_there_is_204() -> None:
    """There is no payload, not even an empty one."""

    async def main() -> None:
        async with opened() as server:
            answer = await dequeue(server)
            assert (answer.status_code, answer.content) == (204, b"")
            await enqueue(server, "queue=orders", b"")
            answer = await dequeue(server)
            assert (answer.status_code, answer.content) == (200, b"")

    run(main())


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "Missing parameter queue"),
        ("queue=orders&wieght=3", "Did you mean 'weight'?"),
        ("queue=orders&weight=heavy", "weight"),
        ("queue=orders&wait_ms=long", "Expected `int`"),
        ("queue=orders&queue=bills", "queue is given twice"),
        ("queue=orders&header.a=%ff", "Malformed query string"),
        ("queue=orders&" + "&".join(f"header.{number}=" for number in range(1000)), "Malformed query string"),
        ("queue=orders&wait_ms=-1", "wait_ms must be a whole number"),
        ("queue=orders&delay_ms=-1", "delay_ms"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: str, told: str) -> None:
    """The cause says what to change."""

    async def main() -> None:
        async with opened() as server:
            answer = await enqueue(server, query)
            assert answer.status_code == 400
            assert told in answer.json()["error"]["cause"]
            assert (await server.broker.queue("orders")).waiting == 0

    run(main())


def test_a_message_that_is_refused_refuses_the_request() -> None:
    """With one message there is one answer, so its status is that of the message."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.update_queue("orders", {"waiting_max": 1})
            assert (await enqueue(server, "queue=orders")).status_code == 200
            full = await enqueue(server, "queue=orders")
            assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
            missing = await enqueue(server, "queue=nowhere")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "queue_not_found")

    run(main())


def test_several_messages_are_not_to_be_had_raw() -> None:
    """One body holds one payload, and no state; who takes JSON as well gets JSON."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage(payload=b"a")] * 3)
            assert (await dequeue(server, count=2)).status_code == 400
            assert (await dequeue(server, with_state=True)).status_code == 400
            assert (await server.broker.queue("orders")).leased == 0
            both = {"accept": "application/octet-stream, application/json"}
            answer = await server.http.post("/v1/queue/dequeue", json={"queue": "orders", "count": 2}, headers=both)
            assert len(answer.json()["deliveries"]) == 2

    run(main())


def test_a_delivery_that_is_too_long_for_a_header_is_cut() -> None:
    """The payload comes all the same, with what is needed to ack it."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage(payload=b"a", headers={"long": "x" * 20_000})])
            answer = await dequeue(server)
            told = json.loads(answer.headers["x-fairlane-delivery"])
            assert (answer.content, told["is_cut"], "headers" in told) == (b"a", True, False)
            assert told["id"] == answer.headers["x-fairlane-id"]

    run(main())


def test_rights_hold_for_raw_payloads_too() -> None:
    """A key that may produce for one tenant may not for another."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            key = await server.key(Grant(right="produce", queues="orders", keys=("acme",)))
            bearer = f"Bearer {key}"
            assert (await enqueue(server, "queue=orders&fairness_key=acme", authorization=bearer)).status_code == 200
            assert (await enqueue(server, "queue=orders&fairness_key=other", authorization=bearer)).status_code == 403
            assert (await enqueue(server, f"queue={quote('orders/x')}", authorization=bearer)).status_code == 403

    run(main())


def test_a_body_that_is_too_long_is_refused_and_the_connection_ends() -> None:
    """By what its length says, or as soon as it is longer; nothing of the rest is read."""

    async def main() -> None:
        async with opened(settings=Settings(upload_bytes_max=2_000_000)) as server:
            told = await enqueue(server, "queue=orders", b"x" * 2_000_001)
            assert (told.status_code, told.headers["connection"]) == (413, "close")
            assert "upload_bytes_max is 2000000" in told.json()["error"]["cause"]
            assert (await enqueue(server, "queue=orders", b"x" * 2_000_000)).status_code == 200
            assert (await server.broker.uploads("orders")) == []

    run(main())


def test_hooks_and_policies_see_raw_messages() -> None:
    """They are messages like all others."""

    async def main() -> None:
        async with opened() as server:
            policy = QueuePolicy(fairness_key_from="header:tenant")
            await server.broker.update_queue("orders", {"fairness_key_from": policy.fairness_key_from})
            await enqueue(server, "queue=orders&header.tenant=acme")
            assert (await server.broker.peek("orders"))[0].fairness_key == "acme"

    run(main())
