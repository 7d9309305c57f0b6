"""The tables by hour: usage, latency, throttles, deadlines; and histograms, which the second and third are made of."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.histogram import bucket_of, greatest_in, merged
from fairlane.spark.tables.hourly import latency, sla, tenant_usage, throttle_waits
from tests.spark.table_rows import DAY_0, HOUR, Event, enqueued, event, frame, of, told


def served(first: int, at: int, wait: int, service: int, **terms: object) -> list[Event]:
    """Return a message that is enqueued, handed out and done; it takes three sequence numbers."""
    hold: dict[str, Any] = {"throttled_ms": terms.pop("throttled_ms", None)}
    return [
        enqueued(first, at, **terms),  # type: ignore[arg-type] # terms are what they are
        of("leased", first + 1, at + wait, first, **hold),
        of("acked", first + 2, at + wait + service, first),
    ]


def test_usage_counts_everything_in_its_hour(spark: SparkSession) -> None:
    """Each thing is counted once, for its key, in the hour in which it happened."""
    rows = [
        enqueued(1, 0, "acme", cost=3, size_bytes=100),
        of("leased", 2, 1000, 1),
        of("returned", 3, 3000, 1, reason="failure"),
        of("leased", 4, HOUR + 10, 1),
        of("acked", 5, HOUR + 30, 1, cost=9),
        enqueued(6, 5, "acme", cost=4, size_bytes=50),
        of("removed", 7, 6, 6, reason="dropped"),
        enqueued(8, 0, "beta"),
        of("leased", 9, 1, 8),
        of("dead", 10, 2, 8, reason="hook", ended="failure", target="mail.dlq"),
        of("leased", 11, 3, 8, queue="mail.dlq"),
        of("returned", 12, 4, 8, queue="mail.dlq", reason="defer"),
        of("redriven", 13, HOUR, 8, queue="mail.dlq", target="mail", fairness_key=["beta"], cost=2, throttles=[]),
    ]
    usage = tenant_usage(attempts(frame(spark, *rows)))
    counts = ("enqueued", "enqueued_bytes", "enqueued_cost", "leased", "acked", "acked_bytes")
    more = ("cost_estimated", "cost_true", "service_ms", "failed", "dead", "removed", "redriven")
    assert told(usage, "key", "hour_ms", *counts, *more) == [
        ("acme", DAY_0, 2, 150, 7, 1, 0, 0, 0, 0, 2000, 1, 0, 1, 0),
        ("acme", DAY_0 + HOUR, 0, 0, 0, 1, 1, 100, 3, 9, 20, 0, 0, 0, 0),
        ("beta", DAY_0, 1, 10, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0),
        ("beta", DAY_0 + HOUR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    ]


def test_dead_letters_in_an_ordinary_queue_are_usage_of_it(spark: SparkSession) -> None:
    """They come in as redriven, and leave as acknowledged, dead or removed: what is left is what the queue has."""
    rows = []
    for message in (1, 11, 21, 31):
        rows += [
            enqueued(message, 0, "acme"),
            of("leased", message + 1, 1, message),
            of("dead", message + 2, 2, message, reason="hook", ended="failure", target="slow"),
        ]
    rows += [
        of("leased", 40, 3, 1, queue="slow"),
        of("acked", 41, 4, 1, queue="slow"),
        of("redriven", 42, 5, 11, queue="slow", target="mail", fairness_key=["acme"], cost=1, throttles=[]),
        of("leased", 43, 6, 21, queue="slow"),
        of("dead", 44, 7, 21, queue="slow", reason="hook", ended="failure", target="slow.dlq"),
    ]
    usage = tenant_usage(attempts(frame(spark, *rows)))
    assert told(usage, "queue", "enqueued", "redriven", "acked", "dead", "removed") == [
        ("mail", 4, 1, 0, 4, 0),
        ("slow", 0, 4, 1, 1, 1),
    ]


def test_usage_counts_refused_messages_in_the_hour_of_the_refusal(spark: SparkSession) -> None:
    """Refusals add up by key and hour, beside messages that were enqueued; those without a key share a name."""
    rows = [
        enqueued(1, 0, "acme"),
        _refused(2, 10, ["acme"], messages=3, cost=6),
        _refused(3, 20, ["acme"], messages=2, cost=2),
        _refused(4, HOUR, ["acme", "web"], messages=7, cost=7),
        _refused(5, 30, None, messages=4, cost=4),
    ]
    events = frame(spark, *rows)
    usage = tenant_usage(attempts(events), events=events)
    assert told(usage, "key", "top_key", "hour_ms", "enqueued", "refused", "refused_cost") == [
        ("_others", "_others", DAY_0, 0, 4, 4),
        ("acme", "acme", DAY_0, 1, 5, 8),
        ("acme/web", "acme", DAY_0 + HOUR, 0, 7, 7),
    ]
    again = tenant_usage(attempts(events.where("sequence > 3")), usage, events=events.where("sequence > 3"))
    assert told(again, "key", "hour_ms", "refused") == [
        ("_others", DAY_0, 8),
        ("acme", DAY_0, 5),
        ("acme/web", DAY_0 + HOUR, 14),
    ]


def _refused(sequence: int, at: int, key: list[str] | None, *, messages: int, cost: int) -> Event:
    return event("refused", sequence, at, queue="mail", fairness_key=key, messages=messages, cost=cost)


def test_latency_tells_percentiles_of_waits_and_service(spark: SparkSession) -> None:
    """Waits count in the hour of the hand-out and service in that of its end; small values are exact."""
    rows = [event for number in range(100) for event in served(3 * number + 1, number, number % 50, 2)]
    rows += served(1000, HOUR - 10, 5, 20_000, key="beta")
    found = latency(attempts(frame(spark, *rows)))
    waits = ("handed_out", "wait_sum_ms", "wait_p50_ms", "wait_p90_ms", "wait_p99_ms", "wait_max_ms")
    service = ("served", "service_sum_ms", "service_p50_ms", "service_max_ms")
    assert told(found, "key", "hour_ms", *waits, *service) == [
        ("acme", DAY_0, 100, 2450, 24, 44, 49, 49, 100, 200, 2, 2),
        ("beta", DAY_0, 1, 5, 5, 5, 5, 5, 0, 0, None, None),
        ("beta", DAY_0 + HOUR, 0, 0, None, None, None, None, 1, 20_000, 20_000, 20_000),
    ]
    (row,) = found.where("key = 'acme'").select("wait_histogram").collect()
    assert [(entry["bucket"], entry["count"]) for entry in row[0]] == [(value, 2) for value in range(50)]


def test_histograms_merge_without_loss(spark: SparkSession) -> None:
    """The merged histogram of two hours has the percentiles of all values together."""
    rows = [event for number in range(60) for event in served(3 * number + 1, 0, number, 1)]
    rows += [event for number in range(40) for event in served(3 * number + 1001, HOUR, 60, 1)]
    found = merged(latency(attempts(frame(spark, *rows))), "wait", by=["queue", "key"])
    assert told(found, "queue", "key", "count", "wait_sum_ms", "wait_p50_ms", "wait_p90_ms", "wait_max_ms") == [
        ("mail", "acme", 100, 1770 + 2400, 49, 60, 60)
    ]


@pytest.mark.parametrize("shift", [0, 7, 30])
def test_a_bucket_tells_a_value_to_one_part_in_32(spark: SparkSession, shift: int) -> None:
    """A value is not above the greatest of its bucket, and not below that of the bucket before."""
    values = [(value << shift) + 1 for value in range(0, 200, 3)] + [(1 << shift + 6) - 1, 1 << shift + 6]
    numbers = spark.createDataFrame([(value,) for value in values], "value bigint")
    bucket = bucket_of(F.col("value"))
    for value, most, before in numbers.select("value", greatest_in(bucket), greatest_in(bucket - 1)).collect():
        assert before < value <= most
        assert most - value <= value / 32


def test_throttle_waits_count_under_each_throttle(spark: SparkSession) -> None:
    """A message with two throttles is in two rows; one that did not wait counts as handed out only."""
    rows = [
        *served(1, 0, 100, 1, throttles=["smtp", "tenant"], throttled_ms=40),
        *served(11, 0, 10, 1, throttles=["smtp"]),
        *served(21, 0, 10, 1),
    ]
    found = throttle_waits(attempts(frame(spark, *rows)))
    columns = ("throttle", "handed_out", "waited", "throttled_ms", "throttled_p50_ms", "throttled_p99_ms")
    assert told(found, *columns) == [("smtp", 2, 1, 40, 0, 40), ("tenant", 1, 1, 40, 40, 40)]


def test_a_throttle_wait_never_exceeds_the_wait(spark: SparkSession) -> None:
    """What the broker tells is believed as far as it fits, so that the parts of a wait are its sum."""
    (row,) = attempts(frame(spark, *served(1, 0, 100, 1, throttled_ms=500))).collect()
    assert (row["throttled_ms"], row["turn_ms"]) == (100, 0)


def test_deadlines_met_late_and_missed(spark: SparkSession) -> None:
    """What becomes of a message with a deadline counts in the hour in which it was decided."""
    due = DAY_0 + 1000
    rows = [
        *served(1, 0, 10, 990, deadline_ms=due),
        *served(11, 0, 10, 991, deadline_ms=due),
        enqueued(21, 0, deadline_ms=due),
        of("removed", 22, HOUR, 21, reason="deadline"),
        enqueued(31, 0, deadline_ms=due),
        of("dead", 32, 2000, 31, reason="deadline", target="mail.dlq"),
        enqueued(41, 0, deadline_ms=due),
        of("removed", 42, 5, 41, reason="cancelled"),
        enqueued(51, 0, deadline_ms=due),
        *served(61, 0, 1, 1),
    ]
    found = sla(attempts(frame(spark, *rows)))
    assert told(found, "hour_ms", "with_deadline", "met", "late", "missed", "otherwise") == [
        (DAY_0, 4, 1, 1, 1, 1),
        (DAY_0 + HOUR, 1, 0, 0, 1, 0),
    ]
