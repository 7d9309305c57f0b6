"""The metrics of a real server are exactly those of the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from tests.kit.waiting import wait_until

from .server_process import HttpClient, ServerProcess, serving

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `((?:fairlane|process)_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
SCRIPT = 'function on_enqueue(msg) return { fairness_key = "scripted" } end'


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Return type and labels of each metric of a server in the reference."""
    rows = ROW.findall(PAGE.read_text().partition("\n## Pipeline\n")[0])
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def live_a_little(http: HttpClient) -> None:
    """Cause every kind of event that is counted."""

    def do(path: str, **body: Any) -> Any:
        answer = http.post(f"/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    policy = {"on_enqueue": SCRIPT, "max_attempts": 1, "visibility_timeout_ms": 60_000}
    do("queues/create", queue="orders", policy=policy)
    do("config/set", values={"throttle:smtp:rate": "1000"})
    news = [{"throttles": ["smtp"]}, {}, {}]
    do("queue/enqueue", queue="orders", messages=news)
    leased = do("queue/dequeue", queue="orders", count=3)["deliveries"]
    receipts = [{"id": each["id"], "token": each["token"]} for each in leased]
    do("queue/ack", queue="orders", receipts=receipts[:1])
    do("queue/nack", queue="orders", receipts=receipts[1:2])
    do("queues/pause", queue="orders")
    assert http.post("/queue/stats", json={"queue": "none"}).status_code == 404


def fire_a_schedule(http: HttpClient) -> None:
    """Set a schedule that fires every second, and wait until it has."""
    often = {"queue": "reports", "name": "often"}
    http.post("/queues/create", json={"queue": "reports"})
    http.post("/schedules/set", json={**often, "spec": {"every_ms": 1_000}})
    wait_until(lambda: http.post("/schedules/get", json=often).json()["fired"] > 0, what="the schedule fires")


def families(text: str, parse: Any) -> dict[str, tuple[str, frozenset[str]]]:
    """Return type and labels of each metric, under the name of its samples."""
    found = {}
    for family in parse(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, frozenset(labels))
    return found


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on which every kind of event has happened."""
    with serving(tmp_path_factory.mktemp("busy") / "data") as server:
        with server.http() as http:
            live_a_little(http)
            fire_a_schedule(http)
        yield server


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_the_reference_lists_exactly_the_metrics_of_a_server(busy: ServerProcess, kind: str) -> None:
    """Names, types and labels match the reference in both formats, as Prometheus' own parsers read them."""
    with busy.http() as http:
        answer = http.get(f"http://{busy.address}/metrics", headers={"accept": kind})
    assert answer.headers["content-type"].startswith(kind)
    found = families(answer.text, open_metrics if "openmetrics" in kind else prometheus_text)
    assert found == documented()


def test_counters_grow_and_start_at_zero_after_a_restart(tmp_path: Path) -> None:
    """Counters grow with messages, and a restarted server has recovered once."""

    def value(text: str, name: str, **labels: str) -> float:
        samples = [sample for family in prometheus_text(text) for sample in family.samples]
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())

    with serving(tmp_path / "data") as server:
        with server.http() as http:
            live_a_little(http)
            text = http.get(f"http://{server.address}/metrics").text
        assert value(text, "fairlane_messages_total", event="enqueued", queue="orders") == 3
        assert value(text, "fairlane_messages_total", event="leased") == 3
        assert value(text, "fairlane_messages_total", event="dead", reason="max_attempts") == 1
        assert value(text, "fairlane_delivery_wait_seconds_count", queue="orders") == 3
        assert value(text, "fairlane_throttle_decisions_total", throttle="smtp", decision="passed") == 1
        assert value(text, "fairlane_hook_calls_total", queue="orders") == 3
        assert value(text, "fairlane_hook_seconds_count", queue="orders") == 3
        assert value(text, "fairlane_queue_paused", queue="orders") == 1
        assert value(text, "fairlane_key_served_total", queue="orders", key="scripted") == 3
        assert value(text, "fairlane_key_messages", queue="orders", key="scripted") == 1
        assert value(text, "fairlane_commit_seconds_count") == value(text, "fairlane_commits_total") >= 6
        server.kill()
        server.start()
        with server.http() as http:
            text = http.get(f"http://{server.address}/metrics").text
        assert value(text, "fairlane_recoveries_total") == 1
        assert value(text, "fairlane_recovery_seconds") > 0
        assert value(text, "fairlane_messages_total", event="enqueued") == 0
        assert value(text, "fairlane_queue_leased", queue="orders") == 1
