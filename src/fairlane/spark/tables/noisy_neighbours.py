"""The table ``noisy_neighbours``: which keys were served while others waited.

In each window a victim's waiting, in message-milliseconds, is divided among the keys that were served in it, by cost.
Only the keys that waited most and those that were served most take part, so a window has a bounded number of pairs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.schemas import NOISY_NEIGHBOURS
from fairlane.spark.tables.table import day_of, hour_of, shaped

KEYS_MAX = 8
"""The number of victims, and of neighbours, that take part in each window."""
PAIRS_MAX = 20
"""The number of pairs that are kept for each queue and hour."""

_WINDOW = ("queue", "window_ms")
_HOUR = ("queue", "hour_ms")


def noisy_neighbours(windows: DataFrame) -> DataFrame:
    """Return the worst pairs of each queue and hour, from the windows of ``turns.windows``."""
    victims = _most(windows, "waited_ms").select(*_WINDOW, F.col("top_key").alias("victim"), "waited_ms")
    neighbours = _most(windows, "served_cost").select(
        *_WINDOW, F.col("top_key").alias("neighbour"), "served_cost", "in_all"
    )
    delay = F.col("waited_ms") * F.col("served_cost") / F.col("in_all")
    pairs = (
        victims.join(neighbours, list(_WINDOW))
        .groupBy("queue", hour_of("window_ms").alias("hour_ms"), "victim", "neighbour")
        .agg(F.sum(delay).alias("delay"), F.sum("served_cost").alias("neighbour_cost"))
    )
    waited = windows.groupBy("queue", hour_of("window_ms").alias("hour_ms"), F.col("top_key").alias("victim")).agg(
        F.sum("waited_ms").alias("victim_waited_ms")
    )
    told = (
        _worst(pairs)
        .join(waited, [*_HOUR, "victim"])
        .select(
            "*",
            F.round("delay").alias("delay_ms"),
            F.try_divide(F.col("delay"), F.col("victim_waited_ms")).alias("part"),
            F.when(~F.col("is_own"), F.col("place")).alias("rank"),
            day_of("hour_ms").alias("day"),
        )
    )
    return shaped(told, NOISY_NEIGHBOURS)


def _worst(pairs: DataFrame) -> DataFrame:
    """Return the worst pairs of each queue and hour, and the own part of their victims."""
    by_delay = Window.partitionBy(*_HOUR, "is_own").orderBy(F.desc("delay"), "victim", "neighbour")
    is_worst = ~F.col("is_own") & (F.col("place") <= PAIRS_MAX)
    is_victim = F.max("is_worst").over(Window.partitionBy(*_HOUR, "victim"))
    ranked = (
        pairs.withColumn("is_own", F.col("victim") == F.col("neighbour"))
        .withColumn("place", F.row_number().over(by_delay))
        .withColumn("is_worst", is_worst)
        .withColumn("is_victim", is_victim)
    )
    return ranked.where(F.col("is_worst") | F.col("is_own") & F.col("is_victim"))


def _most(windows: DataFrame, column: str) -> DataFrame:
    """Return the keys of each window with the highest values in a column, and the sum over all keys."""
    place = F.row_number().over(Window.partitionBy(*_WINDOW).orderBy(F.desc(column), "top_key"))
    in_all = F.sum(column).over(Window.partitionBy(*_WINDOW))
    some = windows.where(F.col(column) > 0).select("*", place.alias("place"), in_all.alias("in_all"))
    return some.where(F.col("place") <= KEYS_MAX)
