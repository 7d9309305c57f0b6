"""The access log: a bounded line of JSON for each call of every interface, only if the operator wants it."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fairlane.gateway.caller import ANYBODY
from fairlane.logs import LineFormatter, set_up_json_log
from fairlane.server.access_log import LOGGER, AccessLog
from fairlane.server.limits import CallLimits
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant
from fairlane.wire.frames import Answer, Refused
from fairlane.wire.grpc import broker_pb2 as broker
from tests.unit.server.grpc_client import called, receipt, refused
from tests.unit.server.local_server import connected, opened, run
from tests.unit.server.test_grpc_consume import consuming, settled


def lines_in(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines that were logged, without instants and durations."""
    records = [record for record in caplog.records if record.name == LOGGER]
    found = [json.loads(LineFormatter(is_json=True).format(record)) for record in records]
    for line in found:
        assert line.pop("duration_ms") >= 0
        assert (line.pop("level"), line.pop("logger"), line.pop("event")) == ("info", LOGGER, "call")
        del line["at"]
    return found


def test_http_calls_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With verb, queue, caller, address, status and correlation id; pages without authentication have no line."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            server.context.log_calls()
            key = await server.key(Grant(right="admin"))
            message = {"queue": "orders", "messages": [{"correlation_id": "c-1"}]}
            await server.post("queue/enqueue", message, key=key)
            await server.post("queue/stats", {"queue": "none"}, key=key, x_correlation_id="call-1")
            await server.post("queue/stats", {"queue": 1}, key=key, x_correlation_id="call-2")
            await server.http.get("/v1/queues", headers={"x-correlation-id": "call-3"})
            await server.http.get("/healthz")

    with caplog.at_level(logging.INFO, LOGGER):
        run(main())
    known = {"interface": "http", "address": "127.0.0.1"}
    mine = known | {"caller": "tester"}
    assert lines_in(caplog) == [
        mine | {"verb": "enqueue", "queue": "orders", "status": "ok", "correlation_id": "c-1"},
        mine | {"verb": "stats", "queue": "none", "status": "queue_not_found", "correlation_id": "call-1"},
        mine | {"verb": "stats", "status": "invalid_argument", "correlation_id": "call-2"},
        known | {"verb": "GET /v1/queues", "status": "unauthenticated", "correlation_id": "call-3"},
    ]


def test_a_raw_enqueue_is_logged_as_an_enqueue(caplog: pytest.LogCaptureFixture) -> None:
    """Its queue is in the query."""

    async def main() -> None:
        async with opened() as server:
            server.context.log_calls()
            raw = {"content-type": "application/octet-stream", "x-correlation-id": "c-1"}
            await server.http.post("/v1/queue/enqueue?queue=orders", content=b"x", headers=raw)

    with caplog.at_level(logging.INFO, LOGGER):
        run(main())
    (line,) = lines_in(caplog)
    assert (line["verb"], line["queue"], line["status"], line["correlation_id"]) == ("enqueue", "orders", "ok", "c-1")


def test_calls_of_the_stream_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also channels and refusals; a call that is about no single message has no correlation id."""

    async def main() -> None:
        async with opened() as server:
            server.context.log_calls()
            async with connected(server) as socket:
                socket.call("enqueue", {"queue": "orders", "messages": [{"correlation_id": "c-1"}]})
                await socket.next(Answer)
                socket.call("lease", {"queue": "orders"})
                await socket.next(Answer)
                socket.call("stats", {"queue": "none"})
                await socket.next(Refused)
                socket.call("consume", {"queue": "orders"})
                await socket.next(Answer)
                socket.call("nonsense", {})
                await socket.next(Refused)

    with caplog.at_level(logging.INFO, LOGGER):
        run(main())
    shown = [(line["verb"], line.get("queue"), line["status"], line.get("correlation_id")) for line in lines_in(caplog)]
    assert shown == [
        ("enqueue", "orders", "ok", "c-1"),
        ("lease", "orders", "ok", "c-1"),
        ("stats", "none", "queue_not_found", None),
        ("consume", "orders", "ok", None),
        ("nonsense", None, "route_not_found", None),
    ]


def test_grpc_calls_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each unary call once, whether it is answered or refused, and each request within a stream."""

    async def main() -> None:
        async with called() as caller:
            caller.server.context.log_calls()
            request = broker.EnqueueRequest(queue="orders")
            request.messages.add(correlation_id="c-1")
            await caller.broker.Enqueue(request)
            named = (("x-correlation-id", "c-2"),)
            await refused(caller.broker.Lease(broker.LeaseRequest(queue="none"), metadata=named))
            async with consuming(caller) as consumer:
                (delivery,) = await consumer.deliveries(1)
                await consumer.say(ack=broker.AckItems(receipts=[receipt(delivery)]))
                assert (await consumer.response()).results.results[0].correlation_id == "c-1"
            await settled(caller)

    with caplog.at_level(logging.INFO, LOGGER):
        run(main())
    shown = [(line["verb"], line["queue"], line["status"], line["correlation_id"]) for line in lines_in(caplog)]
    assert shown[:3] == [
        ("enqueue", "orders", "ok", "c-1"),
        ("lease", "none", "queue_not_found", "c-2"),
        ("ack", "orders", "ok", "c-1"),
    ]
    assert [line[:3] for line in shown[3:]] == [("consume", "orders", "disconnected")]


def test_without_the_setting_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Successful calls leave no line."""

    async def main() -> None:
        async with opened() as server:
            await server.post("queue/stats", {"queue": "orders"})

    with caplog.at_level(logging.DEBUG, LOGGER):
        run(main())
    assert lines_in(caplog) == []


class Noted:
    """An access log on a clock of its own."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        clock = FakeClock()
        self.log = AccessLog(1, now_ms=clock.now_ms, call_later=lambda *given: self.later.append(given))


def test_lines_are_bounded_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of one address is summed up, and what a caller sends can not forge a line."""
    noted = Noted()
    with caplog.at_level(logging.INFO, LOGGER):
        for _ in range(25):
            noted.log.note("http", "GET /\n" + "x" * 60_000, 0.0, caller=ANYBODY, address="10.0.0.1")
        assert len(caplog.records) == 10
        for record in caplog.records:
            line = LineFormatter(is_json=True).format(record)
            assert line.isprintable()
            assert len(line) < 1_000
        noted.later[0][1]()
    assert caplog.records[-1].getMessage() == "15 more calls were answered within 10 s: 15 ok"


def test_the_lines_are_json_whatever_the_other_log_lines_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go to standard error on their own, and not to the handlers of the other loggers."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logger = logging.getLogger("fairlane.tests.calls")
    set_up_json_log(logger.name)
    logger.info("call", extra={"verb": "ack", "duration_ms": 1.5})
    line = json.loads(stream.getvalue())
    assert (line["event"], line["verb"], line["duration_ms"], logger.propagate) == ("call", "ack", 1.5, False)


def test_the_rate_of_lines_is_a_limit_of_the_server() -> None:
    """An operator can set it."""
    assert CallLimits().calls_logged_per_second == 1_000
    with pytest.raises(ValueError, match="calls_logged_per_second"):
        CallLimits(calls_logged_per_second=0)
