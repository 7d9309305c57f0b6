"""The table ``tenant_usage``: activity of each key, per queue and hour, for chargeback."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.schemas import TENANT_USAGE
from fairlane.spark.tables.table import day_of, hour_of, shaped

_PLACE = ("queue", "key", "top_key")
_COUNTS = tuple(field.name for field in TENANT_USAGE.schema if field.name not in (*_PLACE, "hour_ms", "day"))


def tenant_usage(attempts: DataFrame) -> DataFrame:
    """Return usage; each event counts in the hour in which it happened."""
    facts = F.explode(F.filter(F.array(_begun(), _leased(), _ended()), lambda fact: fact.isNotNull()))
    told = _alike(in_queues(attempts)).select(*_PLACE, facts.alias("fact")).select(*_PLACE, "fact.*")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS]
    hours = told.groupBy(*_PLACE, "hour_ms").agg(*sums)
    return shaped(hours.withColumn("day", day_of("hour_ms")), TENANT_USAGE)


def _alike(attempts: DataFrame) -> DataFrame:
    """Group attempts that began, were leased and ended in the same hours and ways, which leaves few rows."""
    hours = [hour_of(f"{moment}_ms").alias(f"{moment}_hour_ms") for moment in ("begun", "leased", "end")]
    return attempts.groupBy(*_PLACE, *hours, "begun_by", "ended_by").agg(
        F.count("*").alias("count"),
        F.count_if("is_failed").alias("failed"),
        F.sum("size_bytes").alias("bytes"),
        F.sum("cost").alias("cost"),
        F.sum(F.coalesce("cost_true", "cost")).alias("cost_true"),
        F.sum("service_ms").alias("service_ms"),
    )


def _begun() -> Column:
    is_new, is_redriven = F.col("begun_by").isin("enqueued", "published"), F.col("begun_by") == "redriven"
    return _fact(
        "begun",
        is_new | is_redriven,
        enqueued=F.when(is_new, F.col("count")),
        enqueued_bytes=F.when(is_new, F.col("bytes")),
        enqueued_cost=F.when(is_new, F.col("cost")),
        redriven=F.when(is_redriven, F.col("count")),
    )


def _leased() -> Column:
    return _fact("leased", F.col("leased_hour_ms").isNotNull(), leased=F.col("count"))


def _ended() -> Column:
    is_acked, is_dead, is_removed = (F.col("ended_by") == kind for kind in ("acked", "dead", "removed"))
    return _fact(
        "end",
        F.col("service_ms").isNotNull() | (F.col("failed") > 0) | is_acked | is_dead | is_removed,
        acked=F.when(is_acked, F.col("count")),
        acked_bytes=F.when(is_acked, F.col("bytes")),
        cost_estimated=F.when(is_acked, F.col("cost")),
        cost_true=F.when(is_acked, F.col("cost_true")),
        service_ms=F.col("service_ms"),
        failed=F.col("failed"),
        dead=F.when(is_dead, F.col("count")),
        removed=F.when(is_removed, F.col("count")),
    )


def _fact(moment: str, is_so: Column, **counts: Column) -> Column:
    """Return what attempts contribute to the hour of one of their instants."""
    values = [counts.get(name, F.lit(None)).cast("long").alias(name) for name in _COUNTS]
    return F.when(is_so, F.struct(F.col(f"{moment}_hour_ms").alias("hour_ms"), *values))
