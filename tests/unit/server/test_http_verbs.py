"""Verbs over HTTP: the way of a message, in both encodings, and clear refusals of all else."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from fairlane.broker.handlers import LISTS, READS
from fairlane.core.decide import DECIDERS
from fairlane.model.message import NewMessage
from fairlane.server.limits import CallLimits
from fairlane.server.shutdown import dismiss_waiters, settled
from fairlane.testing.clock import FakeClock
from fairlane.verbs.config import TryHook
from fairlane.verbs.dead_letters import StopRedrive
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.schedules import RunSchedule
from fairlane.verbs.status import WATCHING
from fairlane.verbs.table import VERBS

from .local_server import LocalServer, opened, run

HELLO = base64.b64encode(b"hello").decode()
MSGPACK = {"content-type": "application/msgpack"}


def test_every_verb_has_a_handler() -> None:
    """Every verb is answered by the broker, except those about API keys and clusters, which the server answers."""
    known = {Lease, TryHook, RunSchedule, StopRedrive, *WATCHING, *READS, *LISTS, *DECIDERS}
    answered = {name for name, verb in VERBS.items() if verb.request in known}
    elsewhere = {name for name, verb in VERBS.items() if verb.request.__module__.endswith((".keys", ".cluster"))}
    assert answered | elsewhere == set(VERBS)
    assert not answered & elsewhere


def test_a_message_goes_its_way_in_json() -> None:
    """Enqueue, dequeue, state, extend and ack work with bodies of JSON alone."""

    async def main() -> None:
        async with opened() as server:
            message = {"payload": HELLO, "headers": {"a": "b"}, "fairness_key": "acme"}
            enqueued = await server.post("queue/enqueue", {"queue": "orders", "messages": [message]})
            message_id = enqueued.json()["results"][0]["id"]
            leased = (await server.post("queue/dequeueWithState", {"queue": "orders"})).json()["deliveries"][0]
            assert (leased["id"], leased["payload"], leased["fairness_key"]) == (message_id, HELLO, "acme")
            receipt = {"id": leased["id"], "token": leased["token"]}
            written = await server.post("queue/state/put", {"queue": "orders", "receipt": receipt, "state": HELLO})
            assert written.json()["etag"]
            read = await server.post("queue/state/get", {"queue": "orders", "id": message_id})
            assert read.json() == {"state": HELLO, "etag": written.json()["etag"]}
            extended = await server.post("queue/extend", {"queue": "orders", "receipts": [receipt]})
            assert extended.json()["results"][0]["expires_ms"] >= leased["expires_ms"]
            acked = await server.post("queue/ack", {"queue": "orders", "receipts": [receipt]})
            assert acked.json() == {"results": [{}]}
            again = await server.post("queue/ack", {"queue": "orders", "receipts": [receipt]})
            assert again.json()["results"][0]["error"]["code"] == "message_not_found"

    run(main())


def test_a_json_value_is_a_payload() -> None:
    """A message in JSON may have a value in place of base64, in an enqueue and in a forward; it is kept as written."""

    async def main() -> None:
        async with opened() as server:
            messages = [{"json": {"order": 7, "of": ["a"]}, "fairness_key": "acme"}, {"json": None}, {"payload": HELLO}]
            sent = await server.post("queue/enqueue", {"queue": "orders", "messages": messages})
            assert sent.status_code == 200
            leased = (await server.post("queue/lease", {"queue": "orders", "count": 3})).json()["deliveries"]
            payloads = {base64.b64decode(delivery["payload"]) for delivery in leased}
            assert payloads == {b'{"order":7,"of":["a"]}', b"null", b"hello"}
            receipt = {"id": leased[0]["id"], "token": leased[0]["token"]}
            forward = {"queue": "orders", "receipt": receipt, "messages": {"orders": [{"json": [1]}]}}
            assert len((await server.post("queue/forward", forward)).json()["ids"]) == 1

    run(main())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"json": 1, "payload": HELLO}, "both payload and json"),
        ({"json": 1, "fairnes_key": "acme"}, "fairnes_key"),
    ],
)
def test_a_json_value_is_checked_like_any_message(message: dict[str, Any], told: str) -> None:
    """A message with both forms, or with an unknown field beside the value, is refused."""

    async def main() -> None:
        async with opened() as server:
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [message]})
            assert (answer.status_code, told in answer.json()["error"]["cause"]) == (400, True)

    run(main())


def test_payloads_travel_as_bytes_in_msgpack() -> None:
    """A request of msgpack is answered in msgpack, with bytes as they are."""

    async def main() -> None:
        async with opened() as server:
            body = msgspec.msgpack.encode(Enqueue(queue="orders", messages=[NewMessage(payload=b"\x00\xff")]))
            await server.http.post("/v1/queue/enqueue", content=body, headers=MSGPACK)
            lease = msgspec.msgpack.encode(Lease(queue="orders"))
            answer = await server.http.post("/v1/queue/dequeue", content=lease, headers=MSGPACK)
            assert answer.headers["content-type"] == "application/msgpack"
            assert msgspec.msgpack.decode(answer.content, type=LeasedMessages).deliveries[0].payload == b"\x00\xff"

    run(main())


def test_a_nacked_message_comes_again_and_a_dead_one_is_redriven() -> None:
    """Nack, dead letters, peek, explain, redrive and forward work over HTTP."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queue/enqueue", {"queue": "orders", "messages": [{"payload": HELLO}]})
            receipt = await lease(server, "orders")
            nack = {"queue": "orders", "receipts": [receipt], "intent": "dead", "error": "no"}
            assert (await server.post("queue/nack", nack)).json() == {"results": [{"became": "dead"}]}
            peeked = (await server.post("queue/peek", {"queue": "orders.dlq", "with_body": True})).json()["messages"]
            assert (peeked[0]["payload"], peeked[0]["dead"]["reason"]) == (HELLO, "requested")
            explained = await server.post("queue/explain", {"queue": "orders.dlq", "id": receipt["id"]})
            assert explained.json()["reason"] == "no_consumer"
            redrive = (await server.post("queues/redrive", {"queue": "orders.dlq"})).json()
            while (await server.post("queues/redrive/view", {"id": redrive["id"]})).json()["status"] == "running":
                pass
            receipt = await lease(server, "orders")
            await server.post("queues/create", {"queue": "later"})
            forward = {"queue": "orders", "receipt": receipt, "messages": {"later": [{"payload": HELLO}]}}
            assert len((await server.post("queue/forward", forward)).json()["ids"]) == 1
            assert await lease(server, "later")

    run(main())


async def lease(server: LocalServer, queue: str) -> dict[str, Any]:
    """Lease a message, and return the right to it."""
    delivery = (await server.post("queue/dequeue", {"queue": queue})).json()["deliveries"][0]
    return {"id": delivery["id"], "token": delivery["token"]}


def test_operators_verbs_work() -> None:
    """Queues, config, hooks and readers can be made, changed, seen and removed over HTTP."""

    async def main() -> None:
        async with opened() as server:
            assert (await server.post("queues/create", {"queue": "orders"})).status_code == 409
            await server.post("queues/update", {"queue": "orders", "policy": {"max_attempts": 9}})
            assert (await server.post("queues/inspect", {"queue": "orders"})).json()["policy"]["max_attempts"] == 9
            await server.post("queues/pause", {"queue": "orders"})
            assert (await server.post("queue/stats", {"queue": "orders"})).json()["is_paused"]
            await server.post("queues/resume", {"queue": "orders"})
            await server.post("config/set", {"values": {"throttle:x:rate": "5", "throttle:x:burst": "9"}})
            assert (await server.post("config/throttles")).json()["throttles"][0]["burst"] == 9
            assert (await server.post("config/list", {"prefix": "throttle:x:r"})).json()["values"] == {
                "throttle:x:rate": "5"
            }
            script = {"queue": "orders", "hook": "on_enqueue", "script": "return function(m) return {} end"}
            assert (await server.post("queues/hook/try", script)).status_code == 200
            assert (await server.post("queues/hook/statistics", {"queue": "orders"})).json()["calls"] == 0
            await server.post("journal/reader/set", {"name": "spark", "position": 0})
            assert (await server.post("journal/reader/list")).json()["readers"][0]["name"] == "spark"
            assert (await server.post("journal/reader/remove", {"name": "spark"})).json() == {}
            await server.post("queue/enqueue", {"queue": "orders", "messages": [{}, {}]})
            assert (await server.post("queues/purge", {"queue": "orders"})).json() == {"count": 2}
            await server.post("queues/delete", {"queue": "orders"})
            assert (await server.post("queues/list")).json() == {"queues": []}

    run(main())


ENQUEUE = "/v1/queue/enqueue"
JSON = {"content-type": "application/json"}
MALFORMED: list[tuple[str, str, dict[str, str], bytes, int, str, str]] = [
    ("POST", ENQUEUE, JSON, b'{"queue": "ord', 400, "invalid_argument", "truncated"),
    ("POST", ENQUEUE, JSON, b"\xff\xfe", 400, "invalid_argument", "Invalid enqueue request: it can't be decoded"),
    ("POST", ENQUEUE, JSON, b"[]", 400, "invalid_argument", "Expected `object`"),
    ("POST", ENQUEUE, JSON, b"{}", 400, "invalid_argument", "`queue`"),
    ("POST", ENQUEUE, JSON, b'{"queue":"orders","messages":[],"wait":1}', 400, "invalid_argument", "`wait`"),
    (
        "POST",
        ENQUEUE,
        JSON,
        b'{"queue":"orders","messages":[{},{"cost":"x"}]}',
        400,
        "invalid_argument",
        "[1].cost",
    ),
    ("POST", ENQUEUE, JSON, b'{"queue":"orders","messages":[{"payload":"?"}]}', 400, "invalid_argument", 'as "json"'),
    ("POST", ENQUEUE, JSON, b'{"queue":"none","messages":[{}]}', 404, "queue_not_found", "none"),
    ("POST", ENQUEUE, JSON, b'{"queue":"orders","messages":[{}],"wait_ms":-1}', 400, "invalid_argument", "wait_ms"),
    ("POST", ENQUEUE, {"content-type": "text/plain"}, b"{}", 400, "invalid_argument", "Content-Type"),
    ("POST", ENQUEUE, {}, b"{}", 400, "invalid_argument", "Content-Type"),
    (
        "POST",
        ENQUEUE,
        MSGPACK | {"accept": "application/json"},
        b"\xc1",
        400,
        "invalid_argument",
        "Invalid enqueue request: it can't be decoded",
    ),
    ("POST", ENQUEUE, JSON, b" " * 2_000, 413, "request_too_large", "1000"),
    ("GET", ENQUEUE, {}, b"", 405, "route_not_found", "POST"),
    ("PUT", "/v1/queues", {}, b"", 405, "route_not_found", "GET"),
    ("POST", "/healthz", {}, b"", 405, "route_not_found", "GET"),
    ("POST", "/v1/queue/nothing", JSON, b"{}", 404, "route_not_found", "/docs"),
    ("GET", "/v1/queues/none", {}, b"", 404, "queue_not_found", "none"),
    ("GET", "/v1/config?prefx=a", {}, b"", 400, "invalid_argument", "prefx"),
    ("GET", "/v1/journal?after=x", {}, b"", 400, "invalid_argument", "after"),
    ("GET", "/v1/journal?after=-1", {}, b"", 400, "invalid_argument", "after"),
    ("GET", "/v1/journal?count=1000000", {}, b"", 400, "invalid_argument", "100000"),
    ("GET", "/v1/queue/watch", {}, b"", 400, "invalid_argument", "queue="),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status", "code", "word"), MALFORMED)
def test_what_makes_no_sense_is_refused_clearly(
    method: str, path: str, headers: dict[str, str], body: bytes, status: int, code: str, word: str
) -> None:
    """A refusal has a status, a code, a cause that names what is wrong, and a remedy."""

    async def main() -> None:
        async with opened(limits=CallLimits(body_bytes_max=1_000)) as server:
            answer = await server.http.request(method, path, headers=headers, content=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (status, code)
            assert word in error["cause"]
            assert error["remedy"]

    run(main())


def test_failed_attempts_have_named_fields() -> None:
    """A delivery and a look at a message tell what went wrong by name, in JSON and in msgpack."""

    async def main() -> None:
        async with opened(clock=FakeClock(5_000)) as server:
            await server.broker.update_queue("orders", {"backoff_ms": 0})
            await server.broker.enqueue("orders", b"x")
            (failed,) = await server.broker.lease("orders")
            await server.broker.nack(failed, error="boom")
            expected = [{"at_ms": 5_000, "attempt": 1, "reason": "failure", "error": "boom"}]
            look = {"queue": "orders", "id": failed.id}
            assert (await server.post("queue/get", look)).json()["errors"] == expected
            packed = await server.post("queue/lease", {"queue": "orders"}, accept="application/msgpack")
            assert msgspec.msgpack.decode(packed.content)["deliveries"][0]["errors"] == expected

    run(main())


def test_a_refusal_that_time_mends_says_when() -> None:
    """A full queue refuses the items that do not fit, and too many waiters get 429 with Retry-After."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queues/update", {"queue": "orders", "policy": {"waiting_max": 1}})
            answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [{}, {}]})
            first, second = answer.json()["results"]
            assert first["id"]
            assert second["error"]["code"] == "queue_full"
            server.broker._engine.consumers._waiters_max = 1
            waiting = asyncio.create_task(server.broker.lease("orders.dlq", wait_ms=60_000))
            while not (await server.broker.queue("orders.dlq")).waiters:
                pass
            refused = await server.post("queue/dequeue", {"queue": "orders.dlq", "wait_ms": 1})
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(main())


def test_a_correlation_id_goes_with_the_message() -> None:
    """The id of the request is on each message that has none, echoed, and comes back with the delivery."""

    async def main() -> None:
        async with opened() as server:
            messages = [{}, {"correlation_id": "own"}]
            answer = await server.post(
                "queue/enqueue", {"queue": "orders", "messages": messages}, x_correlation_id="trace-1"
            )
            assert answer.headers["x-correlation-id"] == "trace-1"
            first = await server.post("queue/dequeue", {"queue": "orders"})
            second = await server.post("queue/dequeue", {"queue": "orders"})
            assert first.headers["x-correlation-id"] == first.json()["deliveries"][0]["correlation_id"] == "trace-1"
            assert second.headers["x-correlation-id"] == "own"
            made = await server.post("queue/enqueue", {"queue": "orders", "messages": [{}]})
            third = await server.post("queue/dequeue", {"queue": "orders"})
            assert third.json()["deliveries"][0]["correlation_id"] == made.json()["results"][0]["id"]

    run(main())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:7420", "origin": "http://localhost:7420"}, 200),
        ({"host": "localhost:7420", "origin": "http://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "[::1]:7420"}, 200),
    ],
)
def test_pages_of_other_sites_can_not_call(headers: dict[str, str], status: int) -> None:
    """Where no keys are asked for, a browser's foreign page is told apart by its origin or our name."""

    async def main() -> None:
        async with opened(hosts=frozenset(("localhost", "::1"))) as server:
            assert (await server.http.get("/v1/queues", headers=headers)).status_code == status

    run(main())


def test_a_server_that_goes_down_takes_acks_and_no_new_work() -> None:
    """While draining, enqueue and dequeue are refused with 503, waiting ones get nothing, and acks are taken."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queue/enqueue", {"queue": "orders", "messages": [{}]})
            receipt = await lease(server, "orders")
            polling = asyncio.create_task(server.post("queue/dequeue", {"queue": "orders", "wait_ms": 60_000}))
            while not (await server.broker.queue("orders")).waiters:
                pass
            server.context.draining.set()
            dismiss_waiters(server.context)
            assert (await polling).json() == {"deliveries": []}
            refused = await server.post("queue/enqueue", {"queue": "orders", "messages": [{}]})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "closed")
            assert (await server.http.get("/readyz")).status_code == 503
            assert (await server.post("queue/ack", {"queue": "orders", "receipts": [receipt]})).json() == {
                "results": [{}]
            }
            await settled(server.context, quiet_s=60)

    run(main())
