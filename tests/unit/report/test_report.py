"""A report says what the tables say, in every form, and nothing in it is taken for more than text."""

from __future__ import annotations

import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from fairlane.report import Period, make_report
from tests.unit.report.written_tables import FIRST, HOSTILE, share, usage, write, write_all


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    write_all(folder)
    return folder


def sections(tables: Path, tmp_path: Path, **period: Any) -> dict[str, list[dict[str, Any]]]:
    """Make a report, and return its sections as its JSON has them."""
    make_report(tables, tmp_path / "out", period=Period(**period), formats=("json",))
    found: dict[str, list[dict[str, Any]]] = json.loads((tmp_path / "out" / "report.json").read_text())["sections"]
    return found


def test_usage_is_added_up_over_days(tables: Path, tmp_path: Path) -> None:
    """A tenant's cost and messages of all days are in one row, the largest cost first."""
    rows = sections(tables, tmp_path)["usage"]
    assert [(row["key"], row["cost_true"], row["acked"], row["dead"]) for row in rows] == [
        ("acme", 200, 85, 1),
        (HOSTILE, 0, 9, 0),
    ]


def test_shares_stand_beside_what_was_entitled(tables: Path, tmp_path: Path) -> None:
    """Of 100 served, acme had 90; it was entitled to half of the first 40 and to all of the other 60."""
    rows = sections(tables, tmp_path)["shares"]
    assert [(row["key"], row["share"], row["entitled_share"], row["weight"]) for row in rows] == [
        ("acme", 0.9, 0.8, 3),
        (HOSTILE, 0.1, 0.2, 1),
    ]


def test_waits_are_merged_and_their_reasons_added_up(tables: Path, tmp_path: Path) -> None:
    """Percentiles are those of all values together, and the reasons are those of all messages, open ones too."""
    rows = sections(tables, tmp_path)["waits"]
    acme = next(row for row in rows if row["key"] == "acme")
    assert (acme["handed_out"], acme["wait_p50_ms"], acme["wait_p99_ms"], acme["wait_max_ms"]) == (6, 1, 60, 60)
    assert (acme["turn_ms"], acme["throttled_ms"], acme["delayed_ms"]) == (21, 9, 3)


def test_neighbours_leave_out_what_a_tenant_did_to_itself(tables: Path, tmp_path: Path) -> None:
    """Of 1,200 ms that it waited in all, 300 fall to acme; pairs that are not in the table count in the whole."""
    (row,) = sections(tables, tmp_path)["neighbours"]
    assert (row["victim"], row["neighbour"], row["delay_ms"], row["part"]) == (HOSTILE, "acme", 300, 0.25)


def test_the_same_error_on_two_days_is_one_kind(tables: Path, tmp_path: Path) -> None:
    """Deaths of one signature are added up, with the first and last instant and all the tenants hit."""
    (row,) = sections(tables, tmp_path)["dead_letters"]
    assert (row["count"], row["redriven"], row["keys"]) == (5, 2, "a, b, c")
    assert (row["first_seen_ms"], row["last_seen_ms"]) == (100, 90_000_010)


def test_fairness_of_a_queue_is_weighted_by_what_was_served(tables: Path, tmp_path: Path) -> None:
    """Forty served at one half and sixty at one make four fifths."""
    (row,) = sections(tables, tmp_path)["queues"]
    assert row["jain"] == pytest.approx(0.8)
    assert (row["enqueued"], row["acked"], row["wait_p99_ms"]) == (105, 94, 60)


def test_a_flood_is_noisy_also_if_it_is_refused(tables: Path, tmp_path: Path) -> None:
    """Flood wants 900 of 1,100 and most of it is refused; the four others want 50 each and get it."""
    quiet = ("a", "b", "c", "d")
    write(
        tables,
        "tenant_usage",
        "2026-03-04",
        [usage("mail", "flood", enqueued_cost=200, refused_cost=700)]
        + [usage("mail", key, enqueued_cost=50) for key in quiet],
    )
    write(
        tables,
        "fairness_keys",
        "2026-03-04",
        [share("mail", "flood", 0, 100, 100.0)] + [share("mail", key, 0, 50, 50.0) for key in quiet],
    )
    (row,) = [row for row in sections(tables, tmp_path)["noisy"] if row["queue"] == "mail"]
    assert (row["key"], row["times"], row["refused_cost"]) == ("flood", 9.0, 700)
    assert row["wanted_part"] == pytest.approx(900 / 1_100)
    make_report(tables, tmp_path / "out")
    summary = (tmp_path / "out" / "report.md").read_text().partition("## ")[0]
    named = "flood was noisy in mail in the hour from 1970-01-01 00:00:00 UTC"
    assert f"{named}: 81.8 % of all work was its, 9.0 times its share" in summary


def test_a_tenant_that_is_served_while_others_wait_is_not_accused(tables: Path, tmp_path: Path) -> None:
    """The flooder waits longest, on its own backlog. A neighbour that was served meanwhile took only its share."""
    write(tables, "tenant_usage", "2026-03-04", [usage("fair", "big", enqueued_cost=100), usage("fair", "small")])
    write(
        tables,
        "fairness_keys",
        "2026-03-04",
        [share("fair", "big", 0, 60, 60.0, waited_ms=90_000), share("fair", "small", 0, 40, 40.0)],
    )
    pair = {"queue": "fair", "victim": "big", "neighbour": "small", "hour_ms": 0, "victim_waited_ms": 90_000}
    write(tables, "noisy_neighbours", "2026-03-04", [pair | {"delay_ms": 40_000, "neighbour_leases": 4_000}])
    found = sections(tables, tmp_path)
    assert [row for row in found["noisy"] + found["deprived"] if row["queue"] == "fair"] == []


def test_a_victim_got_less_while_another_got_more(tables: Path, tmp_path: Path) -> None:
    """Of 100 served, greedy had 80 and poor 20, and each was entitled to half."""
    rows = [share("unfair", "greedy", 0, 80, 50.0), share("unfair", "poor", 0, 20, 50.0)]
    write(tables, "fairness_keys", "2026-03-04", rows)
    make_report(tables, tmp_path / "out")
    summary = (tmp_path / "out" / "report.md").read_text()
    named = "poor received 20.0 % of the service of unfair in the hour from 1970-01-01 00:00:00 UTC"
    assert f"{named}, less than the 50.0 % that it was entitled to" in summary


HOUR = 3_600_000


def write_day(tables: Path, floods: dict[int, int], *, served: int = 20) -> None:
    """Write a day in which three tenants bring 100 an hour and get them, and flood in some hours more than it gets."""
    quiet = [(key, at * HOUR) for key in "abc" for at in range(24)]
    usages = [usage("mail", key, enqueued_cost=100) | {"hour_ms": at_ms} for key, at_ms in quiet]
    usages += [usage("mail", "flood", enqueued_cost=cost) | {"hour_ms": at * HOUR} for at, cost in floods.items()]
    shares = [share("mail", key, at_ms, 100, 100.0) for key, at_ms in quiet]
    shares += [share("mail", "flood", at * HOUR, served, float(served)) for at in range(24)]
    write(tables, "tenant_usage", "2026-03-04", usages)
    write(tables, "fairness_keys", "2026-03-04", shares)


def named(tables: Path, tmp_path: Path, section: str, queue: str = "mail") -> list[tuple[Any, ...]]:
    """Return who is named in a section, in how many hours, and when in the worst."""
    rows = sections(tables, tmp_path)[section]
    return [(row["key"], row["hours"], row["worst_ms"] // HOUR) for row in rows if row["queue"] == queue]


def test_a_flood_of_ten_minutes_is_noisy_in_its_hour(tables: Path, tmp_path: Path) -> None:
    """Over the day it wants less than a tenth of the capacity too much, but in its hours far more."""
    write_day(tables, {3: 220, 9: 250})
    assert named(tables, tmp_path, "noisy") == [("flood", 2, 9)]
    make_report(tables, tmp_path / "out")
    summary = (tmp_path / "out" / "report.md").read_text().partition("## ")[0]
    assert "flood was noisy in mail in the hour from 1970-01-01 09:00:00 UTC, the worst of 2: " in summary


def test_a_batch_that_is_served_within_the_next_hour_is_no_flood(tables: Path, tmp_path: Path) -> None:
    """A batch just before the full hour looks like a backlog, but there were consumers for it."""
    write_day(tables, {3: 220}, served=220)
    assert named(tables, tmp_path, "noisy") == []
    write(tables, "tenant_usage", "2026-03-04", [usage("late", key, enqueued_cost=100) for key in "abc"])
    write(tables, "tenant_usage", "2026-03-04", [usage("late", "batch", enqueued_cost=1_000)])
    rows = [share("late", key, 0, 100, 100.0) for key in "abc"]
    rows += [share("late", "batch", 0, 10, 10.0), share("late", "batch", HOUR, 990, 990.0)]
    write(tables, "fairness_keys", "2026-03-04", rows)
    assert named(tables, tmp_path, "noisy", "late") == []


def test_a_run_of_several_hours_lacks_where_others_were_served(tables: Path, tmp_path: Path) -> None:
    """A tenant that waits quietly for three hours is a victim of the one in which another was served its share."""
    rows = [
        share("still", "poor", 0, 0, 50.0, until_ms=3 * HOUR),
        share("still", "greedy", HOUR, 100, 50.0),
    ]
    write(tables, "fairness_keys", "2026-03-04", rows)
    assert named(tables, tmp_path, "deprived", "still") == [("poor", 1, 1)]
    (row,) = [row for row in sections(tables, tmp_path)["deprived"] if row["queue"] == "still"]
    assert (row["share"], row["entitled_share"]) == (0.0, 0.5)


def test_csv_holds_every_row_and_no_formula(tables: Path, tmp_path: Path) -> None:
    """A name that a spreadsheet would take for a formula is made text."""
    write(tables, "tenant_usage", "2026-03-03", [usage("orders", "=1+1", enqueued=1)])
    make_report(tables, tmp_path / "out", formats=("csv",))
    rows = list(csv.DictReader((tmp_path / "out" / "csv" / "usage.csv").read_text().splitlines()))
    assert [row["key"] for row in rows] == ["acme", HOSTILE, "'=1+1"]
    assert rows[0]["cost_true"] == "200"


def test_the_summary_says_who_and_why(tables: Path, tmp_path: Path) -> None:
    """People in a hurry read who waited longest, and what died."""
    make_report(tables, tmp_path / "out", formats=("md",))
    summary = (tmp_path / "out" / "report.md").read_text()
    assert "acme waited longest in orders: p99 60 ms, p50 1 ms, mostly waiting for its turn." in summary
    assert "5 messages were dead-lettered with 1 kinds of error" in summary


def test_the_same_tables_give_the_same_files(tables: Path, tmp_path: Path) -> None:
    """A report can be made again, and compared."""
    first = {path.name: path.read_bytes() for path in make_report(tables, tmp_path / "one")}
    assert {path.name: path.read_bytes() for path in make_report(tables, tmp_path / "two")} == first


def test_a_folder_without_tables_and_a_format_unknown_are_refused(tables: Path, tmp_path: Path) -> None:
    """Both errors say what to do."""
    with pytest.raises(InvalidArgument, match="fairlane pipeline run"):
        make_report(tmp_path, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="html, md, json, csv"):
        make_report(tables, tmp_path / "out", formats=("pdf",))
    with pytest.raises(InvalidArgument, match="is after the last"):
        Period(first_day=date(2026, 3, 2), last_day=date(2026, 3, 1))


def test_changes_of_settings_are_listed_with_their_outcome(tables: Path, tmp_path: Path) -> None:
    """Each change names its owner and reason, and the next change of the same value tells what became of it."""
    told: list[tuple[str, str | None, str | None, str | None, int | None]] = [
        ("weight:orders:acme", "4", "tune", "tried: wait_p99:acme<=1s", 900),
        ("weight:orders:acme", "4", "tune", "kept: the targets are met", 9_000),
        ("weight:orders:beta", "9", "tune", "tried: wait_p99:acme<=1s", 900),
        ("weight:orders:beta", None, "tune", "rolled back: acme is 20% worse, more than 10%", None),
        ("weight:orders:acme", None, "tune", "expiry", None),
        ("weight:mail:acme", "2", None, None, None),
        ("auth:key:1", "secret", None, None, None),
    ]
    rows = [
        {
            **dict(zip(("name", "value", "owner", "reason", "expires_ms"), row, strict=True)),
            "kind": "config_set",
            "journal_id": "j",
            "sequence": at,
            "at_ms": at,
            "queue": None,
            "by": "ann",
        }
        for at, row in enumerate(told)
    ]
    write(tables, "events", FIRST, rows)
    found = sections(tables, tmp_path)["settings"]
    assert [(row["setting"], row["value"], row["owner"], row["outcome"]) for row in found] == [
        ("weight:orders:acme", "4", "tune", "kept"),
        ("weight:orders:acme", "4", "tune", "expired"),
        ("weight:orders:beta", "9", "tune", "rolled back"),
        ("weight:orders:beta", "removed", "tune", "in force"),
        ("weight:orders:acme", "removed", "tune", "in force"),
        ("weight:mail:acme", "2", "ann", "in force"),
    ]
    assert {row["setting"] for row in sections(tables, tmp_path, queue="mail")["settings"]} == {"weight:mail:acme"}
