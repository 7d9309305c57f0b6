"""Sums over intervals without multiplying rows: running sums at both ends of an interval, and their difference."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def with_sums(
    spans: DataFrame, points: DataFrame, values: Sequence[str], *, by: Sequence[str], begin: str, end: str
) -> DataFrame:
    """Add to each span the sums of the values of all points in it, from ``begin`` up to, but not including, ``end``.

    A span and a point belong together if they have the same ``by``. No row is joined with another: the cost is that of
    sorting spans and points once, however many points a span contains.

    Args:
        spans: rows, each different from all others.
        points: rows with the columns of ``by``, the instant ``at_ms``, and the values.
        values: the columns to be added up.
        by: the columns by which spans and points belong together.
        begin: the column of the spans with the instant at which each begins.
        end: the column with the instant at which it ends.
    """
    told = spans.columns
    sides = F.array(_side(F.col(begin), -1), _side(F.col(end), 1))
    ends = spans.withColumn("_side", F.explode(sides)).select("*", "_side.*").drop("_side")
    each = points.select(*by, F.col("at_ms").alias("_at_ms"), *[F.col(name).alias(f"_{name}") for name in values])
    marks = ends.unionByName(each, allowMissingColumns=True)
    # An end comes before the points of the same instant: a span has its first instant, and does not have its last.
    in_order = Window.partitionBy(*by).orderBy("_at_ms", F.col("_sign").isNull())
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    sums = {f"_{name}": F.coalesce(F.sum(f"_{name}").over(so_far), F.lit(0)) for name in values}
    known = marks.withColumns(sums).where(F.col("_sign").isNotNull())
    differences = [F.sum(F.col("_sign") * F.col(f"_{name}")).alias(name) for name in values]
    return known.groupBy(*told).agg(*differences)


def _side(at_ms: Column, sign: int) -> Column:
    return F.struct(at_ms.alias("_at_ms"), F.lit(sign).alias("_sign"))
