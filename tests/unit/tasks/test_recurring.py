"""Tests of tasks that schedules send."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from fairlane.errors import InvalidArgument
from fairlane.model.schedules import ScheduleSpec
from fairlane.tasks import App

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_schedules_send_tasks_in_virtual_time() -> None:
    """A cron expression in a time zone and an interval fire at their times while the test advances."""
    app = App()
    ran: list[tuple[str, datetime]] = []

    with app.testing(now=NOW) as harness:

        @app.task(queue="reports", cron="30 6 * * *", timezone="Europe/Berlin")
        async def nightly(days: int = 1) -> None:
            ran.append((f"nightly {days}", harness.now))

        @app.task(queue="reports", every="12h")
        def refresh() -> None:
            ran.append(("refresh", harness.now))

        harness.advance("24h")
    assert ran == [
        ("refresh", datetime(2026, 3, 2, 0, tzinfo=UTC)),
        ("nightly 1", datetime(2026, 3, 2, 5, 30, tzinfo=UTC)),
        ("refresh", datetime(2026, 3, 2, 12, tzinfo=UTC)),
    ]


def test_an_operators_schedule_stays_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A schedule that exists keeps its expression, and the log names both."""
    app = App()

    @app.task(queue="reports", cron="30 6 * * *")
    def nightly() -> None: ...

    with app.testing(now=NOW) as harness, caplog.at_level(logging.WARNING, "fairlane.worker"):
        harness.run()
        spec = harness.client.get_schedule("reports", "nightly").spec
        harness.client.set_schedule("reports", "nightly", type(spec)(cron="0 7 * * *", message=spec.message))
        harness.run()
        assert harness.client.get_schedule("reports", "nightly").spec.cron == "0 7 * * *"
    assert "has cron='0 7 * * *', and the program declares '30 6 * * *'" in caplog.text


def test_a_changed_declaration_changes_the_schedule() -> None:
    """A worker that starts with another expression and other options of a task changes its schedule."""

    app = App()

    @app.task(queue="reports", cron="0 7 * * *", catch_up="all", overlap="skip", jitter="5m")
    def nightly() -> None: ...

    with app.testing(now=NOW) as harness:
        harness.client.create_queue("reports")
        harness.client.ensure_schedule("reports", "nightly", ScheduleSpec(cron="30 6 * * *"))  # as it was declared
        harness.run()
        spec = harness.client.get_schedule("reports", "nightly").spec
    assert (spec.cron, spec.catch_up, spec.overlap, spec.jitter_ms) == ("0 7 * * *", "all", "skip", 300_000)


def test_a_task_that_no_schedule_can_send_is_refused() -> None:
    """A parameter without a default, or an interval that is none, is refused when the task is registered."""
    app = App()
    with pytest.raises(InvalidArgument, match="order_id"):

        @app.task(cron="0 6 * * *")
        def nightly(order_id: int) -> None: ...

    with pytest.raises(InvalidArgument, match="every: Invalid duration"):

        @app.task(every="often")
        def refresh() -> None: ...
