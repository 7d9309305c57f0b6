"""The table ``noisy_neighbours``: which keys were served while others waited.

In each window a victim's waiting, in message-milliseconds, is divided among the keys that were served in it, by cost.
Only the keys that waited most in an hour take part as victims, and those that were served most in a window as
neighbours, so the number of pairs is bounded. Hours in which a queue served nothing cost nothing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.runs import WINDOW_LENGTH_MS
from fairlane.spark.tables.schemas import NOISY_NEIGHBOURS
from fairlane.spark.tables.table import HOUR_MS, day_of, hour_of, shaped

VICTIMS_MAX = 20
"""The number of victims of each queue and hour."""
NEIGHBOURS_MAX = 8
"""The number of neighbours that take part in each window."""
PAIRS_MAX = 20
"""The number of pairs that are kept for each queue and hour."""

_QUEUE_DAY = ("queue", "day")
_HOUR = ("queue", "hour_ms")


def noisy_neighbours(runs: DataFrame, *, window_length_ms: int = WINDOW_LENGTH_MS) -> DataFrame:
    """Return the worst pairs of each queue and hour, from the runs of ``runs.runs``."""
    served = _served(runs)
    waits = _waits(runs, served)
    victims = _victims(waits)
    delay = F.col("waited_ms") * F.col("served_cost") / F.col("in_all")
    pairs = (
        _by_window(waits.join(victims, [*_HOUR, "victim"], "left_semi"), window_length_ms)
        .join(served.drop("day"), ["queue", "window_ms"])
        .groupBy(*_HOUR, "victim", "neighbour")
        .agg(
            F.sum(delay).alias("delay"),
            F.sum("served_cost").alias("neighbour_cost"),
            F.sum("handed_out").alias("neighbour_leases"),
        )
    )
    told = {
        "delay_ms": F.round("delay"),
        "part": F.try_divide(F.col("delay"), F.col("victim_waited_ms")),
        "rank": F.when(~F.col("is_own"), F.col("place")),
        "day": day_of("hour_ms"),
    }
    return shaped(_worst(pairs).join(victims, [*_HOUR, "victim"]).withColumns(told), NOISY_NEIGHBOURS)


def _served(runs: DataFrame) -> DataFrame:
    """Return the keys that were served most in each window, and the cost that was served to all."""
    window = Window.partitionBy("queue", "from_ms")
    place = F.row_number().over(window.orderBy(F.desc("served_cost"), "top_key"))
    found = runs.where(F.col("served_cost") > 0).select(
        *_QUEUE_DAY,
        F.col("from_ms").alias("window_ms"),
        F.col("top_key").alias("neighbour"),
        "served_cost",
        "handed_out",
        F.sum("served_cost").over(window).alias("in_all"),
        place.alias("place"),
    )
    return found.where(F.col("place") <= NEIGHBOURS_MAX).drop("place")


def _waits(runs: DataFrame, served: DataFrame) -> DataFrame:
    """Return the part of each run that lies in each hour in which its queue served something."""
    hours = served.groupBy(*_QUEUE_DAY).agg(F.collect_set(hour_of("window_ms")).alias("hours"))
    inside = F.filter("hours", lambda hour: (hour < F.col("until_ms")) & (hour + HOUR_MS > F.col("from_ms")))
    each = (
        runs.where(F.col("waited_ms") > 0)
        .join(hours, list(_QUEUE_DAY))
        .select(
            *("queue", "is_quiet", "backlog", "waited_ms", "from_ms", "until_ms"),
            F.col("top_key").alias("victim"),
            F.explode(inside).alias("hour_ms"),
        )
        .withColumns(
            {
                "from_ms": F.greatest("from_ms", "hour_ms"),
                "until_ms": F.least(F.col("until_ms"), F.col("hour_ms") + HOUR_MS),
            }
        )
    )
    return each.withColumn("waited_ms", _waited(F.col("until_ms") - F.col("from_ms")))


def _waited(length_ms: Column) -> Column:
    """Return how long messages waited in a part of a run; only quiet runs have parts."""
    return F.when(F.col("is_quiet"), F.col("backlog") * length_ms).otherwise(F.col("waited_ms"))


def _victims(waits: DataFrame) -> DataFrame:
    """Return the keys that waited most in each queue and hour, and how long that was."""
    waited = waits.groupBy(*_HOUR, "victim").agg(F.sum("waited_ms").alias("victim_waited_ms"))
    place = F.row_number().over(Window.partitionBy(*_HOUR).orderBy(F.desc("victim_waited_ms"), "victim"))
    return waited.withColumn("victim_place", place).where(F.col("victim_place") <= VICTIMS_MAX).drop("victim_place")


def _by_window(waits: DataFrame, length_ms: int) -> DataFrame:
    """Return the waiting of victims in each window."""
    from_ms, until_ms = F.col("from_ms"), F.col("until_ms")
    windows = F.when(F.col("is_quiet"), F.sequence(from_ms, until_ms - 1, F.lit(length_ms).cast("long")))
    each = waits.withColumn("window_ms", F.explode(F.coalesce(windows, F.array(from_ms))))
    inside = F.least(F.col("window_ms") + length_ms, until_ms) - F.col("window_ms")
    return each.select(*_HOUR, "victim", "window_ms", _waited(inside).alias("waited_ms"))


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
