"""The table ``latency``: how long messages waited and were worked on, per queue, key and hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from fairlead.spark.tables.attempts import in_queues
from fairlead.spark.tables.histogram import bucket_of, histograms
from fairlead.spark.tables.schemas import LATENCY
from fairlead.spark.tables.table import day_of, hour_of, shaped

_PLACE = ("queue", "key", "top_key", "hour_ms")


def latency(attempts: DataFrame) -> DataFrame:
    """Return waits by the hour of the hand-out, and service times by the hour in which the lease ended."""
    wait = _measure("wait", at="leased_ms", span=F.greatest(F.col("leased_ms") - F.col("ready_ms"), F.lit(0)))
    service = _measure("service", at="end_ms", span=F.col("service_ms"))
    measured = in_queues(attempts).select("queue", "key", "top_key", F.explode(F.array(wait, service)).alias("one"))
    known = measured.where(F.col("one.span_ms").isNotNull()).select("queue", "key", "top_key", "one.*")
    counted = known.groupBy(*_PLACE, "measure", bucket_of(F.col("span_ms")).alias("bucket")).agg(
        F.count("*").alias("count"), F.sum("span_ms").alias("sum_ms"), F.max("span_ms").alias("max_ms")
    )
    found = histograms(counted, "span", by=(*_PLACE, "measure"))
    told = found.groupBy(*_PLACE).agg(*_aggregates("wait", "handed_out"), *_aggregates("service", "served"))
    return shaped(told.withColumn("day", day_of("hour_ms")), LATENCY)


def _measure(name: str, *, at: str, span: Column) -> Column:
    return F.struct(F.lit(name).alias("measure"), hour_of(at).alias("hour_ms"), span.alias("span_ms"))


def _aggregates(measure: str, count: str) -> list[Column]:
    """Return the columns of one measure, of the one row there is of it."""

    def only(name: str) -> Column:
        return F.first(F.when(F.col("measure") == measure, F.col(name)), ignorenulls=True)

    named = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "histogram")
    return [
        F.coalesce(only("count"), F.lit(0)).alias(count),
        F.coalesce(only("span_sum_ms"), F.lit(0)).alias(f"{measure}_sum_ms"),
        *[only(f"span_{name}").alias(f"{measure}_{name}") for name in named],
    ]
