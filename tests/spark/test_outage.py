"""A day without consumers: it costs what its events cost, at Spark's default memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.report import make_report
from fairlane.spark.pipeline import JournalFolder, read_table, run_pipeline
from tests.spark.table_rows import DAY, enqueued, event
from tests.spark.test_pipeline import write_segment


@pytest.mark.parametrize(
    ("messages", "tenants"), [(500, 316), pytest.param(5_000, 3_160, marks=pytest.mark.long, id="thousands")]
)
def test_messages_wait_for_a_day(spark: SparkSession, tmp_path: Path, messages: int, tenants: int) -> None:
    """Of tenants that wait all day, no table has more than two rows a message, and none is said to starve.

    One row for each tenant and minute would be 4.5 million of 3,160. The report says that no consumer was there.
    """
    rows = [enqueued(1 + number, number, f"tenant-{number % tenants:04}") for number in range(messages)]
    rows += [event("config_set", messages + 1, DAY - 1, name="public:x", value="1")]
    write_segment(tmp_path / "journal", rows)
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")

    counts = {
        name: read_table(spark, tmp_path / "tables", name).count()
        for name in ("fairness", "fairness_keys", "starvation", "noisy_neighbours")
    }
    assert counts == {
        "fairness": 2,  # the minute in which all came, and the rest of the day
        "fairness_keys": 2 * tenants,
        "starvation": tenants,
        "noisy_neighbours": 0,
    }
    make_report(tmp_path / "tables", tmp_path / "report", formats=("md", "json"))
    found = json.loads((tmp_path / "report" / "report.json").read_text())["sections"]
    assert found["starvation"] == []
    assert [(row["queue"], row["tenants"]) for row in found["idle"]] == [("mail", tenants)]
    assert {row["starved_ms"] for row in found["shares"]} == {0}
    findings = (tmp_path / "report" / "report.md").read_text().partition("## ")[0]
    assert "check that consumers are running" in findings
    assert "starved" not in findings
