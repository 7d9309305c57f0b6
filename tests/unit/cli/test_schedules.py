"""Tests of the commands ``schedule``."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fairlane.cli.schedules import moment
from fairlane.model.schedules import ScheduleSpec
from tests.unit.cli.shell import Shell

BERLIN = ("--cron", "0 7 * * MON-FRI", "--timezone", "Europe/Berlin")
DAY = datetime(2026, 11, 18, 12, tzinfo=UTC)
DAY_MS = int(DAY.timestamp()) * 1000


@pytest.fixture
def mail(shell: Shell) -> Shell:
    """Provide a shell whose broker has a queue."""
    shell.ok("queue", "create", "mail")
    return shell


def test_a_schedule_is_set_with_its_message(mail: Shell) -> None:
    """Every option ends up in the spec."""
    terms = ("--key", "acme/eu", "--header", "a=b", "--cost", "3", "--priority", "high", "--throttle", "smtp")
    limits = ("--from", "2027-01-01", "--until", "2027-12-31T23:00:00+0100", "--jitter", "1m")
    policies = (
        "--catch-up",
        "all",
        "--catch-up-max",
        "7",
        "--overlap",
        "skip",
        "--deadline",
        "1h",
        "--max-attempts",
        "2",
    )
    mail.ok("schedule", "set", "mail", "digest", "hello", *BERLIN, *terms, *limits, *policies)
    spec = mail.broker.get_schedule("mail", "digest").spec
    assert (spec.cron, spec.timezone, spec.catch_up, spec.catch_up_max) == (BERLIN[1], BERLIN[3], "all", 7)
    assert (spec.overlap, spec.jitter_ms) == ("skip", 60_000)
    assert spec.from_ms == int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1000
    assert spec.until_ms == int(datetime(2027, 12, 31, 22, tzinfo=UTC).timestamp()) * 1000
    message = spec.message
    assert (message.payload, message.fairness_key, message.headers) == (b"hello", ("acme", "eu"), {"a": "b"})
    assert (message.cost, message.priority, message.throttles) == (3, "high", ("smtp",))
    assert (message.deadline_ms, message.max_attempts) == (3_600_000, 2)


def test_setting_it_again_says_that_nothing_changed(mail: Shell) -> None:
    """The answer tells created, changed and unchanged apart, and when it fires next."""
    assert (
        'Created schedule "s" of queue "mail". Next: ' in mail.ok("schedule", "set", "mail", "s", "--every", "5m").out
    )
    assert mail.ok("schedule", "set", "mail", "s", "--every", "5m").out.startswith("No change of schedule")
    assert mail.ok("schedule", "set", "mail", "s", "--every", "6m").out.startswith("Changed schedule")


def test_schedules_are_listed_with_next_and_last_ticks(mail: Shell) -> None:
    """One line each: when it fires as it was set, its next tick in its own time zone, and its state."""
    mail.ok("schedule", "set", "mail", "digest", *BERLIN)
    mail.ok("schedule", "set", "mail", "ping", "--every", "5m")
    mail.ok("schedule", "pause", "mail", "ping")
    mail.ok("schedule", "set", "mail", "over", "--every", "5m", "--until", "2020-01-01")
    lines = mail.ok("schedule", "list").out.splitlines()
    assert lines[0].split() == ["QUEUE", "SCHEDULE", "WHEN", "NEXT", "LAST", "FIRED", "MISSED"]
    assert "0 7 * * MON-FRI Europe/Berlin" in lines[1]
    assert "07:00:00 CE" in lines[1]
    assert "ended" in lines[2]
    assert lines[3].split()[:5] == ["mail", "ping", "every", "5m", "paused"]
    assert mail.ok("schedule", "list", "mail").out.splitlines() == lines
    assert [each["name"] for each in mail.ok("-o", "json", "schedule", "list").json] == ["digest", "over", "ping"]


def test_a_schedule_is_shown_paused_run_and_deleted(mail: Shell) -> None:
    """The commands of its life, in order."""
    mail.ok("schedule", "set", "mail", "digest", "hello", *BERLIN)
    shown = mail.ok("schedule", "show", "mail", "digest", "--count", "3").out
    assert "payload   hello" in shown
    assert shown.split("Next ticks")[1].count("07:00:00") == 3
    message_id = mail.ok("schedule", "run", "mail", "digest").out.strip()
    assert mail.broker.lease("mail")[0].id == message_id
    mail.ok("schedule", "pause", "mail", "digest")
    assert "if it were not paused" in mail.ok("schedule", "show", "mail", "digest").out
    mail.ok("schedule", "resume", "mail", "digest")
    assert mail.ok("-o", "json", "schedule", "show", "mail", "digest").json["is_paused"] is False
    mail.ok("schedule", "delete", "mail", "digest", "--yes")
    assert mail.broker.schedules() == []
    assert mail.run("schedule", "show", "mail", "digest").code == 1


@pytest.mark.parametrize("options", [(), ("--cron", "0 7 * * *", "--every", "5m"), ("--every", "soon")])
def test_a_schedule_needs_either_an_expression_or_an_interval(mail: Shell, options: tuple[str, ...]) -> None:
    """Anything else is a usage error."""
    assert mail.run("schedule", "set", "mail", "s", *options).code == 2


def test_an_instant_is_shown_in_the_zone_of_its_schedule() -> None:
    """It is followed by how far away it is; a zone that this machine does not know is shown as UTC."""
    in_berlin = ScheduleSpec(cron="* * * * *", timezone="Europe/Berlin")
    assert moment(DAY_MS, in_berlin, DAY_MS - 90_000) == "Wed 2026-11-18 13:00:00 CET (in 1m30s)"
    assert moment(DAY_MS, in_berlin, DAY_MS + 7_200_000) == "Wed 2026-11-18 13:00:00 CET (2h ago)"
    assert moment(DAY_MS, ScheduleSpec(timezone="Mars"), DAY_MS) == "Wed 2026-11-18 12:00:00 UTC (in 0ms)"
    assert moment(None, in_berlin, DAY_MS) == "-"
