"""Deaths, clustered by what their errors have in common."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.dead_letters import dead_letters, deaths, merged, signature_of
from tests.spark.table_rows import DAY, DAY_0, Event, enqueued, frame, message_id, of, told


def death(first: int, at: int, error: str | None, key: str = "acme") -> list[Event]:
    """Return a message that dies of an error; it takes three sequence numbers."""
    why: dict[str, Any] = {"reason": "max_attempts", "ended": "failure", "target": "mail.dlq", "error": error}
    return [enqueued(first, at, key), of("leased", first + 1, at, first), of("dead", first + 2, at, first, **why)]


def test_errors_that_differ_in_details_are_one_kind(spark: SparkSession) -> None:
    """Numbers and names in an error don't make another kind of it; a redrive on the same day is counted."""
    rows = [
        *death(1, 0, "user 17 not found"),
        *death(11, 10, "user 4711 not found", "beta"),
        *death(21, 20, "timeout after 3.5 s"),
        *death(31, DAY, "user 1 not found"),
        *death(41, 30, None),
        of("redriven", 50, 40, 1, queue="mail.dlq", target="mail", fairness_key=["acme"], cost=1, throttles=[]),
        of("redriven", 51, DAY + 5, 11, queue="mail.dlq", target="mail", fairness_key=["beta"], cost=1, throttles=[]),
    ]
    found = dead_letters(deaths(attempts(frame(spark, *rows))))
    columns = ("signature", "count", "first_seen_ms", "last_seen_ms", "keys_hit", "keys", "redriven")
    assert told(found, *columns, "sample_error", "sample_message_ids") == [
        ("", 1, DAY_0 + 30, DAY_0 + 30, 1, ["acme"], 0, None, [message_id(41)]),
        ("timeout after <n> s", 1, DAY_0 + 20, DAY_0 + 20, 1, ["acme"], 0, "timeout after 3.5 s", [message_id(21)]),
        ("user <n> not found", 1, DAY_0 + DAY, DAY_0 + DAY, 1, ["acme"], 0, "user 1 not found", [message_id(31)]),
        (
            *("user <n> not found", 2, DAY_0, DAY_0 + 10, 2, ["acme", "beta"], 1, "user 17 not found"),
            [message_id(1), message_id(11)],
        ),
    ]
    assert told(merged(found).where("signature LIKE 'user%'"), "count", "keys_hit", "redriven", "last_seen_ms") == [
        (3, 2, 1, DAY_0 + DAY)
    ]


def test_many_keys_of_a_day_are_counted_over_several_days(spark: SparkSession) -> None:
    """A day lists a hundred keys at most; of 130 on one day and another on the next, at least 130 are counted."""
    rows = [row for at in range(130) for row in death(10 * at + 1, at, "timeout", f"tenant-{at:03}")]
    rows += death(2_001, DAY, "timeout", "zebra")
    found = dead_letters(deaths(attempts(frame(spark, *rows))))
    assert told(found, "count", "keys_hit") == [(1, 1), (130, 130)]
    assert told(merged(found), "count", "keys_hit") == [(131, 130)]


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        ("HTTP 503 from https://api.example.com/v1/x?id=3", "HTTP <n> from <url>"),
        ("no file /var/lib/data/a-1.txt here", "no file <path> here"),
        ("job 123e4567-e89b-12d3-a456-426614174000 failed", "job <uuid> failed"),
        ("at 0x7f3a, commit deadbeef01", "at <hex>, commit <hex>"),
        ("KeyError: 'user_name'\n  line 12", "KeyError: <text> line <n>"),
        ("it can't be done, he said", "it can't be done, he said"),
        ('bad value "a b" in column `c`', "bad value <text> in column <text>"),
    ],
)
def test_what_varies_is_replaced(spark: SparkSession, error: str, signature: str) -> None:
    """Addresses, paths, ids, quoted texts and numbers are replaced, and words are left alone."""
    (row,) = spark.createDataFrame([(error,)], "error string").select(signature_of(F.col("error"))).collect()
    assert row[0] == signature
