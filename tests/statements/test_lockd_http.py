"""lockd's queue: the HTTP interface, correlation ids, stores and servers."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.assembly import open_broker
from fairlane.broker.settings import Settings
from fairlane.logs import LineFormatter
from fairlane.server.access_log import LOGGER
from fairlane.server.settings import load
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import S3Server
from tests.kit.waiting import until
from tests.unit.cluster.in_process import SOON_MS, cluster_of
from tests.unit.server.local_server import LocalServer, opened, run

PATIENCE_S = 60
HELLO = base64.b64encode(b"hello").decode()


def on_server(test: Callable[[LocalServer], Awaitable[None]]) -> None:
    """Run a test on a server with the queue ``orders``."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), opened() as server:
            await test(server)

    run(main())


async def enqueued(server: LocalServer, **message: Any) -> dict[str, Any]:
    """Enqueue one message, and return its result."""
    answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [message]})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["results"][0]
    return result


async def leased(server: LocalServer) -> dict[str, Any]:
    """Lease one message, and return the delivery."""
    delivery: dict[str, Any] = (await server.post("queue/dequeue", {"queue": "orders"})).json()["deliveries"][0]
    return delivery


async def someone_waits(server: LocalServer) -> None:
    """Wait until a consumer waits at ``orders``."""
    while not (await server.broker.queue("orders")).waiters:
        pass


def settling(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request that settles a delivery."""
    return {"queue": "orders", "receipts": [{"id": delivery["id"], "token": delivery["token"]}]}


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


@pytest.mark.parametrize("path", ["enqueue", "dequeue", "dequeueWithState", "ack", "nack", "extend"])
def test_207_to_212_the_paths_of_lockd(path: str) -> None:
    """The paths `/v1/queue/enqueue`, `dequeue`, `dequeueWithState`, `ack`, `nack` and `extend` exist."""

    async def test(server: LocalServer) -> None:
        answer = await server.post(f"queue/{path}", {})
        assert answer.status_code == 400, "an empty request is invalid, but the path is known"

    on_server(test)


def test_212_batches_are_settled_one_by_one() -> None:
    """Acks, nacks and extensions take batches, in which each message succeeds or fails separately."""

    async def test(server: LocalServer) -> None:
        await enqueued(server)
        delivery = await leased(server)
        body = settling(delivery)
        body["receipts"].append({"id": delivery["id"], "token": delivery["token"] + 1})
        results = (await server.post("queue/ack", body)).json()["results"]
        assert [set(result) & {"error"} for result in results] == [set(), {"error"}]

    on_server(test)


@pytest.mark.parametrize("path", ["subscribe", "subscribeWithState"])
def test_210_and_211_subscriptions(path: str) -> None:
    """`/v1/queue/subscribe` and `subscribeWithState` send deliveries as lines of JSON while the client stays."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), cluster_of("a") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": [{"payload": HELLO}]})
            async with cluster["a"].http.stream("POST", f"/v1/queue/{path}", json={"queue": "orders"}) as answer:
                async for line in answer.aiter_lines():
                    assert json.loads(line)["payload"] == HELLO
                    break

    run(main())


def test_217_the_layout_of_objects() -> None:
    """A store keeps the pages of a journal and chunks of bodies, instead of an object for each message."""

    async def test(server: LocalServer) -> None:
        for _ in range(3):
            await enqueued(server, payload=HELLO)
        journal = (await server.broker.read_journal()).events
        assert [event["kind"] for event in journal][-3:] == ["enqueued"] * 3

    on_server(test)


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


def test_220_and_221_payloads_are_streamed() -> None:
    """A raw payload is stored in pieces as it arrives, and sent piece by piece to the consumer."""

    async def test(server: LocalServer) -> None:
        raw = {"content-type": "application/octet-stream"}
        size = 20_000_000
        answer = await server.http.post("/v1/queue/enqueue?queue=orders", content=sent(size), headers=raw)
        assert answer.status_code == 200
        (view,) = await server.broker.peek("orders", with_body=True)
        assert (view.size, view.payload) == (size, None)
        accepted = {"accept": "application/octet-stream"}
        leased = await server.http.post("/v1/queue/dequeue", json={"queue": "orders"}, headers=accepted)
        assert (leased.headers["content-length"], leased.content) == (str(size), bytes(size))

    on_server(test)


def test_222_and_223_large_payloads_need_no_settings() -> None:
    """100 MB and 1 GB payloads need no settings; above `upload_bytes_max`, 16 GiB, they are refused unread."""

    async def test(server: LocalServer) -> None:
        assert Settings().upload_bytes_max == 16 * 1024**3
        upload = await server.broker.begin_upload("orders", size=10**9)
        assert upload.piece_bytes == 512 * 1024
        raw = {"content-type": "application/octet-stream", "content-length": str(17 * 1024**3)}
        answer = await server.http.post("/v1/queue/enqueue?queue=orders", content=sent(10), headers=raw)
        assert answer.status_code == 413
        assert "upload_bytes_max" in answer.json()["error"]["cause"]

    on_server(test)


def test_232_a_long_wait_is_shortened() -> None:
    """A wait above the server's limit is shortened, not refused."""

    async def test(server: LocalServer) -> None:
        waiting = asyncio.create_task(server.post("queue/dequeue", {"queue": "orders", "wait_ms": 365 * 86_400_000}))
        await someone_waits(server)
        await enqueued(server)
        assert len((await waiting).json()["deliveries"]) == 1

    on_server(test)


def test_234_a_hang_up_cancels_the_wait() -> None:
    """A client that hangs up while it waits leases nothing."""

    async def test(server: LocalServer) -> None:
        waiting = asyncio.create_task(server.post("queue/dequeue", {"queue": "orders", "wait_ms": 60_000}))
        await someone_waits(server)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await enqueued(server)
        view = await server.broker.queue("orders")
        assert (view.waiting, view.leased) == (1, 0)

    on_server(test)


def test_237_a_stale_lease_is_409() -> None:
    """A stale lease is answered with 409 and the code `lease_mismatch`."""

    async def test(server: LocalServer) -> None:
        await enqueued(server)
        delivery = await leased(server)
        for path in ("ack", "nack", "extend"):
            stale = await server.post(f"queue/{path}", settling(delivery | {"token": delivery["token"] + 1}))
            assert stale.status_code == 409
            assert stale.json()["results"][0]["error"]["code"] == "lease_mismatch"

    on_server(test)


def test_252_the_correlation_id_of_a_request() -> None:
    """`X-Correlation-Id` is the correlation id of the messages of a request."""

    async def test(server: LocalServer) -> None:
        await server.post("queue/enqueue", {"queue": "orders", "messages": [{}]}, x_correlation_id="corr")
        assert (await leased(server))["correlation_id"] == "corr"

    on_server(test)


@pytest.mark.parametrize("given", ["x" * 5_000, "tab\there"])
def test_253_a_malformed_correlation_id_is_replaced(given: str) -> None:
    """A correlation id that is too long or not printable is replaced, and the message is enqueued."""

    async def test(server: LocalServer) -> None:
        body = {"queue": "orders", "messages": [{}]}
        answer = await server.post("queue/enqueue", body, x_correlation_id=given)
        assert answer.status_code == 200
        assert answer.headers["x-correlation-id"] != given

    on_server(test)


def test_254_the_header_of_an_enqueue() -> None:
    """The answer to an enqueue has the correlation id in its header."""

    async def test(server: LocalServer) -> None:
        answer = await server.post("queue/enqueue", {"queue": "orders", "messages": [{}]}, x_correlation_id="corr")
        assert answer.headers["x-correlation-id"] == "corr"

    on_server(test)


def test_255_the_body_of_an_enqueue() -> None:
    """The result of an enqueue has the correlation id."""

    async def test(server: LocalServer) -> None:
        assert (await enqueued(server, correlation_id="own"))["correlation_id"] == "own"

    on_server(test)


def test_256_the_header_of_a_dequeue() -> None:
    """The answer to a dequeue of one message has its correlation id in the header."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, correlation_id="own")
        answer = await server.post("queue/dequeue", {"queue": "orders"})
        assert answer.headers["x-correlation-id"] == "own"

    on_server(test)


@pytest.mark.parametrize("path", ["ack", "nack", "extend"])
def test_257_settling_echoes_the_correlation_id(path: str) -> None:
    """The answers to `ack`, `nack` and `extend` have the correlation id of their message."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, correlation_id="own")
        answer = await server.post(f"queue/{path}", settling(await leased(server)))
        assert answer.headers["x-correlation-id"] == "own"

    on_server(test)


def test_258_state_calls_echo_the_correlation_id() -> None:
    """The answers to calls about workflow state have the correlation id of their message."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, correlation_id="own")
        delivery = await leased(server)
        receipt = settling(delivery)["receipts"][0]
        written = await server.post("queue/state/put", {"queue": "orders", "receipt": receipt, "state": HELLO})
        read = await server.post("queue/state/get", {"queue": "orders", "id": delivery["id"]})
        assert [answer.headers["x-correlation-id"] for answer in (written, read)] == ["own", "own"]

    on_server(test)


def test_260_ids_and_correlation_ids_are_unique() -> None:
    """Ids and default correlation ids differ between brokers, because each store has a random number of its own."""

    async def ids() -> set[str]:
        async with opened() as server:
            await enqueued(server)
            delivery = await leased(server)
            return {delivery["id"], delivery["correlation_id"]}

    assert not run(ids()) & run(ids())


def test_261_calls_are_logged_with_their_correlation_id(caplog: pytest.LogCaptureFixture) -> None:
    """With `access_log`, the server logs each call as a line of JSON with caller, verb, queue and correlation id."""

    async def test(server: LocalServer) -> None:
        server.context.log_calls()
        await enqueued(server, correlation_id="own")

    with caplog.at_level(logging.INFO, LOGGER):
        on_server(test)
    (line,) = (LineFormatter(is_json=True).format(record) for record in caplog.records if record.name == LOGGER)
    logged = json.loads(line)
    assert (logged["verb"], logged["queue"], logged["correlation_id"]) == ("enqueue", "orders", "own")


@pytest.mark.parametrize(
    ("setting", "instead"),
    [("queue_poll_interval", 264), ("resilient_poll", 265), ("disk_queue_watch", 266), ("queue_watch", 267)],
)
def test_264_to_267_nothing_polls(setting: str, instead: int) -> None:
    """There are no settings for polling and watching, because nothing polls: the owner of a queue knows all of it."""
    assert not hasattr(Settings(), setting), instead
    assert not hasattr(load(None, {}, {}), setting)


def test_268_settings_from_the_environment() -> None:
    """A setting can come from an environment variable, such as `FAIRLANE_WAITERS_MAX`."""
    assert load(None, {"FAIRLANE_WAITERS_MAX": "7"}, {}).broker.waiters_max == 7


def test_271_a_store_in_s3(s3: S3Server, tmp_path: Path) -> None:
    """A bucket in S3 is a store."""
    with open_broker(s3.url(BUCKET, tmp_path.name) + "&window_ms=1") as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"x")
        assert broker.lease("q")[0].payload == b"x"


def test_272_a_store_in_azure(azure: AzuriteServer, tmp_path: Path) -> None:
    """A container of Azure Blob Storage is a store."""
    with open_broker(azure.url(BUCKET, tmp_path.name) + "&window_ms=1") as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"x")
        assert broker.lease("q")[0].payload == b"x"


def test_273_several_servers_over_one_store() -> None:
    """Several servers share a store, and each of them answers for every queue."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": [{"payload": HELLO}]})
            assert len((await cluster["b"].done("queue/dequeue", {"queue": "orders"}))["deliveries"]) == 1

    run(main())


def test_274_a_dead_server_does_not_stop_a_queue() -> None:
    """When a server dies, another one takes its queues over and goes on with their messages."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), cluster_of("ab", heartbeat_timeout_ms=SOON_MS) as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            await cluster["a"].done("queue/enqueue", {"queue": "orders", "messages": [{"payload": HELLO}]})
            owner = cluster.owner("orders")
            other = next(member for member in cluster.members.values() if member is not owner)
            await owner.freeze()
            await until(lambda: other.serves("orders"), "the other server has the queue")
            assert len((await other.done("queue/dequeue", {"queue": "orders"}))["deliveries"]) == 1

    run(main())


def test_299_notifications() -> None:
    """`/v1/queue/watch` sends an event when messages are available; lockd plans notifications."""

    async def test(server: LocalServer) -> None:
        answer = await server.post("queue/watch", {})
        assert answer.status_code != 404

    on_server(test)


def test_300_one_message_as_a_body() -> None:
    """A single message can be answered as a raw body with headers, instead of a multipart response."""

    async def test(server: LocalServer) -> None:
        await enqueued(server, payload=HELLO)
        answer = await server.http.post(
            "/v1/queue/dequeue", json={"queue": "orders"}, headers={"accept": "application/octet-stream"}
        )
        assert answer.content == b"hello"
        assert json.loads(answer.headers["x-fairlane-delivery"])["attempt"] == 1

    on_server(test)
