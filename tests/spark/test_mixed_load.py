"""A mixed load: what its clients counted, what pandas finds in the journal, and what the tables say are the same."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.adapters.system import SystemEntropy
from fairlane.chargeback import DaySelection, issue_statement, reconcile
from fairlane.errors import JournalMismatch
from fairlane.report import make_report
from fairlane.spark.pipeline import JournalFolder, Verification, read_manifest, read_table, run_pipeline, verify
from fairlane.spark.pipeline.totals import Totals, since_ms, stretch_of, usage_since
from fairlane.testing.stepped import SteppedBroker
from tests.spark.independent_sums import Sums
from tests.spark.mixed_load import MIDNIGHT, MixedLoad
from tests.spark.test_pipeline_broker import export

Rows = dict[tuple[Any, ...], int]
PLACE = ["queue", "key", "hour_ms"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The load, the tables made of its journal, and the facts that pandas finds in the same journal."""

    load: MixedLoad
    counted: dict[str, dict[str, int]]
    spark: SparkSession
    folder: Path
    sums: Sums
    facts: pd.DataFrame

    def table(self, name: str) -> DataFrame:
        return read_table(self.spark, self.folder / "tables", name)

    def expected(self, measure: str, by: list[str]) -> Rows:
        """Return a measure as pandas sums it up, without zeros."""
        found = self.facts[self.facts["measure"] == measure].groupby(by)["value"].sum()
        return {_tuple(key): int(value) for key, value in found.items() if value}

    def told(self, table: str, column: str, by: list[str]) -> Rows:
        """Return a column of a table, summed up by Spark, without zeros."""
        found = self.table(table).groupBy(*by).agg(F.sum(column).alias("value")).collect()
        return {tuple(row[name] for name in by): int(row["value"]) for row in found if row["value"]}


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The load of 50 minutes over midnight, its tables and its facts."""
    folder = tmp_path_factory.mktemp("mixed")
    load = MixedLoad(seed=15)
    load.begin()
    load.run(steps=600)
    counted = {verb: dict(count) for verb, count in load.counts.items()}
    export(load.broker, folder / "journal")
    run_pipeline(spark, JournalFolder(folder / "journal"), folder / "tables")

    def paused(queue: str, key: tuple[str, ...], since_ms: int, until_ms: int) -> int:
        spans = [
            (max(since_ms, pause.from_ms), min(until_ms, pause.until_ms or until_ms))
            for pause in load.pauses
            if pause.queue == queue and key[: len(pause.key)] == pause.key
        ]
        return sum(max(0, until - since) for since, until in spans)  # one pause is on at a time

    sums = Sums(paused)
    return Outcome(load, counted, spark, folder, sums, sums.follow(folder / "journal"))


def test_the_load_has_everything_in_it(outcome: Outcome) -> None:
    """Each thing that can happen to a message has happened often enough to matter, on both days."""
    events = outcome.table("events")
    kinds = {(row["kind"], row["reason"]): row["count"] for row in events.groupBy("kind", "reason").count().collect()}
    for kind, reason in (
        *(("returned", "failure"), ("returned", "defer"), ("returned", "expiry")),
        *(("dead", "max_attempts"), ("dead", "requested"), ("removed", "deadline"), ("removed", "cancelled")),
        *(("removed", "purged"), ("redriven", None), ("queue_paused", None), ("extended", None)),
    ):
        assert kinds.get((kind, reason), 0) >= 5, (kind, reason)
    assert outcome.facts["hour_ms"].nunique() >= 2
    assert events.select("day").distinct().count() == 2
    for measure in ("throttled_ms", "capped_ms", "paused_ms", "delayed_ms", "backoff_ms", "met", "late", "missed"):
        assert outcome.expected(measure, ["queue"]), measure


@pytest.mark.parametrize("verb", ["enqueued", "leased", "acked"])
def test_usage_is_what_clients_counted(outcome: Outcome, verb: str) -> None:
    """Per tenant, over all queues and days: as many as the clients got answers for."""
    assert outcome.told("tenant_usage", verb, ["top_key"]) == {
        (tenant,): count for tenant, count in outcome.counted[verb].items()
    }


@pytest.mark.parametrize(
    "column",
    [
        *("enqueued", "enqueued_bytes", "enqueued_cost", "leased", "acked", "acked_bytes", "cost_estimated"),
        *("cost_true", "service_ms", "failed", "dead", "removed", "redriven"),
    ],
)
def test_usage_by_hour(outcome: Outcome, column: str) -> None:
    """Each column of ``tenant_usage`` is right for each queue, key and hour."""
    assert outcome.told("tenant_usage", column, PLACE) == outcome.expected(column, PLACE)


@pytest.mark.parametrize(
    ("table", "column", "measure"),
    [
        ("latency", "handed_out", "leased"),
        ("latency", "wait_sum_ms", "wait_ms"),
        ("latency", "served", "served"),
        ("latency", "service_sum_ms", "service_ms"),
        ("throttle_waits", "handed_out", "throttle_leases"),
        ("throttle_waits", "waited", "throttle_waited"),
        ("throttle_waits", "throttled_ms", "throttle_ms"),
        *[("sla", name, name) for name in ("with_deadline", "met", "late", "missed", "otherwise")],
    ],
)
def test_waits_and_deadlines_by_hour(outcome: Outcome, table: str, column: str, measure: str) -> None:
    """Waits, throttle waits and deadlines are right for each queue, key and hour."""
    assert outcome.told(table, column, PLACE) == outcome.expected(measure, PLACE)


@pytest.mark.parametrize("reason", ["delayed", "backoff", "throttled", "capped", "paused", "turn"])
def test_the_reasons_of_waits(outcome: Outcome, reason: str) -> None:
    """What messages waited for each reason is right for each tenant, in ``messages`` and in ``attempts``."""
    expected = outcome.expected(f"{reason}_ms", ["tenant"])
    assert outcome.told("messages", f"{reason}_ms", ["top_key"]) == expected
    tried = outcome.table("attempts").where("NOT is_dlq").groupBy("top_key").agg(F.sum(f"{reason}_ms").alias("value"))
    assert {(row["top_key"],): row["value"] for row in tried.collect() if row["value"]} == expected


def test_a_pause_is_billed_to_nobody(outcome: Outcome) -> None:
    """What plain messages waited while paused is what the operator's pauses took, and no part of any turn."""
    by_operator = outcome.expected("paused_by_operator_ms", ["tenant"])
    assert by_operator
    assert outcome.expected("paused_of_plain_ms", ["tenant"]) == by_operator


def test_charges_are_what_the_journal_says(outcome: Outcome) -> None:
    """At a price of 1 for each unit, the lines of a tenant are its cost, its messages and its time in the journal."""
    prices, statements = outcome.folder / "prices.toml", outcome.folder / "statements"
    prices.write_text('currency = "EUR"\nprices = [{cost_unit = 1, message = 1, service_second = 1000}]\n')
    tables, both_days = outcome.folder / "tables", DaySelection(newest=True)
    first = issue_statement(tables, statements, prices=prices, now_ms=0)
    second = issue_statement(tables, statements, prices=prices, now_ms=0, days=both_days)
    assert [len(issue.statement.days) for issue in (first, second) if issue.statement is not None] == [1, 1]
    lines = ds.dataset(sorted(statements.glob("*/lines.parquet"))).to_table().to_pandas()
    found = lines.groupby(["SkuId", "SubAccountId"])["BilledCost"].sum()
    for sku, measure in (("cost", "cost_true"), ("messages", "acked"), ("service-time", "service_ms")):
        told = {(tenant,): int(amount) for tenant, amount in found[sku].items() if amount}
        assert told == outcome.expected(measure, ["tenant"])
    assert reconcile(tables, statements, prices=prices).agrees


def test_outcomes_and_dead_letters(outcome: Outcome) -> None:
    """Each message has the outcome that its last event gave it, and dead letters add up by reason."""
    found = {row["message_id"]: row["outcome"] for row in outcome.table("messages").collect()}
    assert found == {number: life.outcome for number, life in outcome.sums.lives.items()}
    for reason in ("max_attempts", "requested"):
        told = outcome.table("dead_letters").where(F.col("reason") == reason).groupBy("queue").agg(F.sum("count"))
        assert {tuple(row)[:1]: row[1] for row in told.collect()} == outcome.expected(f"dead_{reason}", ["queue"])


def test_what_was_served(outcome: Outcome) -> None:
    """The fairness tables have served what was leased, and waited what was a turn or is still waiting."""
    by = ["queue", "top_key"]
    expected = outcome.expected("served_cost", ["queue", "tenant"])
    assert outcome.told("fairness_keys", "served_cost", by) == expected
    by_queue = outcome.facts[outcome.facts["measure"] == "served_cost"].groupby("queue")["value"].sum()
    assert outcome.told("fairness", "served_cost", ["queue"]) == {(name,): sum_ for name, sum_ in by_queue.items()}
    entitled = outcome.table("fairness_keys").groupBy("queue").agg(F.sum("entitled_cost").alias("value")).collect()
    assert {(row["queue"],): round(row["value"]) for row in entitled} == {
        (name,): sum_ for name, sum_ in by_queue.items()
    }


def test_the_report_says_the_same(outcome: Outcome) -> None:
    """The sums of the report are those that pandas finds: usage, waits by reason, and deadlines."""
    make_report(outcome.folder / "tables", outcome.folder / "report", formats=("json",))
    found = json.loads((outcome.folder / "report" / "report.json").read_text())["sections"]
    for column in ("cost_true", "acked", "service_ms", "enqueued", "failed", "dead"):
        assert shown(found["usage"], column, "key") == outcome.expected(column, ["tenant"])
    for column in ("turn_ms", "throttled_ms", "capped_ms", "paused_ms", "backoff_ms", "delayed_ms"):
        assert shown(found["waits"], column, "queue", "key") == outcome.expected(column, ["queue", "tenant"])
    for column in ("with_deadline", "met", "late", "missed"):
        assert shown(found["deadlines"], column, "queue", "key") == outcome.expected(column, ["queue", "tenant"])


def shown(rows: list[dict[str, Any]], column: str, *by: str) -> Rows:
    """Return a column of a section of the report, without zeros."""
    return {tuple(row[name] for name in by): row[column] for row in rows if row[column]}


def test_the_tables_agree_with_the_broker(outcome: Outcome) -> None:
    """Messages, leases and what usage leaves are those of the broker, for each queue and key, dead letters included."""
    found = verify(outcome.spark, outcome.load.broker, outcome.folder / "tables")
    assert (found.mismatches, found.gaps) == ([], ())
    assert (found.queues, found.totals_since_ms) == (6, 0)
    assert found.keys > 12
    assert found.counted == outcome.table("events").count()


def test_the_broker_may_go_on_meanwhile(outcome: Outcome) -> None:
    """Events after the tables are followed, and a restart of the broker changes nothing."""
    outcome.load.broker.reopen()
    outcome.load.run(steps=40)
    found = verify(outcome.spark, outcome.load.broker, outcome.folder / "tables")
    assert (found.mismatches, found.gaps) == ([], ())
    assert found.followed > 200


def test_totals_begin_with_the_first_whole_hour_that_the_journal_has(outcome: Outcome) -> None:
    """Of the last two thirds of the journal the events since midnight count, also those of messages from before."""
    manifest = read_manifest(outcome.folder / "tables")
    assert manifest is not None
    (journal,) = manifest.journals
    stretch = stretch_of(outcome.load.broker, journal, None, count_max=2 * journal.reached // 3)
    totals = Totals(since_ms([stretch], []))
    totals.add(stretch, outcome.table("attempts"))
    assert totals.since_ms == MIDNIGHT
    assert 0 < totals.events < journal.reached // 2 + 1
    assert totals.counts == +usage_since(outcome.table("tenant_usage"), MIDNIGHT)


@pytest.mark.long
def test_a_lost_event_is_found(outcome: Outcome, tmp_path: Path) -> None:
    """Of a journal that lacks the acknowledgement of one message, the tables have one message too many."""
    events = journal_of(outcome)
    at = events["kind"].to_pylist().index("acked")
    found = verified(outcome, tmp_path, pa.concat_tables([events[:at], events[at + 1 :]]))
    lost = events.slice(at, 1).to_pylist()[0]
    life = outcome.sums.lives[lost["message_id"]]
    key = "/".join(life.key)
    assert not found.agrees
    assert {(each.queue, each.key, each.what, each.tables - each.broker) for each in found.mismatches} == {
        (lost["queue"], "", "messages", 1),
        (lost["queue"], "", "leased", 1),
        (lost["queue"], key, "messages", 1),
        (lost["queue"], key, "leased", 1),
        (lost["queue"], key, "acked", -1),
        (lost["queue"], key, "cost_true", -(lost["cost"] if lost["cost"] is not None else life.cost)),
    }


@pytest.mark.long
def test_a_lost_message_is_found(outcome: Outcome, tmp_path: Path) -> None:
    """A message of which the tables lack everything leaves no trace in what is left; the totals of its tenant tell."""
    events = journal_of(outcome)
    stories: defaultdict[str, list[str]] = defaultdict(list)
    for event in events.select(["message_id", "kind"]).to_pylist():
        stories[event["message_id"]].append(event["kind"])
    lost = next(message for message, told in stories.items() if told == ["enqueued", "leased", "acked"])
    others = pc.invert(pc.equal(events["message_id"], lost).fill_null(False))
    found = verified(outcome, tmp_path, events.filter(others))
    life = outcome.sums.lives[lost]
    wrong = {each.what: each.tables - each.broker for each in found.mismatches}
    assert {(each.queue, each.key) for each in found.mismatches} == {(life.queue, "/".join(life.key))}
    assert wrong == {"enqueued": -1, "leased": -1, "acked": -1, "cost_true": wrong["cost_true"]}


def journal_of(outcome: Outcome) -> pa.Table:
    """Return the events of the journal."""
    (segment,) = (outcome.folder / "journal").glob("*.parquet")
    return pq.read_table(segment)


def verified(outcome: Outcome, folder: Path, events: pa.Table) -> Verification:
    """Compare the tables of events that are not all there with the broker."""
    (segment,) = (outcome.folder / "journal").glob("*.parquet")
    (folder / "journal").mkdir()
    pq.write_table(events, folder / "journal" / segment.name)
    run_pipeline(outcome.spark, JournalFolder(folder / "journal"), folder / "tables")
    return verify(outcome.spark, outcome.load.broker, folder / "tables")


def test_the_tables_of_another_broker_are_refused(outcome: Outcome) -> None:
    """A broker with another journal is no broker to compare with, whatever it holds."""
    with pytest.raises(JournalMismatch, match="The tables are made from journal"):
        verify(outcome.spark, SteppedBroker(entropy=SystemEntropy()), outcome.folder / "tables")
