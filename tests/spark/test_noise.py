"""Who is noisy in the tables of a broker's own journal: the three cases in which the first report was wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from fairlane.model.message import NewMessage
from fairlane.report import make_report
from fairlane.spark.pipeline import JournalFolder, read_table, run_pipeline
from fairlane.testing.stepped import SteppedBroker
from tests.spark.table_rows import told
from tests.spark.test_pipeline_broker import export

MINUTE_MS, MINUTES = 60_000, 10


def minute(broker: SteppedBroker, queue: str, sent: Mapping[str, int], served: int) -> None:
    """Enqueue messages of each tenant, and lease and acknowledge as many as there is capacity for."""
    news = [NewMessage(fairness_key=key) for key, count in sent.items() for _ in range(count)]
    if news:
        broker.enqueue_many(queue, news)
    if leased := broker.lease(queue, served):
        broker.ack_many(queue, leased)


def run(broker: SteppedBroker) -> None:
    """Play the cases side by side: refused work, thousands of small tenants, and a third of all work."""
    broker.create_queue("refused", {"key_waiting_max": 50})
    broker.create_queue("small")
    broker.create_queue("third")
    names = ("bakery", "clinic", "museum", *(f"t{number}" for number in range(8)))
    for at in range(MINUTES):
        minute(broker, "refused", {"acme": 300} | dict.fromkeys(names[:3], 25), 94)
        minute(broker, "small", {} if at else {f"s{number}": 2 for number in range(2_044)}, 100)
        minute(broker, "third", {"acme": 50} | dict.fromkeys(names, 9), 100)
        broker.advance(MINUTE_MS)


def test_the_report_names_the_flooder_and_nobody_else(spark: SparkSession, tmp_path: Path) -> None:
    """Acme is noisy where nine tenths of its work are refused, and where it brings a third; no small tenant is."""
    broker = SteppedBroker()
    run(broker)
    export(broker, tmp_path / "journal")
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    make_report(tmp_path / "tables", tmp_path / "report", formats=("json",))
    sections = json.loads((tmp_path / "report" / "report.json").read_text())["sections"]
    assert sorted((row["queue"], row["key"]) for row in sections["noisy"]) == [("refused", "acme"), ("third", "acme")]
    assert sections["deprived"] == []
    (refused,) = [row for row in sections["noisy"] if row["queue"] == "refused"]
    assert refused["refused_cost"] > 0.9 * (300 - 50) * MINUTES
    small = read_table(spark, tmp_path / "tables", "fairness").where("queue = 'small' AND served_cost > 0")
    assert {row[0] for row in told(small, "jain")} == {1.0}
