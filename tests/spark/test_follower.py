"""The follower goes on through failures that may pass, and its metrics say how fresh the tables are."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkException

from fairlane.errors import Disconnected, FairlaneError, InvalidArgument, JournalTrimmed, StoreLocked
from fairlane.spark.pipeline import RunReport
from fairlane.spark.pipeline.follower import follow
from fairlane.spark.pipeline.journals import Covered, JournalCoverage
from fairlane.spark.pipeline.metrics import PipelineMetrics, served
from tests.kit.waiting import PATIENCE_S

NEWS, IDLE = 3, 0
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(fairlane_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


class FakeTime:
    """A clock that passes only when it is waited for, and remembers the waits."""

    def __init__(self) -> None:
        self.at_s = 1_000.0
        self.waits: list[float] = []

    def now_s(self) -> float:
        return self.at_s

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at_s += seconds


class Stopped(Exception):
    """The test has seen enough."""


def report(events: int) -> RunReport:
    """Return what a run did that brought so many events."""
    day = date(2026, 1, 1) if events else None
    return RunReport(
        run=1,
        segments=min(events, 1),
        events=events,
        first_day=day,
        newest_day=day,
        horizon_ms=990_000,
        gaps=(),
        journals=(JournalCoverage(journal_id="j", group="g", covered=(Covered(1, 7),)),),
    )


def scripted(time: FakeTime, *steps: Exception | int) -> Callable[[], RunReport]:
    """Return a run that fails or succeeds as told, takes two seconds, and ends the test after the last step."""
    left: Iterator[Exception | int] = iter(steps)

    def run() -> RunReport:
        step = next(left, Stopped())
        time.at_s += 2
        if isinstance(step, Exception):
            raise step
        return report(step)

    return run


def followed(*steps: Exception | int) -> tuple[FakeTime, PipelineMetrics, list[RunReport], list[str]]:
    """Follow a script to its end, and return the clock, the metrics, the reports and what was told."""
    time, told, reports = FakeTime(), list[str](), list[RunReport]()
    metrics = PipelineMetrics(time.now_ms)
    with pytest.raises(Stopped):
        reports.extend(
            done for done in follow(scripted(time, *steps), interval_s=5, pace=time, metrics=metrics, tell=told.append)
        )
    return time, metrics, reports, told


def values(metrics: PipelineMetrics) -> dict[str, float]:
    """Return the samples as Prometheus reads them."""
    found = {}
    for family in text_string_to_metric_families(metrics.text()):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[sample.name.removeprefix("fairlane_pipeline_") + (f"[{labels}]" if labels else "")] = sample.value
    return found


def test_failures_that_may_pass_are_retried_with_longer_and_longer_waits() -> None:
    """A server that is away, another run at work and a failed job are waited out; then the interval counts again."""
    away = Disconnected("Cannot reach http://queue: refused.")
    failed = PySparkException("Job aborted\nlong trace")
    time, _, _, told = followed(NEWS, away, StoreLocked("Another process."), failed, away, NEWS, away, IDLE)
    assert time.waits == [5, 1, 2, 4, 8, 5, 1, 5]
    assert told[0] == "Attempt 1 failed; retrying in 1 s. Cannot reach http://queue: refused."
    assert told[2] == "Attempt 3 failed; retrying in 4 s. A Spark job failed: Job aborted"
    assert told[4] == "A run succeeded after 4 failed attempts."
    assert told[-1] == "The tables are up to date with run 1. Looking for new events every 5 s."


def test_a_wait_is_never_longer_than_a_minute() -> None:
    """However often a run fails, a day long, the next one follows within a minute."""
    time, _, _, _ = followed(*[Disconnected("away")] * 1_500)
    assert time.waits == [1, 2, 4, 8, 16, 32, *[60] * 1_494]


@pytest.mark.parametrize("error", [InvalidArgument("No such folder."), JournalTrimmed("Gone.")])
def test_an_error_that_a_retry_can_not_help_ends_it(error: FairlaneError) -> None:
    """What only an operator can change is raised at once."""
    time = FakeTime()
    metrics = PipelineMetrics(time.now_ms)
    runs = follow(scripted(time, NEWS, error), interval_s=5, pace=time, metrics=metrics, tell=lambda _line: None)
    next(runs)
    with pytest.raises(type(error)):
        next(runs)
    assert time.waits == [5]


def test_idle_runs_are_told_once_and_yield_nothing() -> None:
    """A quiet journal gives one line, not one for each look."""
    _, _, reports, told = followed(NEWS, IDLE, IDLE, IDLE)
    assert ([done.events for done in reports], told) == (
        [3],
        ["The tables are up to date with run 1. Looking for new events every 5 s."],
    )


def test_metrics_tell_freshness_and_the_last_error() -> None:
    """The tables are fresh as of the start of the last successful look, however long ago the last event was."""
    fresh = values(followed(NEWS, IDLE, Disconnected("away"), Disconnected("away"))[1])
    assert fresh["fresh_timestamp_seconds"] == 1_007  # the second look began after a run of 2 s and a wait of 5 s
    assert fresh["event_timestamp_seconds"] == 990
    assert fresh["last_error_timestamp_seconds[disconnected]"] == 1_019
    assert (fresh["runs_total[updated]"], fresh["runs_total[idle]"], fresh["runs_total[failed]"]) == (1, 1, 2)
    assert (fresh["failures"], fresh["events_total"], fresh["sequence[g]"], fresh["run_seconds"]) == (2, 3, 7, 2)


def test_the_reference_lists_the_metrics() -> None:
    """Name, type and labels of each metric are those of the reference page."""
    section = PAGE.read_text().partition("\n## Pipeline\n")[2]
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(section)}
    text = followed(NEWS, Disconnected("away"))[1].text()
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, {label for sample in family.samples for label in sample.labels})
    assert found == told


def test_metrics_are_served_over_http() -> None:
    """A scrape of /metrics gets the metrics, and any other path is not found."""
    metrics = PipelineMetrics(FakeTime().now_ms)
    metrics.begin()
    metrics.succeed(report(3))
    with served(metrics, "127.0.0.1", 0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            assert "version=0.0.4" in answer.headers["Content-Type"]
            assert answer.read().decode() == metrics.text()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S)
        with pytest.raises(InvalidArgument, match="Cannot listen"), served(metrics, "127.0.0.1", port):
            pass
