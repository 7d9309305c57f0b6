"""A report of incomplete days says so before anything else."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from fairlane.report import Period, make_report
from tests.unit.report.written_tables import FIRST, SECOND, write, write_all

FIRST_MS = 1_772_323_200_000
"""2026-03-01, midnight UTC."""
DAY_MS = 86_400_000


def write_gap(tables: Path, *, until_ms: int) -> None:
    """Write a gap of 491,101 sequences that begins on the first day."""
    row = {"from_sequence": 7, "until_sequence": 491_107, "from_ms": FIRST_MS + 5, "until_ms": until_ms}
    write(tables, "gaps", FIRST, [{"journal_id": "00000000000000aa", "group": "", **row}])


def test_a_gap_is_a_banner_on_the_page_and_in_the_summary(tmp_path: Path) -> None:
    """Page, summary, JSON and dashboard say how much is missing and on which days; whole tables say nothing."""
    write_all(tmp_path / "tables")
    make_report(tmp_path / "tables", tmp_path / "whole")
    assert json.loads((tmp_path / "whole" / "report.json").read_text())["warning"] == ""
    assert "Incomplete" not in (tmp_path / "whole" / "report.md").read_text()
    assert 'role="alert"' not in (tmp_path / "whole" / "report.html").read_text()

    write_gap(tmp_path / "tables", until_ms=FIRST_MS + DAY_MS + 1)
    make_report(tmp_path / "tables", tmp_path / "out")
    told = "Incomplete: 491,101 sequences of the journal are missing in 1 gap, which concerns 2026-03-01 to 2026-03-02."
    assert (tmp_path / "out" / "report.md").read_text().splitlines()[2].startswith(f"> **{told}")
    assert f'<p class="warning" role="alert">{told}' in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "report.json").read_text())["warning"].startswith(told)
    assert json.loads((tmp_path / "out" / "page.json").read_text())["findings"][0].startswith(told)


def test_only_a_period_that_a_gap_concerns_has_the_banner(tmp_path: Path) -> None:
    """A gap that begins before the period and lasts into it counts, and one that ends before it does not."""
    write_all(tmp_path / "late")
    write_gap(tmp_path / "late", until_ms=FIRST_MS + DAY_MS + 1)
    write_all(tmp_path / "early")
    write_gap(tmp_path / "early", until_ms=FIRST_MS + 10)
    period = Period(first_day=date.fromisoformat(SECOND))
    for name, is_told in (("late", True), ("early", False)):
        make_report(tmp_path / name, tmp_path / f"{name}-out", period=period, formats=("json",))
        warning = json.loads((tmp_path / f"{name}-out" / "report.json").read_text())["warning"]
        assert (f"concerns {SECOND}." in warning) == is_told
        assert bool(warning) == is_told
