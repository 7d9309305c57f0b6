"""The table ``latency``: wait and service times, per queue, key and hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.histogram import bucket_of, histograms
from fairlane.spark.tables.schemas import LATENCY
from fairlane.spark.tables.table import HOUR_MS, day_of, shaped

_MEASURES = ("wait", "service")
_BUCKETS = 4096
"""An upper bound on buckets: even the longest duration in milliseconds is below."""
_PLACE = ("queue", "key", "top_key", "hour_ms")


def latency(attempts: DataFrame) -> DataFrame:
    """Return waits by the hour of the lease, and service times by the hour in which the lease ended."""
    place, code, span = ("queue", "key", "top_key"), F.col("code"), F.col("span_ms")
    known = _spans(in_queues(attempts)).where(span.isNotNull())
    counted = known.groupBy(*place, _code().alias("code")).agg(
        F.count("*").alias("count"), F.sum(span).alias("sum_ms"), F.max(span).alias("max_ms")
    )
    buckets = counted.withColumns(
        {
            "hour_ms": F.floor(code / (_BUCKETS * len(_MEASURES))) * HOUR_MS,
            "measure": F.floor(code / _BUCKETS) % len(_MEASURES),
            "bucket": (code % _BUCKETS).cast("int"),
        }
    )
    found = histograms(buckets, "span", by=(*_PLACE, "measure"))
    told = found.groupBy(*_PLACE).agg(*_aggregates("wait", "handed_out"), *_aggregates("service", "served"))
    return shaped(told.withColumn("day", day_of("hour_ms")), LATENCY)


def _spans(attempts: DataFrame) -> DataFrame:
    """Return each measure of each attempt, and when it was known. Plain columns are faster than lists."""
    each = attempts.withColumn("measure", F.explode(F.array(*[F.lit(at) for at in range(len(_MEASURES))])))
    is_wait = F.col("measure") == _MEASURES.index("wait")
    wait = F.greatest(F.col("leased_ms") - F.col("ready_ms"), F.lit(0))
    return each.select(
        "queue",
        "key",
        "top_key",
        "measure",
        F.when(is_wait, F.col("leased_ms")).otherwise(F.col("end_ms")).alias("known_ms"),
        F.when(is_wait, wait).otherwise(F.col("service_ms")).alias("span_ms"),
    )


def _code() -> Column:
    """Return hour, measure and bucket as one number: grouping millions of rows by one number is fast."""
    hour = F.floor(F.col("known_ms") / HOUR_MS) * len(_MEASURES) + F.col("measure")
    return hour * _BUCKETS + bucket_of(F.col("span_ms"))


def _aggregates(measure: str, count: str) -> list[Column]:
    """Return the columns of one measure, from its only row."""

    def only(name: str) -> Column:
        return F.first(F.when(F.col("measure") == _MEASURES.index(measure), F.col(name)), ignorenulls=True)

    named = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "histogram")
    return [
        F.coalesce(only("count"), F.lit(0)).alias(count),
        F.coalesce(only("span_sum_ms"), F.lit(0)).alias(f"{measure}_sum_ms"),
        *[only(f"span_{name}").alias(f"{measure}_{name}") for name in named],
    ]
