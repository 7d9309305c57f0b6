"""Log lines: nothing from the network can forge a line or fill the disk, and each refusal says who was refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairlane.errors import FairlaneError, InternalError, InvalidArgument, RouteNotFound
from fairlane.gateway.caller import ANYBODY, Caller
from fairlane.logs import LineFormatter
from fairlane.server.limits import CallLimits
from fairlane.server.refusals import RefusalLog
from fairlane.testing.clock import FakeClock
from fairlane.verbs.keys import Grant
from tests.kit.servers.listening import listening, request_of
from tests.unit.server.local_server import opened, run

FORGED = "/v1/x\n2026-01-01T00:00:00.000+00:00 info    fairlane.server: all is well\x1b[2J\x7f\u2028\x85"


def record_of(text: str, **fields: Any) -> logging.LogRecord:
    """Return an event."""
    record = logging.LogRecord("fairlane.access", logging.INFO, "", 0, "%s was refused", (text,), None)
    vars(record).update(fields)
    return record


def test_a_text_line_is_one_line_without_control_characters() -> None:
    """Newlines, escape sequences and separators from the network appear escaped, in the event and in its fields."""
    line = LineFormatter(is_json=False).format(record_of(FORGED, caller="ann\nbob", address="\x1b[31m"))
    assert line.isprintable()
    assert r"/v1/x\n2026-01-01" in line
    assert r"well\x1b[2J\x7f\u2028\x85 was refused caller=ann\nbob address=\x1b[31m" in line


def test_a_json_line_is_one_line_without_control_characters() -> None:
    """The same, escaped as JSON does: a reader gets back every character, also half a surrogate pair of a file name."""
    line = LineFormatter(is_json=True).format(record_of(FORGED, caller="ann\nbob", queue="caf\u00e9", group="\udcff"))
    assert line.isprintable()
    event = json.loads(line)
    assert event["event"] == f"{FORGED} was refused"
    assert (event["caller"], event["queue"], event["group"]) == ("ann\nbob", "caf\u00e9", "\udcff")
    assert "caf\u00e9" in line


def test_a_traceback_can_not_look_like_an_event() -> None:
    """Each of its lines is marked, also those that come from the text of the error."""
    record = record_of("x")
    error = ValueError(FORGED)
    record.exc_info = (type(error), error, None)
    first, *rest = LineFormatter(is_json=False).format(record).split("\n")
    assert first.endswith("x was refused")
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)


@pytest.mark.parametrize("is_json", [False, True])
def test_a_line_has_a_bounded_length(is_json: bool) -> None:
    """A long path is cut, and the line says how long it was."""
    line = LineFormatter(is_json=is_json).format(record_of("x" * 60_000, caller="y" * 60_000))
    assert len(line) < 3_000
    assert "... (60012 characters)" in line
    assert "... (60000 characters)" in line
    if is_json:
        assert msgspec.json.decode(line)["event"].startswith("xxx")


class Noted:
    """A log of refusals on a clock of its own."""

    def __init__(self, lines_per_second: int) -> None:
        self.clock = FakeClock()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self._log = RefusalLog(
            lines_per_second, now_ms=self.clock.now_ms, call_later=lambda *given: self.later.append(given)
        )

    def note(self, address: str, *, error: FairlaneError | None = None, what: str = "GET /") -> None:
        self._log.note(what, error or RouteNotFound("No."), caller=ANYBODY, address=address)


def test_a_flood_of_refusals_is_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """One address gets ten lines at a rate of one per second; the rest is one line that counts them by code."""
    noted = Noted(1)
    with caplog.at_level(logging.INFO, "fairlane.access"):
        for _ in range(1_500):
            noted.note("10.0.0.1", what="GET " + "x" * 60_000)
        noted.note("10.0.0.1", error=InvalidArgument("No."))
        assert len(caplog.records) == 10
        assert sum(len(LineFormatter(is_json=False).format(record)) for record in caplog.records) < 5_000
        [(seconds, summarise)] = noted.later
        summarise()
    last = caplog.records[-1]
    assert (seconds, last.getMessage()) == (
        10,
        "1491 more requests were refused within 10 s: 1490 route_not_found, 1 invalid_argument",
    )
    assert vars(last)["address"] == "10.0.0.1"


def test_a_flood_of_one_address_does_not_hide_others(caplog: pytest.LogCaptureFixture) -> None:
    """Each address has lines of its own, also after another has used up its lines, and again after a while."""
    noted = Noted(1)
    with caplog.at_level(logging.INFO, "fairlane.access"):
        for _ in range(100):
            noted.note("10.0.0.1")
        noted.note("10.0.0.2")
        noted.clock.advance(1_000)
        noted.note("10.0.0.1")
    assert [vars(record)["address"] for record in caplog.records] == ["10.0.0.1"] * 10 + ["10.0.0.2", "10.0.0.1"]


def test_many_addresses_share_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """All addresses together get ten times the lines of one, and the summary names the ten that were refused most."""
    noted = Noted(1)
    with caplog.at_level(logging.INFO, "fairlane.access"):
        for number in range(3_000):
            noted.note(f"10.0.{number // 250}.{number % 250}")
        assert len(caplog.records) == 100
        noted.later[0][1]()
    assert len(caplog.records) == 111
    summed = [int(record.getMessage().split()[0]) for record in caplog.records[100:]]
    assert sum(summed) == 2_900


def test_bugs_are_always_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An internal error is never only counted."""
    noted = Noted(1)
    with caplog.at_level(logging.INFO, "fairlane.access"):
        for _ in range(30):
            noted.note("10.0.0.1", error=InternalError("Bug."))
    assert len(caplog.records) == 30


def test_a_refusal_names_the_caller_and_its_address(caplog: pytest.LogCaptureFixture) -> None:
    """The line of a refused request has the name of the API key and the address; a WebSocket has the address."""

    async def main() -> None:
        async with listening(requires_auth=True) as server:
            wire = await server.connect()
            key = await server.key("acme")
            assert (await wire.ask("/v1/nowhere", {}, key=key)).status == 404
            upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            wire.send(request_of("/v1/stream", headers=upgrade + "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"))
            assert (await wire.answer()).code == "unauthenticated"
            await wire.rest()

    with caplog.at_level(logging.INFO):
        run(main())
    found = [record for record in caplog.records if record.name == "fairlane.access"]
    shown = [(vars(one).get("caller"), vars(one)["address"], vars(one)["code"], one.getMessage()) for one in found]
    assert shown == [
        ("acme", "127.0.0.1", "route_not_found", "POST /v1/nowhere was refused: route_not_found"),
        (None, "127.0.0.1", "unauthenticated", "WebSocket /v1/stream was refused: unauthenticated"),
    ]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_failed_authentication_is_limited_by_address() -> None:
    """After a burst, requests without a valid key are refused as too many; those with one are always served."""

    async def main() -> None:
        clock = FakeClock()
        limits = CallLimits(auth_failures_per_second=1)
        async with opened(requires_auth=True, limits=limits, clock=clock) as server:
            good = await server.key(Grant(right="admin"))
            statuses = [(await server.post("queue/stats", key="fl_a_b")).status_code for _ in range(10)]
            assert statuses == [401] * 10
            answer = await server.post("queue/stats", {"queue": "orders"}, key="fl_a_b")
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limited")
            assert "auth_failures_per_second is 1" in answer.json()["error"]["cause"]
            assert (await server.post("queue/stats", {"queue": "orders"}, key=good)).status_code == 200
            clock.advance(1_000)
            assert (await server.post("queue/stats", key="fl_a_b")).status_code == 401

    run(main())


def test_failures_of_others_do_not_concern_an_authenticated_connection() -> None:
    """Behind one address, a connection that has shown its API key is served while another one guesses."""

    async def main() -> None:
        async with listening(CallLimits(auth_failures_per_second=1), requires_auth=True) as server:
            good, bad = await server.connect(), await server.connect()
            key = await server.key()
            assert (await good.ask("/v1/queue/stats", {"queue": "orders"}, key=key)).status == 200
            for _ in range(100):  # ten at once, then one per second
                last = await bad.ask("/v1/queue/stats", {"queue": "orders"}, key="fl_a_b")
            assert last.status == 429
            assert (await good.ask("/v1/queue/stats", {"queue": "orders"}, key=key)).status == 200

    run(main())


def test_a_connection_that_has_shown_an_api_key_may_not_guess_others() -> None:
    """Failures count against the address on every connection; with its own API key the client is still served."""

    async def main() -> None:
        async with listening(CallLimits(auth_failures_per_second=1), requires_auth=True) as server:
            wire, key = await server.connect(), await server.key()
            assert (await wire.ask("/v1/queue/stats", {"queue": "orders"}, key=key)).status == 200
            for _ in range(30):
                last = await wire.ask("/v1/queue/stats", {"queue": "orders"}, key="fl_a_b")
            assert last.status == 429
            assert (await wire.ask("/v1/queue/stats", {"queue": "orders"}, key=key)).status == 200

    run(main())


def test_a_caller_without_a_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Fields without a value don't appear."""
    log = RefusalLog(1, now_ms=FakeClock().now_ms)
    with caplog.at_level(logging.INFO, "fairlane.access"):
        log.note("stats", RouteNotFound("No."), caller=Caller("ann"), address=None)
    assert (
        LineFormatter(is_json=False)
        .format(caplog.records[0])
        .endswith("stats was refused: route_not_found code=route_not_found caller=ann")
    )
