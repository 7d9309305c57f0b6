"""From tables to the board and to a webhook that listens on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane.alarms import AlarmWatch, Webhook, read_board
from fairlane.errors import InvalidArgument, StoreCorrupt
from fairlane.lakehouse import Lakehouse, parse_address
from tests.unit.alarms.alarm_tables import DAY, DAY_BEFORE, DAY_MS, HOUR_MS, NOW_MS, set_horizon
from tests.unit.report.written_tables import death, write


def row(tenant: str, minutes_ago: int, *, served: int, entitled: float, minutes: int = 1) -> dict[str, Any]:
    """Return what a tenant was served in some minutes, as ``fairness_keys`` tells it."""
    from_ms = NOW_MS - minutes_ago * 60_000
    until_ms = from_ms + minutes * 60_000
    told = {"queue": "orders", "top_key": tenant, "from_ms": from_ms, "until_ms": until_ms}
    return told | {"served_cost": served, "entitled_cost": entitled}


def hour(number: int, p99_ms: int, *, leases: int = 100) -> dict[str, Any]:
    """Return the waits of acme in an hour of the day, as ``latency`` tells them."""
    told = {"queue": "orders", "key": "acme", "hour_ms": DAY_MS + number * HOUR_MS}
    return told | {"handed_out": leases, "wait_p99_ms": p99_ms}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Tables with one alarm of each kind, and much that is none."""
    folder = tmp_path / "tables"
    unfair = [row("noisy", 5, served=80, entitled=30.0), row("quiet", 5, served=20, entitled=70.0)]
    long_ago = [row("calm", 90, served=900, entitled=10.0)]
    half = [row("slow", 20, served=0, entitled=20.0, minutes=20)]
    write(folder, "fairness_keys", DAY, [*unfair, *long_ago, *half])
    write(folder, "latency", DAY, [*[hour(number, 200) for number in range(10, 20)], hour(20, 5_000)])
    recent = [death("never seen", count=2, first=NOW_MS - 1_000, keys=["a"], day_id="new")]
    known = [death("known", count=9, first=NOW_MS - 1_000, keys=["a"], day_id="known")]
    write(folder, "dead_letters", DAY, [*recent, *known])
    write(folder, "dead_letters", DAY_BEFORE, [death("known", count=1, first=DAY_MS - 5, keys=["a"], day_id="known")])
    set_horizon(folder)
    return folder


class Listener:
    """A webhook: what it was told, and the status that it answers with."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.status = 200
        self.url = ""


@contextmanager
def listening() -> Iterator[Listener]:
    """Listen on a free port while the context lasts."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            listener.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(listener.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    listener.url = f"http://127.0.0.1:{server.server_address[1]}/hook?token=secret"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


EXPECTED = [
    "noisy got 80% of the service of orders in the last 10 minutes and was entitled to 30%.",
    "acme waits longer in orders: p99 is 5,000 ms, and 200 ms is usual.",
    "A new error in orders, 2 dead letters: never seen",
]


def test_tables_give_rise_to_alarms(tables: Path) -> None:
    """One of each kind is found; service long ago and an error of the day before are none."""
    board = AlarmWatch(tables).look()
    assert sorted(alarm.text for alarm in board.raised) == sorted(EXPECTED)
    assert read_board(tables) == board


def test_a_webhook_is_told_once(tables: Path) -> None:
    """The first look tells all, the second nothing, and what is over is told as resolved."""
    with listening() as listener:
        watch = AlarmWatch(tables, webhook=Webhook(listener.url))
        watch.look()
        watch.look()
        (told,) = listener.told
        assert sorted(told["text"].splitlines()) == sorted(f"Alarm: {text}" for text in EXPECTED)
        assert {alarm["kind"] for alarm in told["raised"]} == {"above_entitlement", "slower", "new_error"}
        set_horizon(tables, NOW_MS + 4 * HOUR_MS)
        watch.look()
        over = {each["alarm"]["kind"] for each in listener.told[1]["resolved"]}
        assert over == {"above_entitlement", "slower", "new_error"}
        assert listener.told[1]["raised"] == []
    assert not read_board(tables).raised


def test_a_webhook_that_fails_is_told_later(tables: Path) -> None:
    """News wait in the file, also for another process, until the webhook accepts them."""
    lines: list[str] = []
    with listening() as listener:
        listener.status = 503
        watch = AlarmWatch(tables, webhook=Webhook(listener.url), tell=lines.append)
        watch.look()
        assert watch.is_behind
        assert len(read_board(tables).untold.raised) == len(EXPECTED)
        assert lines[-1] == "The webhook at 127.0.0.1 answered with status 503. The alarms will be sent again."
        listener.status = 204
        again = AlarmWatch(tables, webhook=Webhook(listener.url))
        assert not again.look().untold
        assert not again.is_behind
        assert len(listener.told[1]["raised"]) == len(EXPECTED)
        assert "secret" not in repr(Webhook(listener.url)) + "".join(lines)


def test_without_a_webhook_nothing_waits(tables: Path) -> None:
    """Alarms are on the board, and a webhook that is added later is told what is new by then."""
    assert AlarmWatch(tables).look().untold.lines() == []
    with listening() as listener:
        AlarmWatch(tables, webhook=Webhook(listener.url)).look()
        assert listener.told == []


def test_a_look_that_failed_is_behind(tables: Path) -> None:
    """The follower looks again after a failure, though the run that repeats it finds nothing new."""
    watch = AlarmWatch(tables)
    (tables / "alarms.json").write_text("{")
    with pytest.raises(StoreCorrupt):
        watch.look()
    assert watch.is_behind
    (tables / "alarms.json").unlink()
    watch.look()
    assert not watch.is_behind


@pytest.mark.parametrize("url", ["", "example.com/hook", "ftp://example.com", "http://"])
def test_what_is_no_webhook_is_refused(url: str) -> None:
    """Only http and https addresses with a host are accepted, before anything runs."""
    with pytest.raises(InvalidArgument, match="Invalid webhook"):
        Webhook(url)


def test_a_damaged_board_is_told(tables: Path) -> None:
    """It is never overwritten in silence."""
    (tables / "alarms.json").write_text("{")
    with pytest.raises(StoreCorrupt, match=r"Delete it, and the next run writes it again"):
        AlarmWatch(tables).look()
    (tables / "alarms.json").write_text('{"version": 9}')
    with pytest.raises(StoreCorrupt, match="version 9"):
        read_board(tables)


def test_before_the_first_run_there_are_no_alarms(tmp_path: Path) -> None:
    """A pipeline that follows an empty broker has no tables yet, and goes on."""
    watch = AlarmWatch(tmp_path / "tables", webhook=Webhook("http://127.0.0.1:9/"))
    assert watch.look().raised == ()
    assert not (tmp_path / "tables").exists()


def test_empty_tables_have_no_alarms(tmp_path: Path) -> None:
    """A manifest without any table is enough."""
    write(tmp_path, "sla", DAY, [{"queue": "orders"}])
    assert AlarmWatch(tmp_path).look().raised == ()
    assert msgspec.json.decode(Lakehouse(parse_address(tmp_path)).storage.read("alarms.json").data)["version"] == 1  # type: ignore[union-attr] # it was just written
