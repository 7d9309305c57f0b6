"""A report says what the tables say, in every form, and nothing in it is taken for more than text."""

from __future__ import annotations

import csv
import json
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fairlane.errors import InvalidArgument
from fairlane.report import Period, make_report
from tests.unit.report.written_tables import FIRST, HOSTILE, share, usage, write, write_all, write_table


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


def test_few_leases_make_no_noisy_neighbour(tables: Path, tmp_path: Path) -> None:
    """A neighbour with 20 leases, or with a hundredth of the waiting, is in the table and not among the findings."""
    pair = {"queue": "rare", "victim": "calm", "hour_ms": 0, "victim_waited_ms": 1_000}
    write(
        tables,
        "noisy_neighbours",
        "2026-03-04",
        [
            pair | {"neighbour": "seldom", "delay_ms": 90_000, "neighbour_leases": 20},
            pair | {"neighbour": "often", "delay_ms": 5_000, "neighbour_leases": 2_000},
        ],
    )
    write(tables, "fairness_keys", "2026-03-04", [share("rare", "calm", 0, 1, 1.0, waited_ms=500_000)])
    make_report(tables, tmp_path / "out")
    summary = (tmp_path / "out" / "report.md").read_text().partition("## ")[0]
    assert "acme was the noisiest neighbour: 25.0 %" in summary
    rows = sections(tables, tmp_path)["neighbours"]
    assert [(row["neighbour"], row["part"]) for row in rows[:2]] == [("seldom", 0.18), ("often", 0.01)]


def test_who_waits_without_consumers_does_not_starve(tables: Path, tmp_path: Path) -> None:
    """An episode in which nothing was leased shows as a queue without consumers, and accuses no tenant."""
    episode = {"from_ms": 1_000, "until_ms": None, "lasted_ms": 120_000, "queue": "orders"}
    rows = [
        episode | {"top_key": "acme", "served_meanwhile": 0},
        episode | {"top_key": "beta", "served_meanwhile": 0, "lasted_ms": 180_000},
        episode | {"top_key": "gamma", "served_meanwhile": 7, "queue": "mail", "until_ms": 121_000},
    ]
    write(tables, "starvation", "2026-03-01", rows)
    found = sections(tables, tmp_path)
    assert [(row["queue"], row["key"]) for row in found["starvation"]] == [("mail", "gamma")]
    assert found["idle"] == [{"queue": "orders", "tenants": 2, "from_ms": 1_000, "longest_ms": 180_000}]
    make_report(tables, tmp_path / "out")
    summary = (tmp_path / "out" / "report.md").read_text().partition("## ")[0]
    assert "starved once for over a minute while others were served (gamma)" in summary
    assert "while nothing was leased (orders), at most 3.0 min" in summary


def test_a_long_period_has_longer_steps(tables: Path, tmp_path: Path) -> None:
    """Two days are shown by two minutes each: what was served is added up, and quiet times stay one row."""
    rows = sections(tables, tmp_path)["timeline"]
    assert [(row["from_ms"], row["until_ms"], row["served_cost"], row["jain"]) for row in rows] == [
        (0, 120_000, 100, pytest.approx(0.8)),
        (120_000, 900_000, 0, None),
    ]
    one_day = sections(tables, tmp_path, last_day=date(2026, 3, 1))["timeline"]
    assert [(row["from_ms"], row["served_cost"]) for row in one_day] == [(0, 40), (60_000, 60), (120_000, 0)]


def test_a_million_rows_are_added_up_without_an_object_for_each(tmp_path: Path) -> None:
    """Of 1.4 million runs of 1,000 tenants, a report allocates less than 100 bytes of Python objects a row."""
    tables, count = tmp_path / "tables", 1_400_000
    write(tables, "tenant_usage", "2026-03-01", [usage("orders", "tenant-0", enqueued=1)])
    number = pa.array(range(count), pa.int64())
    rows = pa.table(
        {
            "queue": pa.repeat("orders", count),
            "top_key": pc.binary_join_element_wise("tenant", pc.cast(pc.bit_wise_and(number, 1_023), pa.string()), "-"),
            "from_ms": number,
            **{name: pa.repeat(1, count) for name in ("weight", "served_cost", "waited_ms", "starved_ms")},
            "entitled_cost": pa.repeat(1.0, count),
            "day": pa.repeat(date(2026, 3, 1), count),
        }
    )
    write_table(tables, "fairness_keys", rows, ("day",))
    del rows, number
    tracemalloc.start()
    make_report(tables, tmp_path / "out", formats=("json",))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 * count
    found = json.loads((tmp_path / "out" / "report.json").read_text())["sections"]["shares"]
    assert len(found) == 1_024
    assert sum(row["served_cost"] for row in found) == count


def test_a_period_leaves_the_other_days_out(tables: Path, tmp_path: Path) -> None:
    """Only the second day is counted when it is asked for alone."""
    found = sections(tables, tmp_path, first_day=date(2026, 3, 2))
    assert [(row["key"], row["cost_true"]) for row in found["usage"]] == [("acme", 40)]
    assert found["neighbours"] == []


def test_a_queue_leaves_the_others_out(tables: Path, tmp_path: Path) -> None:
    """Nothing is told of other queues than the one asked for."""
    assert sections(tables, tmp_path, queue="mail")["usage"] == []


def test_hostile_names_are_text_everywhere(tables: Path, tmp_path: Path) -> None:
    """A tenant named like a script is shown and never runs: neither in tables nor in plots nor in Markdown."""
    make_report(tables, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in page
    assert "\\u003c" not in page.split('id="figures">')[0]
    assert HOSTILE not in (tmp_path / "out" / "report.md").read_text()


def test_the_page_has_its_figures_and_needs_nothing_else(tables: Path, tmp_path: Path) -> None:
    """The data of every plot and the script that draws are inside; no address is asked for anything."""
    make_report(tables, tmp_path / "out", formats=("html",))
    page = (tmp_path / "out" / "report.html").read_text()
    told = page.split('<script type="application/json" id="figures">')[1].split("</script>")[0]
    figures = json.loads(told)
    assert figures["shares"][0]["data"][1]["y"] == [0.9, 0.1]
    assert "src=" not in page.split("<script>")[0]
    assert "Plotly.newPlot" in page


def test_csv_holds_every_row_and_no_formula(tables: Path, tmp_path: Path) -> None:
    """A name that a spreadsheet would take for a formula is made text."""
    write(tables, "tenant_usage", "2026-03-03", [usage("orders", "=1+1", enqueued=1)])
    make_report(tables, tmp_path / "out", formats=("csv",))
    rows = list(csv.DictReader((tmp_path / "out" / "csv" / "usage.csv").read_text().splitlines()))
    assert [row["key"] for row in rows] == ["acme", HOSTILE, "'=1+1"]
    assert rows[0]["cost_true"] == "200"


def test_the_summary_says_who_and_why(tables: Path, tmp_path: Path) -> None:
    """People in a hurry read who waited longest, who was noisy, and what died."""
    make_report(tables, tmp_path / "out", formats=("md",))
    summary = (tmp_path / "out" / "report.md").read_text()
    assert "acme waited longest in orders: p99 60 ms, p50 1 ms, mostly waiting for its turn." in summary
    assert "acme was the noisiest neighbour: 25.0 % of the time" in summary
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
