"""The table ``latency``: how long messages waited and were worked on, per queue, key and hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from fairlead.spark.tables.attempts import in_queues
from fairlead.spark.tables.histogram import bucket_of, histograms
from fairlead.spark.tables.schemas import LATENCY
from fairlead.spark.tables.table import HOUR_MS, day_of, shaped

_MEASURES = ("wait", "service")
_BUCKETS = 4096
"""More than there are: the longest span in milliseconds has a bucket below."""
_PLACE = ("queue", "key", "top_key", "hour_ms")


def latency(attempts: DataFrame) -> DataFrame:
    """Return waits by the hour of the hand-out, and service times by the hour in which the lease ended."""
    wait = _measure("wait", at="leased_ms", span=F.greatest(F.col("leased_ms") - F.col("ready_ms"), F.lit(0)))
    service = _measure("service", at="end_ms", span=F.col("service_ms"))
    measured = in_queues(attempts).select("queue", "key", "top_key", F.explode(F.array(wait, service)).alias("one"))
    known = measured.where(F.col("one.span_ms").isNotNull())
    span, code = F.col("one.span_ms"), F.col("code")
    counted = known.groupBy("queue", "key", "top_key", F.col("one.code").alias("code")).agg(
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


def _measure(name: str, *, at: str, span: Column) -> Column:
    """Return a span, and in one number its hour, measure and bucket: millions are grouped by it, and one is quick."""
    hour = F.floor(F.col(at) / HOUR_MS) * len(_MEASURES) + _MEASURES.index(name)
    return F.struct((hour * _BUCKETS + bucket_of(span)).alias("code"), span.alias("span_ms"))


def _aggregates(measure: str, count: str) -> list[Column]:
    """Return the columns of one measure, of the one row there is of it."""

    def only(name: str) -> Column:
        return F.first(F.when(F.col("measure") == _MEASURES.index(measure), F.col(name)), ignorenulls=True)

    named = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "histogram")
    return [
        F.coalesce(only("count"), F.lit(0)).alias(count),
        F.coalesce(only("span_sum_ms"), F.lit(0)).alias(f"{measure}_sum_ms"),
        *[only(f"span_{name}").alias(f"{measure}_{name}") for name in named],
    ]
