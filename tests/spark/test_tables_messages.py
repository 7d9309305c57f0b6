"""One row a message: its times, waits, attempts and outcome."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from fairlane.model.ids import MessageIds
from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.messages import messages
from fairlane.spark.tables.table import uuid_of
from tests.spark.table_rows import DAY, DAY_0, Event, enqueued, event, frame, message_id, of

NEWEST = date(2026, 1, 2)


def rows_of(spark: SparkSession, *told: Event) -> dict[str, dict[str, Any]]:
    """Return the messages that events tell of, by id."""
    found = messages(attempts(frame(spark, *told)), newest_day=NEWEST).collect()
    return {row["message_id"]: row.asDict() for row in found}


def test_a_message_that_is_handed_out_once_and_done(spark: SparkSession) -> None:
    """Its wait is split by what the lease tells, and its cost is told twice."""
    (row,) = rows_of(
        spark,
        enqueued(
            1, 0, "acme/mobile", cost=3, due_ms=DAY_0 + 100, weight=2, correlation_id="c", deadline_ms=DAY_0 + 900
        ),
        of("leased", 2, 500, 1, owner="w1", throttled_ms=150, capped_ms=50, paused_ms=20),
        of("extended", 3, 510, 1, expires_ms=1),
        of("acked", 4, 560, 1, cost=7),
    ).values()
    assert (row["queue"], row["key"], row["top_key"], row["fairness_key"]) == (
        "mail",
        "acme/mobile",
        "acme",
        ["acme", "mobile"],
    )
    assert (row["enqueued_ms"], row["first_leased_ms"], row["last_leased_ms"], row["done_ms"]) == (
        DAY_0,
        DAY_0 + 500,
        DAY_0 + 500,
        DAY_0 + 560,
    )
    waits = [row[f"{name}_ms"] for name in ("delayed", "backoff", "throttled", "capped", "paused", "turn", "wait")]
    assert waits == [100, 0, 150, 50, 20, 180, 500]
    assert (row["service_ms"], row["attempts"], row["failures"]) == (60, 1, 0)
    assert (row["cost_estimated"], row["cost_true"], row["weight"], row["size_bytes"]) == (3, 7, 2, 10)
    assert (row["outcome"], row["reason"], row["is_open"], row["day"]) == ("acked", None, False, date(2026, 1, 1))
    assert (row["owner"], row["correlation_id"], row["last_sequence"]) == ("w1", "c", 4)


def test_a_message_that_fails_dies_and_is_redriven(spark: SparkSession) -> None:
    """Backoff and deferral are told apart, the last error is kept, and a redrive shows."""
    story = [
        enqueued(1, 0),
        of("leased", 2, 10, 1),
        of("returned", 3, 20, 1, reason="failure", error="first", due_ms=DAY_0 + 120),
        of("leased", 4, 130, 1),
        of("returned", 5, 140, 1, reason="defer", due_ms=DAY_0 + 200),
        of("leased", 6, 200, 1),
        of("dead", 7, 230, 1, reason="max_expiries", ended="expiry", target="mail.dlq"),
    ]
    (row,) = rows_of(spark, *story).values()
    assert (row["outcome"], row["reason"], row["error"], row["is_open"]) == ("dead", "max_expiries", "first", True)
    assert (row["attempts"], row["failures"], row["deaths"], row["redrives"]) == (3, 1, 1, 0)
    assert (row["backoff_ms"], row["delayed_ms"], row["turn_ms"], row["service_ms"]) == (100, 60, 20, 50)
    assert (row["queue"], row["done_ms"], row["day"]) == ("mail", DAY_0 + 230, NEWEST)

    again = [
        of("redriven", 8, 1000, 1, queue="mail.dlq", target="post", fairness_key=["beta"], cost=5, throttles=["smtp"]),
        of("leased", 9, 1040, 1, queue="post"),
        of("acked", 10, 1050, 1, queue="post"),
    ]
    (row,) = rows_of(spark, *story, *again).values()
    assert (row["outcome"], row["queue"], row["key"], row["cost_estimated"]) == ("acked", "post", "beta", 5)
    assert (row["attempts"], row["deaths"], row["redrives"], row["redriven_ms"]) == (4, 1, 1, DAY_0 + 1000)
    assert (row["turn_ms"], row["size_bytes"], row["throttles"]) == (60, 10, ["smtp"])


def test_what_is_still_open_and_what_was_removed(spark: SparkSession) -> None:
    """Waiting, leased and removed messages have their outcome; those of a removed queue are gone with it."""
    found = rows_of(
        spark,
        enqueued(1, 0),
        enqueued(2, 0),
        of("leased", 3, 5, 2),
        enqueued(4, 6),
        of("removed", 5, 9, 4, reason="deadline"),
        enqueued(6, 7, queue="old"),
        event("queue_removed", 7, DAY + 8, queue="old"),
        event("queue_set", 8, DAY + 9, queue="old", policy_json="{}"),
        enqueued(9, DAY + 10, queue="old"),
    )
    rows = {number: found[message_id(number)] for number in (1, 2, 4, 6, 9)}
    assert {number: (row["outcome"], row["reason"]) for number, row in rows.items()} == {
        1: ("waiting", None),
        2: ("leased", None),
        4: ("removed", "deadline"),
        6: ("removed", "queue_removed"),
        9: ("waiting", None),
    }
    assert found[message_id(6)]["day"] == date(2026, 1, 2)
    assert [row["is_open"] for row in rows.values()] == [True, True, False, False, True]


def test_messages_that_began_before_the_journal(spark: SparkSession) -> None:
    """Something is told of a message of which only the end is known; what is not known is null."""
    found = rows_of(spark, of("leased", 50, 10, 3), of("acked", 51, 30, 3), of("acked", 52, 31, 4))
    third, fourth = found[message_id(3)], found[message_id(4)]
    assert (third["outcome"], third["enqueued_ms"], third["key"], third["service_ms"]) == ("acked", None, None, 20)
    assert (fourth["outcome"], fourth["attempts"], fourth["done_ms"]) == ("acked", 0, DAY_0 + 31)


def test_messages_that_a_sink_staged(spark: SparkSession) -> None:
    """A staged message waits from the moment it is published; one that is not is neither waiting nor leased."""
    terms: dict[str, Any] = {
        "fairness_key": ["acme"],
        "cost": 2,
        "priority": "normal",
        "throttles": [],
        "size_bytes": 9,
    }
    found = rows_of(
        spark,
        of("staged", 1, 0, 1, **terms),
        of("staged", 2, 0, 2, **terms),
        of("published", 3, 100, 1),
        of("leased", 4, 130, 1),
        of("acked", 5, 135, 1),
    )
    first = found[message_id(1)]
    assert (first["outcome"], first["turn_ms"], first["wait_ms"], first["key"]) == ("acked", 30, 30, "acme")
    assert found[message_id(2)]["outcome"] == "staged"


def test_ids_are_made_as_the_broker_makes_them(spark: SparkSession) -> None:
    """Spark and the broker agree, for random numbers and for journals of every first digit."""
    chance = random.Random(7)
    pairs = [(chance.randrange(2**53), f"{digit:x}{chance.randrange(2**60):015x}") for digit in range(16)]
    rows = [(message_id(number), journal_id) for number, journal_id in pairs]
    frame = spark.createDataFrame(rows, "message_id string, journal_id string")
    found = [row[0] for row in frame.select(uuid_of("message_id", "journal_id")).collect()]
    assert found == [MessageIds([(0, journal_id)]).id_of(number) for number, journal_id in pairs]
