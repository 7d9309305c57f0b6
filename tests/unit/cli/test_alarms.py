"""The command ``alarms``."""

from __future__ import annotations

from pathlib import Path

from fairlane.alarms import AlarmWatch
from tests.unit.alarms.alarm_tables import DAY, NOW_MS, set_horizon
from tests.unit.cli.shell import Shell
from tests.unit.report.written_tables import death, write


def test_alarms_are_shown_and_then_resolved(shell: Shell, tmp_path: Path) -> None:
    """The command shows what the last look has found, as a table or as JSON."""
    folder = tmp_path / "tables"
    write(folder, "dead_letters", DAY, [death("boom", count=1, first=NOW_MS - 1_000, keys=["a"], day_id="new")])
    set_horizon(folder)
    assert shell.ok("alarms", "--tables", str(folder)).out.strip() == "No alarms."
    AlarmWatch(folder).look()
    assert "A new error in orders, 1 dead letter: boom" in shell.ok("alarms", "--tables", str(folder)).out
    (alarm,) = shell.ok("-o", "json", "alarms", "--tables", str(folder)).json["raised"]
    assert (alarm["kind"], alarm["subject"]) == ("new_error", "new")
    set_horizon(folder, NOW_MS + 3_600_000)
    AlarmWatch(folder).look()
    assert shell.ok("alarms", "--tables", str(folder)).out.startswith("No alarms up to 2026-03-02")
    assert "boom" in shell.ok("alarms", "--tables", str(folder), "--resolved").out


def test_tables_that_do_not_exist_are_refused(shell: Shell, tmp_path: Path) -> None:
    """The error says how to create them."""
    done = shell.run("alarms", "--tables", str(tmp_path / "none"))
    assert done.code == 1
    assert "fairlane pipeline run" in done.err
