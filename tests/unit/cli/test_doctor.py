"""Tests of the command ``doctor``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fairlane.assembly import open_broker
from fairlane.cli.doctor import certificate_finding, clock_finding, metric_findings, queue_findings, samples_of
from tests.unit.cli.shell import Shell

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_folder_is_checked(shell: Shell, tmp_path: Path) -> None:
    """A whole store is fine; a damaged one is wrong, with exit code 1."""
    folder = tmp_path / "data"
    with open_broker(folder / "store") as broker:
        broker.create_queue("jobs")
        broker.enqueue("jobs", b"x")
    found = shell.ok("--data", str(folder), "doctor", "-o", "json").json
    assert [(each["check"], each["state"]) for each in found][:1] == [("store", "ok")]
    assert {each["check"] for each in found} == {"store", "disk", "descriptors", "scheduler"}
    assert found[-1] == {"check": "scheduler", "state": "ok", "found": "plain Python"}
    (folder / "store" / "HIGH-WATER").unlink()
    outcome = shell.run("--data", str(folder), "doctor")
    assert outcome.code == 1
    assert "wrong" in outcome.out


class Metrics(BaseHTTPRequestHandler):
    """Answers with the status in the first part of the path, and with metrics if that is 200."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()
        self.wfile.write(b"fairlane_disk_free_bytes 90\nfairlane_disk_reserve_bytes 10\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """Yield the address of a server of metrics."""
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_node_that_does_not_answer_is_named_beside_the_others(shell: Shell) -> None:
    """A dead node and one that refuses its metrics are wrong; the rest of the table is there."""
    with serving() as gone:
        pass
    with serving() as server:
        ann, ben, cas = f"{server}/200", gone, f"{server}/403"
        outcome = shell.run("--server", f"{ann},{ben},{cas}", "doctor", "-o", "json")
    assert outcome.code == 1
    found = [(each["check"], each["state"], each["found"]) for each in outcome.json]
    assert ("disk", "ok", "90 B free; enqueues are refused below 10 B") in found
    wrong = [text for check, state, text in found if (check, state) == ("server", "wrong")]
    assert len(wrong) == 2
    assert wrong[0].startswith(f"{ben}: ")
    assert "Connection refused" in wrong[0]
    assert wrong[1] == f"{cas}: HTTP Error 403: Forbidden"


@pytest.mark.parametrize(("days", "state"), [(90, "ok"), (13, "warning"), (-1, "wrong")])
def test_a_certificate_is_reported_before_it_expires(days: int, state: str) -> None:
    """Two weeks before its end a certificate is a warning."""
    assert certificate_finding(NOW + timedelta(days=days), NOW).state == state


def test_clocks_that_differ_are_a_warning() -> None:
    """A few seconds do not matter."""
    assert [clock_finding(ahead_s).state for ahead_s in (-1, 4, 60, -60)] == ["ok", "ok", "warning", "warning"]


def test_metrics_are_judged() -> None:
    """A full disk is wrong; few descriptors, limits that are nearly reached, failed commits and bugs are warnings."""
    text = "# HELP x\nfairlane_disk_free_bytes 10\nfairlane_disk_reserve_bytes 20\nprocess_open_fds 90\n"
    text += "fairlane_waiting_used_ratio 0.05\nfairlane_waiting_bytes_used_ratio 0.93\n"
    text += 'process_max_fds 100\nfairlane_commit_failures_total 1\nfairlane_calls_total{verb="ack"} 3\n'
    found = {each.check: each.state for each in metric_findings(samples_of(text))}
    assert found == {
        "disk": "wrong",
        "descriptors": "warning",
        "waiting_max": "ok",
        "waiting_bytes_max": "warning",
        "commits": "warning",
        "internal errors": "ok",
    }


def test_queues_that_are_nearly_full_or_paused_are_named(shell: Shell) -> None:
    """Other queues are not mentioned."""
    shell.broker.create_queue("full", {"waiting_max": 2})
    shell.broker.create_queue("heavy", {"waiting_bytes_max": 100})
    for queue in ("full", "full", "jobs"):
        shell.broker.enqueue(queue, b"x")
    shell.broker.enqueue("heavy", bytes(90))
    shell.broker.lease("full")
    shell.broker.pause("jobs")
    found = [(each.check, each.found) for each in queue_findings(shell.broker.queues())]
    assert found == [
        ("queue full", "has 2 messages of waiting_max 2"),
        ("queue heavy", "has 90 B of waiting_bytes_max 100 B"),
        ("queue jobs", "paused, with 1 message waiting"),
    ]
