"""A pause shows as a pause: in the journal, the tables and the report, from a broker's own journal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.broker.measurements import Waited
from fairlane.broker.views.deliveries import waited
from fairlane.report import make_report
from fairlane.server.metrics.fold import MetricsFold
from fairlane.spark.pipeline import JournalFolder, read_table, run_pipeline
from fairlane.testing.stepped import SteppedBroker
from tests.spark.table_rows import told
from tests.spark.test_pipeline_broker import export

pytestmark = pytest.mark.usefixtures("small_data")

MINUTE_MS = 60_000


def paused_for_five_minutes(key: str | None, broker: SteppedBroker) -> SteppedBroker:
    """Return a broker in which acme's message waited for a pause of five minutes, while the other key was served."""
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"", fairness_key="acme")
    broker.pause("jobs", key=key)
    for _ in range(5):
        if key is not None:
            broker.enqueue("jobs", b"", fairness_key="other")
            broker.ack(broker.lease("jobs", 1)[0])
        broker.advance(MINUTE_MS)
    broker.resume("jobs", key=key)
    (delivery,) = broker.lease("jobs", 1)
    assert delivery.fairness_key == "acme"
    broker.ack(delivery)
    return broker


@pytest.mark.parametrize("key", ["acme", None])
def test_five_minutes_of_pause(spark: SparkSession, tmp_path: Path, key: str | None) -> None:
    """The whole wait is a pause: no turn, no starvation, no lag, and nobody is accused in the report."""
    export(paused_for_five_minutes(key, SteppedBroker()), tmp_path / "journal")
    tables = tmp_path / "tables"
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tables)

    messages = read_table(spark, tables, "messages").where("top_key = 'acme'")
    assert told(messages, "wait_ms", "paused_ms", "turn_ms") == [(5 * MINUTE_MS, 5 * MINUTE_MS, 0)]
    assert told(read_table(spark, tables, "starvation"), "top_key") == []
    fairness = read_table(spark, tables, "fairness").where("served_cost > 0")
    assert {row[0] for row in told(fairness, "jain")} == {1.0}
    assert {row[0] for row in told(fairness, "lag_max_key")} == {None}
    neighbours = read_table(spark, tables, "noisy_neighbours").where("victim = 'acme'")
    assert told(neighbours, "neighbour", "delay_ms") == []

    made = make_report(tables, tmp_path / "report")
    summary = (tmp_path / "report" / "report.md").read_text()
    assert made is not None
    assert "while paused" in summary
    assert "starved" not in summary.lower().partition("## ")[0]


@pytest.mark.parametrize("key", ["acme", None])
def test_tables_report_and_metrics_agree_on_a_pause(spark: SparkSession, tmp_path: Path, key: str | None) -> None:
    """The server's metrics, which the dashboard shows, and the tables and the report have the same pause and turns."""
    broker = SteppedBroker()
    fold = MetricsFold(partial(waited_of, broker), queues_max=10)
    broker.engine.taps.append(fold.note)
    paused_for_five_minutes(key, broker)
    export(broker, tmp_path / "journal")
    tables = tmp_path / "tables"
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tables)
    counts = fold.queues["jobs"]
    assert counts.paused_ms == 5 * MINUTE_MS
    messages = read_table(spark, tables, "messages").agg(F.sum("paused_ms"), F.sum("turn_ms"), F.count("*"))
    assert messages.first() == (counts.paused_ms, counts.turn_ms, counts.leased)
    make_report(tables, tmp_path / "report", formats=("json",))
    waits = json.loads((tmp_path / "report" / "report.json").read_text())["sections"]["waits"]
    for name in ("paused_ms", "turn_ms"):
        assert sum(row[name] for row in waits) == getattr(counts, name)


def waited_of(broker: SteppedBroker, queue: str, number: int) -> Waited:
    """Return what the server's metrics ask its broker about a message that was just leased."""
    return waited(broker.engine.ledger.queues[queue].messages[number])


def test_a_pause_that_is_still_on(spark: SparkSession, tmp_path: Path) -> None:
    """A key that is paused when the journal ends has no work, and does not starve; what it waits is told by nobody."""
    broker = SteppedBroker()
    broker.create_queue("jobs")
    broker.enqueue("jobs", b"", fairness_key="acme")
    broker.pause("jobs", key="acme")
    for _ in range(3):
        broker.advance(MINUTE_MS)
        broker.enqueue("jobs", b"", fairness_key="other")
        broker.ack(broker.lease("jobs", 1)[0])
    export(broker, tmp_path / "journal")
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    assert told(read_table(spark, tmp_path / "tables", "starvation"), "top_key") == []
    keys = read_table(spark, tmp_path / "tables", "fairness_keys")
    assert {row[0] for row in told(keys.where("served_cost > 0"), "top_key")} == {"other"}
    assert told(read_table(spark, tmp_path / "tables", "fairness"), "lag_max_key") == [(None,)] * 3
