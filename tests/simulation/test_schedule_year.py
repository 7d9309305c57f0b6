"""Every tick of every schedule fires exactly once, whatever happens to the nodes."""

from __future__ import annotations

import pytest

from tests.kit.schedule_year import ScheduleYear, YearReport


def run(seed: int, *, schedules: int, days: int, failures: int) -> YearReport:
    """Run a simulation, print what it did, and check it."""
    report = ScheduleYear(seed, schedules=schedules, days=days, failures=failures).run()
    print(report)
    assert report.wrong == {}
    assert report.fired == report.expected
    assert (report.missed, report.mislabelled) == (0, 0)
    assert report.kills.total() == failures
    return report


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_tick_of_a_month_fires_once(seed: int) -> None:
    """100 schedules in eight time zones over 30 days with 60 kills, hung nodes and takeovers fire each tick once."""
    report = run(seed, schedules=100, days=30, failures=60)
    assert report.fired > 1_000
    assert report.fenced > 0


@pytest.mark.long
@pytest.mark.timeout(3600)  # eight minutes of CPU, on cores that may be shared
def test_every_tick_of_a_year_fires_once() -> None:
    """1,000 schedules in eight time zones over a year with its clock changes, and 500 failures, fire each tick once."""
    report = run(2026, schedules=1_000, days=365, failures=500)
    assert report.fired > 300_000
    assert report.fenced > 50
