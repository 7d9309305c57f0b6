"""The table ``messages``: one row for each message, the sum of its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import MESSAGE
from fairlane.spark.tables.schemas import MESSAGES
from fairlane.spark.tables.table import day_of, group_of, id_of, shaped, uuid_of, whole_queue

_LATEST = (
    *("queue", "is_dlq", "fairness_key", "key", "top_key", "weight", "priority", "throttles", "deadline_ms"),
    *("size_bytes", "cost", "dedup_id", "correlation_id", "cause_id"),
    *("begun_by", "begun_ms", "begun_reason", "leased_ms", "ended_by", "end_ms", "end_reason", "last_sequence"),
    "is_end_new",
)
_WAITS = ("delayed_ms", "backoff_ms", "throttled_ms", "capped_ms", "paused_ms", "turn_ms")


def messages(attempts: DataFrame, *, newest_day: date, groups: Mapping[str, str] | None = None) -> DataFrame:
    """Return the messages that are open or done by a new event; open ones belong to the newest day.

    Args:
        attempts: those of one or more journals.
        newest_day: the day of the latest event.
        groups: the group of each journal; a journal that it does not name is of a server on its own.
    """
    queued = ~F.col("is_dlq")
    by_age = F.col("number")
    sums = [F.coalesce(F.sum(F.when(queued, F.col(name))), F.lit(0)).alias(name) for name in _WAITS]
    gathered = attempts.groupBy(*MESSAGE).agg(
        F.max_by(F.struct(*_LATEST), by_age).alias("last"),
        F.max_by(F.when(queued, F.col("queue")), F.when(queued, by_age)).alias("home"),
        F.min(F.when(F.col("begun_by").isin("enqueued", "published"), F.col("begun_ms"))).alias("enqueued_ms"),
        F.min(F.when(queued, F.col("leased_ms"))).alias("first_leased_ms"),
        F.max(F.when(queued, F.col("leased_ms"))).alias("last_leased_ms"),
        F.count(F.when(queued, F.col("leased_ms"))).alias("attempts"),
        F.count_if(queued & F.col("is_failed")).alias("failures"),
        *sums,
        F.coalesce(F.sum(F.when(queued, F.col("service_ms"))), F.lit(0)).alias("service_ms"),
        F.max("cost_true").alias("cost_true"),
        F.max_by("error", F.when(F.col("error").isNotNull(), by_age)).alias("error"),
        F.max_by("owner", F.when(F.col("owner").isNotNull(), by_age)).alias("owner"),
        F.count_if((F.col("ended_by") == "dead") & queued).alias("deaths"),
        F.count_if(F.col("begun_by") == "redriven").alias("redrives"),
        F.max(F.when(F.col("begun_by") == "redriven", F.col("begun_ms"))).alias("redriven_ms"),
    )
    return shaped(_told(gathered, newest_day).withColumn("group", group_of(groups or {})), MESSAGES)


def _told(gathered: DataFrame, newest_day: date) -> DataFrame:
    last = F.col("last")
    is_done = last.ended_by.isin("acked", "removed")
    frame = gathered.select(
        id_of("message").alias("message_id"),
        *[name for name in gathered.columns if name not in ("message", "last", "home")],
        *[last[name].alias(name) for name in _LATEST if name not in ("queue", "is_dlq")],
        whole_queue(F.coalesce(F.col("home"), last.queue)).alias("queue"),
        last.cost.alias("cost_estimated"),
        _outcome(last).alias("outcome"),
        F.when(is_done, last.end_reason).when(last.begun_by == "dead", last.begun_reason).alias("reason"),
        F.when(is_done, last.end_ms).when(last.begun_by == "dead", last.begun_ms).alias("done_ms"),
        sum((F.col(name) for name in _WAITS), F.lit(0)).alias("wait_ms"),
        (is_done.isNull() | ~is_done).alias("is_open"),
    )
    day = F.when(F.col("is_open"), F.lit(newest_day)).otherwise(day_of("done_ms"))
    own_id = F.coalesce("correlation_id", uuid_of("message_id", "journal_id"), "message_id")
    return frame.where(F.col("is_open") | F.col("is_end_new")).withColumns({"day": day, "correlation_id": own_id})


def _outcome(last: Column) -> Column:
    return (
        F.when(last.ended_by.isin("acked", "removed"), last.ended_by)
        .when(last.begun_by == "staged", "staged")
        .when(last.is_dlq, "dead")
        .when(last.leased_ms.isNotNull(), "leased")
        .otherwise("waiting")
    )
