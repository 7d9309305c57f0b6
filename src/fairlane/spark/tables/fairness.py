"""The tables ``fairness_keys`` and ``fairness``: what each top key was served in each window, and its entitled share.

``fairlane.model.shares`` defines the entitled share; this is the same in SQL. With T the cost served in a window, let
each key i with work have weight w and the cost d of its work. Then key i is entitled to min(d, w * L), with the level L
such that the sum over all keys is T. In order of d/w, with D the work and W the weight of the keys before i, the level
is the greatest (T - D) / (W_all - W): it rises as long as keys get all they have, and falls from the first on that does
not.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.schemas import FAIRNESS, FAIRNESS_KEYS
from fairlane.spark.tables.table import shaped, start_of
from fairlane.spark.tables.turns import WINDOW_LENGTH_MS

_PLACE = ("queue", "window_ms")


def fairness_keys(weighted: DataFrame, starvation: DataFrame, *, window_length_ms: int = WINDOW_LENGTH_MS) -> DataFrame:
    """Return the shares of keys, from windows with weights and the episodes of starvation on the same days."""
    work, weight, served = F.col("waiting_cost"), F.col("weight"), F.col("served_cost")
    by_need = Window.partitionBy(*_PLACE).orderBy(work / weight, "top_key")
    before = by_need.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy(*_PLACE)
    rest = F.sum(weight).over(whole) - F.coalesce(F.sum(weight).over(before), F.lit(0))
    served_in_all = F.sum(served).over(whole)
    level = (served_in_all - F.coalesce(F.sum(work).over(before), F.lit(0))) / rest
    levelled = weighted.select("*", served_in_all.alias("all_served"), level.alias("level_here"))
    entitled = F.least(work.cast("double"), weight * F.max("level_here").over(whole))
    known = levelled.withColumn("entitled", entitled)
    told = known.join(_starved(starvation, window_length_ms), [*_PLACE, "top_key"], "left").select(
        "*",
        F.try_divide(served, F.col("all_served")).alias("share"),
        F.try_divide(F.col("entitled"), F.col("all_served")).alias("entitled_share"),
        (F.col("entitled") - served).alias("lag_cost"),
        F.coalesce("starved", F.lit(0)).alias("starved_ms"),
    )
    return shaped(told, FAIRNESS_KEYS)


def _starved(starvation: DataFrame, length_ms: int) -> DataFrame:
    """Return how long keys starved in each window."""
    day_ms = start_of("day")
    from_ms, until_ms = F.greatest(day_ms, F.col("from_ms")), F.col("from_ms") + F.col("lasted_ms")
    first = from_ms - F.pmod(from_ms, F.lit(length_ms))
    each = starvation.select(
        "queue",
        "top_key",
        from_ms.alias("from_ms"),
        until_ms.alias("until_ms"),
        F.explode(F.sequence(first, until_ms - 1, F.lit(length_ms).cast("long"))).alias("window_ms"),
    )
    inside = F.least("until_ms", F.col("window_ms") + length_ms) - F.greatest("from_ms", "window_ms")
    return each.groupBy(*_PLACE, "top_key").agg(F.sum(inside).alias("starved"))


def fairness(keys: DataFrame, *, window_length_ms: int = WINDOW_LENGTH_MS) -> DataFrame:
    """Return the fairness of each queue and window, from the rows of ``fairness_keys``."""
    ratio = F.when(F.col("entitled_share") > 0, F.col("share") / F.col("entitled_share"))
    lag = F.col("lag_cost")
    jain = F.try_divide(F.pow(F.sum(ratio), F.lit(2)), F.count(ratio) * F.sum(ratio * ratio))
    told = keys.groupBy(*_PLACE, "day").agg(
        F.lit(window_length_ms).alias("window_length_ms"),
        F.count("*").alias("keys"),
        F.sum("waiting_cost").alias("waiting_cost"),
        F.sum("served_cost").alias("served_cost"),
        F.sum("handed_out").alias("handed_out"),
        jain.alias("jain"),
        F.greatest(F.max(lag), F.lit(0.0)).alias("lag_max_cost"),
        F.max_by("top_key", F.when(lag > _NOTHING, F.struct(lag, "top_key"))).alias("lag_max_key"),
        F.count_if(F.col("starved_ms") > 0).alias("starving_keys"),
    )
    return shaped(told, FAIRNESS)


_NOTHING = 1e-6
"""A lag below this is rounding."""
