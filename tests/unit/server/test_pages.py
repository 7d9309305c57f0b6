"""GET routes: the OpenAPI description, metrics, the journal, and HTTP streams."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fairlane.logs import LineFormatter
from fairlane.model.message import NewMessage
from fairlane.server.interfaces.http import HttpInterface
from fairlane.verbs.table import VERBS

from .local_server import LocalServer, opened, run


def test_the_description_has_every_verb_and_no_dangling_reference() -> None:
    """Each verb is a path with a request and an answer, and every reference resolves."""

    async def main() -> None:
        async with opened() as server:
            api = (await server.http.get("/openapi.json")).json()
            for name, verb in VERBS.items():
                assert api["paths"][f"/v1/{verb.path}"]["post"]["operationId"] == name
            for ref in refs(api):
                place: Any = api
                for part in ref.removeprefix("#/").split("/"):
                    place = place[part]
            page = (await server.http.get("/docs")).text
            assert "openapi.json" in page
            assert "http://" not in page.replace("http://www.w3.org", "")

    run(main())


def refs(value: Any) -> list[str]:
    """Return all references in a document."""
    if isinstance(value, dict):
        return [ref for name, part in value.items() for ref in ([part] if name == "$ref" else refs(part))]
    return [ref for part in value for ref in refs(part)] if isinstance(value, list) else []


def test_metrics_count_verbs_errors_and_queues() -> None:
    """The metrics have calls, errors and backlogs, with bounded labels."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queue/enqueue", {"queue": "orders", "messages": [{}, {}]})
            await server.post("queue/dequeue", {"queue": "orders"})
            await server.post("queue/dequeue", {"queue": "none"})
            lines = (await server.http.get("/metrics")).text.splitlines()
            assert 'fairlane_calls_total{verb="lease"} 2' in lines
            assert 'fairlane_errors_total{code="queue_not_found"} 1' in lines
            assert 'fairlane_queue_waiting{queue="orders"} 1' in lines
            assert 'fairlane_queue_leased{queue="orders"} 1' in lines
            for number in range(110):
                await server.broker.create_queue(f"q{number}")
            lines = (await server.http.get("/metrics")).text.splitlines()
            assert sum(1 for line in lines if line.startswith("fairlane_queue_waiting{")) == 201

    run(main())


def test_the_journal_reads_the_same_as_lines_and_as_arrow() -> None:
    """Both start after the given position and name the next one."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue_many("orders", [NewMessage()] * 3)
            lines = await server.http.get("/v1/journal", params={"after": 4})
            events = [msgspec.json.decode(line) for line in lines.text.splitlines()]
            arrow = await server.http.get(
                "/v1/journal", params={"after": 4}, headers={"accept": "application/vnd.apache.arrow.stream"}
            )
            table = pa.ipc.open_stream(arrow.content).read_all()
            assert table["sequence"].to_pylist() == [event["sequence"] for event in events] == [5, 6]
            assert lines.headers["x-fairlane-position"] == arrow.headers["x-fairlane-position"] == "6"

    run(main())


async def stream(server: LocalServer, path: str, body: object, accept: str) -> tuple[dict[str, str], Any, Any]:
    """Open a stream; return its headers, a function to read on, and one to disconnect."""
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": msgspec.json.encode(body)})
    headers = [(b"content-type", b"application/json"), (b"accept", accept.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}

    async def send(event: Any) -> None:
        outgoing.put_nowait(event)

    serving = asyncio.create_task(HttpInterface(server.context)(scope, incoming.get, send))
    started = await outgoing.get()

    async def read() -> bytes:
        return bytes((await outgoing.get())["body"])

    async def hang_up() -> None:
        incoming.put_nowait({"type": "http.disconnect"})
        await serving

    return {name.decode(): value.decode() for name, value in started["headers"]}, read, hang_up


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
def test_a_subscription_sends_deliveries_until_the_client_disconnects(accept: str) -> None:
    """Each delivery is a line, or msgpack with a length prefix; unacknowledged messages return at the end."""

    async def main() -> None:
        async with opened() as server:
            message_id = await server.broker.enqueue("orders", b"hello")
            request = {"queue": "orders", "credit": 1}
            _, read, hang_up = await stream(server, "/v1/queue/subscribeWithState", request, accept)
            piece = await read()
            decode = msgspec.json.decode if accept == "application/json" else msgspec.msgpack.decode
            assert decode(piece if accept == "application/json" else piece[4:])["id"] == message_id
            assert accept == "application/json" or int.from_bytes(piece[:4]) == len(piece) - 4
            await hang_up()
            assert len((await server.broker.get("orders", message_id)).errors) == 1

    run(main())


def test_a_disconnected_long_poll_leaves_nothing_behind() -> None:
    """Its wait ends, and a later message goes to another consumer."""

    async def main() -> None:
        async with opened() as server:
            request = {"queue": "orders", "wait_ms": 60_000}
            asking = asyncio.create_task(stream(server, "/v1/queue/dequeue", request, "application/json"))
            while not (await server.broker.queue("orders")).waiters:
                pass
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            incoming.put_nowait({"type": "http.request", "body": msgspec.json.encode(request)})
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/v1/queue/dequeue",
                "headers": [(b"content-type", b"application/json")],
            }

            async def send(event: Any) -> None:
                raise AssertionError(event)

            polling = asyncio.create_task(HttpInterface(server.context)(scope, incoming.get, send))
            while (await server.broker.queue("orders")).waiters < 2:
                pass
            incoming.put_nowait({"type": "http.disconnect"})
            await polling

    run(main())


def test_a_watcher_is_notified_of_messages() -> None:
    """It is notified of present and later messages, and nothing is leased."""

    async def main() -> None:
        async with opened() as server:
            await server.broker.enqueue("orders", b"")
            headers, read, hang_up = await stream(server, "/v1/queue/watch", {"queue": "orders"}, "")
            assert headers["content-type"] == "text/event-stream"
            assert b'"waiting":1' in await read()
            await server.broker.enqueue("orders", b"")
            assert b'"waiting":2' in await read()
            await server.broker.stage("orders", "s", batch=0, part="p", at=0, messages=[NewMessage()])
            await server.broker.publish("orders", "s", batch=0, parts=["p"])
            assert b'"waiting":3' in await read()
            await hang_up()
            assert (await server.broker.queue("orders")).leased == 0

    run(main())


def test_an_internal_error_is_logged_and_reveals_only_its_type(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets 500 with the type of the exception; the log has the traceback."""

    async def main() -> tuple[int, str]:
        async with opened() as server:

            async def broken(*_: object, **__: object) -> None:
                raise ZeroDivisionError("the secret")

            monkeypatch.setattr(server.broker, "call", broken)
            answer = await server.post("queues/list")
            return answer.status_code, answer.text

    status, text = run(main())
    assert status == 500
    assert "the secret" not in text
    assert any(record.exc_info for record in caplog.records)


def test_a_log_line_is_one_line_with_its_fields() -> None:
    """JSON lines can be parsed, and text lines name the fields."""
    record = logging.makeLogRecord({"msg": "It was %s.", "args": ("so",), "levelname": "INFO", "code": "closed"})
    event = msgspec.json.decode(LineFormatter(is_json=True).format(record))
    assert (event["event"], event["code"]) == ("It was so.", "closed")
    assert LineFormatter(is_json=False).format(record).endswith("It was so. code=closed")


def test_stats_can_have_keys() -> None:
    """The caller chooses the number of keys; by default there are none."""

    async def main() -> None:
        async with opened() as server:
            body = {"queue": "orders", "messages": [{"fairness_key": name} for name in ("a", "a", "b")]}
            await server.post("queue/enqueue", body)
            assert (await server.post("queue/stats", {"queue": "orders"})).json()["keys"] == []
            view = (await server.post("queue/stats", {"queue": "orders", "keys_max": 1})).json()
            assert view["active_keys"] == 2
            (key,) = view["keys"]
            assert (key["key"], key["messages"], key["wait_p99_ms"], key["throttle"]) == ("a", 2, None, None)
            assert (await server.post("queue/stats", {"queue": "orders", "keys_max": 5_000})).status_code == 400

    run(main())
