"""lockd's queue: the HTTP interface, correlation ids, stores and servers."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlane.assembly import open_broker
from fairlane.broker.settings import Settings
from fairlane.logs import LineFormatter
from fairlane.server.access_log import LOGGER
from fairlane.server.settings import load
from fairlane.verbs.keys import Grant
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import S3Server
from tests.kit.waiting import PATIENCE_S, until, wait_until
from tests.statements.orders_server import HELLO, enqueued, leased, on_server, settling, streamed
from tests.unit.broker.stepping import broker_with, start_lease
from tests.unit.cluster.in_process import SOON_MS, cluster_of
from tests.unit.server.local_server import LocalServer, opened, run


async def someone_waits(server: LocalServer) -> None:
    """Wait until a consumer waits at ``orders``."""
    while not (await server.broker.queue("orders")).waiters:
        pass


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
    """A correlation id that is too long or not printable is replaced, which the header `x-correlation-id-replaced` of
    the answer says, and the message is enqueued."""

    async def test(server: LocalServer) -> None:
        body = {"queue": "orders", "messages": [{}]}
        answer = await server.post("queue/enqueue", body, x_correlation_id=given)
        assert answer.status_code == 200
        assert answer.headers["x-correlation-id"] not in ("", given)
        assert answer.headers["x-correlation-id-replaced"] == "not 1 to 128 printable ASCII characters"
        assert (await leased(server))["id"] == answer.json()["results"][0]["id"]

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
    """With `access_log`, the server logs each call as a line of JSON with caller, verb, queue, status, duration and
    correlation id."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            server.context.log_calls()
            key = await server.key(Grant(right="produce"))
            body = {"queue": "orders", "messages": [{"correlation_id": "own"}]}
            assert (await server.post("queue/enqueue", body, key=key)).status_code == 200
            assert (await server.post("queue/dequeue", {"queue": "orders"}, key=key)).status_code == 403

    with caplog.at_level(logging.INFO, LOGGER):
        run(main())
    records = [record for record in caplog.records if record.name == LOGGER]
    done, refused = (json.loads(LineFormatter(is_json=True).format(record)) for record in records)
    assert (done["caller"], done["verb"], done["queue"]) == ("tester", "enqueue", "orders")
    assert (done["status"], refused["status"], done["correlation_id"]) == ("ok", "forbidden", "own")
    assert done["duration_ms"] > 0


def is_setting(*names: str) -> bool:
    """Return whether the server or the broker has a setting of one of these names."""
    known = {each for shape in (Settings(), load(None, {}, {})) for each in dir(shape)}
    return bool(known & set(names))


def test_264_there_is_no_interval_of_polling() -> None:
    """No setting says how often to poll: a consumer that waits is served without any time passing."""
    assert not is_setting("queue_poll_interval", "queue_poll_jitter")
    broker = broker_with()
    waiter, before_ms = start_lease(broker), broker.clock.now_ms()
    broker.enqueue("q", b"x")
    assert (waiter.done(), broker.clock.now_ms()) == (True, before_ms)


def test_265_no_notification_can_be_lost() -> None:
    """Nothing polls in case a notification was lost: a queue has one owner, and a wait gives it nothing to do."""
    assert not is_setting("queue_resilient_poll_interval", "resilient_poll")
    broker = broker_with()
    before_ms = broker.engine.next_event_at()
    broker.attach("q")
    assert broker.engine.next_event_at() == before_ms


def test_266_stores_are_not_watched(tmp_path: Path) -> None:
    """No setting turns a watch of files on or off: on disk as in memory, the enqueue itself serves the consumer."""
    assert not is_setting("disk_queue_watch", "mem_queue_watch", "queue_watch")
    with open_broker(str(tmp_path / "store")) as broker:
        broker.create_queue("q")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(broker.lease, "q", wait_ms=PATIENCE_S * 1_000)
            wait_until(lambda: broker.queue("q").waiters == 1, what="a consumer waits")
            broker.enqueue("q", b"x")
            assert [delivery.payload for delivery in waiting.result(PATIENCE_S)] == [b"x"]


def test_267_watchers_cost_nothing_until_they_are_needed() -> None:
    """A consumer that waits is an entry in its queue's line of consumers: it writes nothing and starts no timer."""
    broker = broker_with()
    before = broker.read_journal().events, broker.engine.next_event_at()
    for _ in range(100):
        broker.attach("q")
    assert (broker.read_journal().events, broker.engine.next_event_at()) == before


def test_268_settings_from_the_environment() -> None:
    """A setting can come from an environment variable, such as `FAIRLANE_WAITERS_MAX`."""
    assert load(None, {"FAIRLANE_WAITERS_MAX": "7"}, {}).broker.waiters_max == 7


def test_271_a_store_in_s3(s3: S3Server, tmp_path: Path) -> None:
    """A bucket in S3 is a store: what was enqueued is there when it is opened again."""
    address = s3.url(BUCKET, tmp_path.name) + "&window_ms=1"
    with open_broker(address) as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"x")
    with open_broker(address) as broker:
        assert broker.lease("q")[0].payload == b"x"


def test_272_a_store_in_azure(azure: AzuriteServer, tmp_path: Path) -> None:
    """A container of Azure Blob Storage is a store: what was enqueued is there when it is opened again."""
    address = azure.url(BUCKET, tmp_path.name) + "&window_ms=1"
    with open_broker(address) as broker:
        broker.create_queue("q")
        broker.enqueue("q", b"x")
    with open_broker(address) as broker:
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

    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            opened() as server,
            streamed(server, "GET", "queue/watch?queue=orders") as parts,
        ):
            await enqueued(server)
            text = ""
            while "\n\n" not in text.partition("event: available")[2]:
                text += (await parts.get()).decode()
            assert '"queue":"orders"' in text.replace(" ", "")

    run(main())


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
