"""Histograms in Spark SQL, on the scale that ``fairlane.model.histogram`` defines.

In a table a histogram is a list of buckets and counts, in order of buckets. Two merge by adding counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.model.histogram import TABLE_BITS

_SPLIT = 1 << TABLE_BITS


def bucket_of(value: Column) -> Column:
    """Return the bucket of a whole number; negative numbers count as 0."""
    least = F.greatest(value, F.lit(0))
    power = F.floor(F.log2(least + F.lit(0.5))).cast("int")  # the half keeps rounding away from powers of two
    shift = F.greatest(power - TABLE_BITS, F.lit(0))
    return (shift * _SPLIT + F.call_function("shiftright", least.cast("long"), shift)).cast("int")


def greatest_in(bucket: Column) -> Column:
    """Return the greatest value of a bucket."""
    shift = F.greatest(F.floor(bucket / F.lit(_SPLIT)) - 1, F.lit(0))
    return ((bucket - shift * _SPLIT + 1) * F.pow(F.lit(2.0), shift) - 1).cast("long")


def histograms(
    counted: DataFrame, name: str, *, by: Sequence[str], percents: Sequence[int] = (50, 90, 99)
) -> DataFrame:
    """Build histograms from counted buckets: ``by``, ``bucket``, ``count``, ``sum_ms`` and ``max_ms`` in each row.

    Returns for each ``by`` the columns ``count``, ``NAME_sum_ms``, ``NAME_max_ms``, ``NAME_histogram``, and for each
    percent ``NAME_pPERCENT_ms``: that percentile, to the precision of the buckets.
    """
    gathered = counted.groupBy(*by).agg(
        F.sum("count").alias("count"),
        F.sum("sum_ms").alias(f"{name}_sum_ms"),
        F.max("max_ms").alias(f"{name}_max_ms"),
        F.array_sort(F.collect_list(F.struct("bucket", "count"))).alias(f"{name}_histogram"),
    )
    found = gathered.withColumn("_found", _buckets_at(F.col(f"{name}_histogram"), F.col("count"), percents))
    parts = {
        f"{name}_p{percent}_ms": F.least(greatest_in(F.col("_found")[f"p{percent}"]), F.col(f"{name}_max_ms"))
        for percent in percents
    }
    return found.withColumns(parts).drop("_found")


def _buckets_at(histogram: Column, count: Column, percents: Sequence[int]) -> Column:
    """Return the buckets of some percentiles, in one pass."""
    nothing = F.lit(None).cast("int")
    start = F.struct(F.lit(0).cast("long").alias("passed"), *[nothing.alias(f"p{percent}") for percent in percents])

    def step(so_far: Column, entry: Column) -> Column:
        passed = so_far["passed"] + entry["count"]
        reached = [
            F.coalesce(so_far[f"p{percent}"], F.when(passed * 100 >= count * percent, entry["bucket"])).alias(
                f"p{percent}"
            )
            for percent in percents
        ]
        return F.struct(passed.alias("passed"), *reached)

    return F.aggregate(histogram, start, step)


def merged(frame: DataFrame, name: str, *, by: Sequence[str], percents: Sequence[int] = (50, 90, 99)) -> DataFrame:
    """Merge the histograms ``NAME_histogram`` of all rows that have the same ``by``, and compute their percentiles.

    Sums and greatest values are taken from ``NAME_sum_ms`` and ``NAME_max_ms`` where the frame has them.
    """
    known = set(frame.columns)
    total = frame.groupBy(*by).agg(
        *[each(column).alias(column) for column, each in _totals(name).items() if column in known]
    )
    entries = frame.select(*by, F.explode(f"{name}_histogram").alias("entry"))
    counted = entries.groupBy(*by, F.col("entry.bucket").alias("bucket")).agg(F.sum("entry.count").alias("count"))
    plain = counted.withColumns({"sum_ms": F.lit(0), "max_ms": greatest_in(F.col("bucket"))})
    found = histograms(plain, name, by=by, percents=percents)
    return found.drop(*[column for column in total.columns if column not in by]).join(total, list(by))


def _totals(name: str) -> dict[str, Callable[[str], Column]]:
    return {f"{name}_sum_ms": F.sum, f"{name}_max_ms": F.max}
