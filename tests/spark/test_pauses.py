"""A pause shows as a pause: in the journal, the tables and the report, from a broker's own journal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.broker.measurements import Waited
from fairlane.broker.views.deliveries import waited
from fairlane.report import Period, make_report
from fairlane.server.metrics.fold import MetricsFold
from fairlane.spark.pipeline import JournalFolder, read_table, run_pipeline
from fairlane.testing.stepped import SteppedBroker
from tests.spark.table_rows import told
from tests.spark.test_pipeline_broker import export

MINUTE_MS = 60_000
PAUSED_KEY, PAUSED_QUEUE, STILL_PAUSED = "paused-key", "paused-queue", "still-paused"


def pause_for_five_minutes(broker: SteppedBroker, queue: str, key: str | None) -> None:
    """Pause acme's message, or the whole queue, for five minutes, while the other key of the queue is served."""
    broker.create_queue(queue)
    broker.enqueue(queue, b"", fairness_key="acme")
    broker.pause(queue, key=key)
    for _ in range(5):
        if key is not None:
            broker.enqueue(queue, b"", fairness_key="other")
            broker.ack(broker.lease(queue, 1)[0])
        broker.advance(MINUTE_MS)
    broker.resume(queue, key=key)
    (delivery,) = broker.lease(queue, 1)
    assert delivery.fairness_key == "acme"
    broker.ack(delivery)


def pause_for_good(broker: SteppedBroker, queue: str) -> None:
    """Pause acme's message, and serve the other key of the queue for three minutes."""
    broker.create_queue(queue)
    broker.enqueue(queue, b"", fairness_key="acme")
    broker.pause(queue, key="acme")
    for _ in range(3):
        broker.advance(MINUTE_MS)
        broker.enqueue(queue, b"", fairness_key="other")
        broker.ack(broker.lease(queue, 1)[0])


def waited_of(broker: SteppedBroker, queue: str, number: int) -> Waited:
    """Return what the server's metrics ask its broker about a message that was just leased."""
    return waited(broker.engine.ledger.queues[queue].messages[number])


@pytest.fixture(scope="module")
def broker() -> SteppedBroker:
    """A broker that nothing has happened to."""
    return SteppedBroker()


@pytest.fixture(scope="module")
def metrics(broker: SteppedBroker) -> MetricsFold:
    """What the server's metrics count about the broker."""
    fold = MetricsFold(partial(waited_of, broker), queues_max=10)
    broker.engine.taps.append(fold.note)
    return fold


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, broker: SteppedBroker, metrics: MetricsFold, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tables of a broker with one queue for each kind of pause; the last pause is on when its journal ends."""
    assert not metrics.queues, "the metrics count from the start"
    pause_for_five_minutes(broker, PAUSED_KEY, "acme")
    pause_for_five_minutes(broker, PAUSED_QUEUE, None)
    pause_for_good(broker, STILL_PAUSED)
    place = tmp_path_factory.mktemp("pauses")
    export(broker, place / "journal")
    run_pipeline(spark, JournalFolder(place / "journal"), place / "tables")
    return place / "tables"


def rows_of(spark: SparkSession, tables: Path, name: str, queue: str) -> DataFrame:
    """Return the rows of a table about a queue."""
    return read_table(spark, tables, name).where(f"queue = '{queue}'")


@pytest.mark.parametrize("queue", [PAUSED_KEY, PAUSED_QUEUE])
def test_five_minutes_of_pause(spark: SparkSession, tables: Path, tmp_path: Path, queue: str) -> None:
    """The whole wait is a pause: no turn, no starvation, no lag, and nobody is accused in the report."""
    messages = rows_of(spark, tables, "messages", queue).where("top_key = 'acme'")
    assert told(messages, "wait_ms", "paused_ms", "turn_ms") == [(5 * MINUTE_MS, 5 * MINUTE_MS, 0)]
    assert told(rows_of(spark, tables, "starvation", queue), "top_key") == []
    fairness = rows_of(spark, tables, "fairness", queue).where("served_cost > 0")
    assert {row[0] for row in told(fairness, "jain")} == {1.0}
    assert {row[0] for row in told(fairness, "lag_max_key")} == {None}
    neighbours = rows_of(spark, tables, "noisy_neighbours", queue).where("victim = 'acme'")
    assert told(neighbours, "neighbour", "delay_ms") == []

    made = make_report(tables, tmp_path / "report", period=Period(queue=queue))
    summary = (tmp_path / "report" / "report.md").read_text()
    assert made is not None
    assert "while paused" in summary
    assert "starved" not in summary.lower().partition("## ")[0]


@pytest.mark.parametrize("queue", [PAUSED_KEY, PAUSED_QUEUE])
def test_tables_report_and_metrics_agree_on_a_pause(
    spark: SparkSession, tables: Path, metrics: MetricsFold, tmp_path: Path, queue: str
) -> None:
    """The server's metrics, which the dashboard shows, and the tables and the report have the same pause and turns."""
    counts = metrics.queues[queue]
    assert counts.paused_ms == 5 * MINUTE_MS
    messages = rows_of(spark, tables, "messages", queue).agg(F.sum("paused_ms"), F.sum("turn_ms"), F.count("*"))
    assert messages.first() == (counts.paused_ms, counts.turn_ms, counts.leased)
    make_report(tables, tmp_path / "report", period=Period(queue=queue), formats=("json",))
    waits = json.loads((tmp_path / "report" / "report.json").read_text())["sections"]["waits"]
    for name in ("paused_ms", "turn_ms"):
        assert sum(row[name] for row in waits) == getattr(counts, name)


def test_a_pause_that_is_still_on(spark: SparkSession, tables: Path) -> None:
    """A key that is paused when the journal ends has no work, does not starve, and lags behind in no minute."""
    assert told(rows_of(spark, tables, "starvation", STILL_PAUSED), "top_key") == []
    keys = rows_of(spark, tables, "fairness_keys", STILL_PAUSED)
    assert {row[0] for row in told(keys.where("served_cost > 0"), "top_key")} == {"other"}
    assert told(rows_of(spark, tables, "fairness", STILL_PAUSED), "lag_max_key") == [(None,)] * 3
