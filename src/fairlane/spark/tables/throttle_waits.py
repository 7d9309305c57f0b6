"""The table ``throttle_waits``: waits for throttles, per queue, throttle, key and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.histogram import bucket_of, histograms
from fairlane.spark.tables.schemas import THROTTLE_WAITS
from fairlane.spark.tables.table import day_of, hour_of, shaped

_PLACE = ("queue", "throttle", "key", "top_key", "hour_ms")


def throttle_waits(attempts: DataFrame) -> DataFrame:
    """Return throttle waits by the hour of the lease; a message with several throttles counts for each."""
    taken = in_queues(attempts).where(F.col("leased_ms").isNotNull() & (F.size("throttles") > 0))
    each = taken.select(
        *("queue", "key", "top_key", "throttled_ms"),
        F.explode("throttles").alias("throttle"),
        hour_of("leased_ms").alias("hour_ms"),
    )
    span = F.col("throttled_ms")
    counted = each.groupBy(*_PLACE, bucket_of(span).alias("bucket")).agg(
        F.count("*").alias("count"), F.sum(span).alias("sum_ms"), F.max(span).alias("max_ms")
    )
    found = histograms(counted, "throttled", by=_PLACE, percents=(50, 99))
    at_once = F.filter("throttled_histogram", lambda entry: entry["bucket"] == 0)
    told = found.withColumns(
        {
            "handed_out": F.col("count"),
            "waited": F.col("count") - F.coalesce(F.try_element_at(at_once, F.lit(1))["count"], F.lit(0)),
            "throttled_ms": F.col("throttled_sum_ms"),
            "day": day_of("hour_ms"),
        }
    )
    return shaped(told, THROTTLE_WAITS)
