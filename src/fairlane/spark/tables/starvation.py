"""The table ``starvation``: episodes in which a top key had work and got nothing for long.

Between two leases of a key it starves from the later of two instants: the first lease, and the beginning of the longest
wait that lasts until the second. A wait that ends without a lease, by a removal or a pause, ends an episode, too.

An episode in which the whole queue got nothing is not starvation: no consumer was there. It has a row all the same,
with ``served_meanwhile`` 0.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.intervals import with_sums
from fairlane.spark.tables.schemas import STARVATION
from fairlane.spark.tables.table import shaped, start_of
from fairlane.spark.tables.turns import Days

THRESHOLD_MS = 60_000
_KEY_DAY = ("queue", "top_key", "day")
_STEP_MS = THRESHOLD_MS // 4
"""Leases closer than this are merged. It must be shorter than the threshold."""
_SECOND_MS = 1_000


def ends(pieces: DataFrame) -> DataFrame:
    """Return when waits of a key ended, one row for each step: the first and last end, and the earliest beginning.

    Waits that last are one row without a step.
    """
    step = F.floor(F.col("until_ms") / _STEP_MS)
    each = pieces.select(
        *_KEY_DAY, step.alias("step"), "is_served", "until_ms", F.col("until_ms").alias("last_ms"), "since_ms"
    )
    return merged_ends(each)


def merged_ends(ends: DataFrame) -> DataFrame:
    """Return each step of each key and day once."""
    return ends.groupBy(*_KEY_DAY, "step", "is_served").agg(
        F.min("until_ms").alias("until_ms"), F.max("last_ms").alias("last_ms"), F.min("since_ms").alias("since_ms")
    )


def leases(pieces: DataFrame) -> DataFrame:
    """Return how many leases each queue gave in each second."""
    second = F.col("until_ms") - F.pmod("until_ms", F.lit(_SECOND_MS))
    each = pieces.where("is_served").select("queue", "day", second.alias("at_ms"), F.lit(1).alias("served_meanwhile"))
    return merged_leases(each)


def merged_leases(leases: DataFrame) -> DataFrame:
    """Return each second of each queue once."""
    return leases.groupBy("queue", "day", "at_ms").agg(F.sum("served_meanwhile").alias("served_meanwhile"))


def starvation(ends: DataFrame, leases: DataFrame, span: Days) -> DataFrame:
    """Return the episodes of each day, from the ends of waits and the leases of queues."""
    until_ms = F.coalesce("until_ms", F.least(start_of(F.date_add("day", 1)), F.lit(span.horizon_ms)))
    return shaped(_with_served_meanwhile(_episodes(ends.withColumn("until_ms", until_ms)), leases), STARVATION)


def _episodes(ends: DataFrame) -> DataFrame:
    forwards = Window.partitionBy(*_KEY_DAY).orderBy("until_ms", "is_served")
    backwards = Window.partitionBy(*_KEY_DAY).orderBy(F.desc("until_ms"), F.desc("is_served"))
    earlier = forwards.rowsBetween(Window.unboundedPreceding, -1)
    so_far = backwards.rowsBetween(Window.unboundedPreceding, 0)
    served_ms = F.when(F.col("is_served"), F.col("last_ms"))
    gaps = ends.select(
        *_KEY_DAY,
        "until_ms",
        F.col("step").isNull().alias("is_on"),
        F.greatest(F.max(served_ms).over(earlier), F.min("since_ms").over(so_far)).alias("from_ms"),
        F.coalesce(F.sum(F.col("is_served").cast("int")).over(earlier), F.lit(0)).alias("gap"),
    ).withColumn("lasted_ms", F.col("until_ms") - F.col("from_ms"))
    longest = F.max(F.struct("lasted_ms", "from_ms", "until_ms", "is_on"))
    found = gaps.where(F.col("lasted_ms") > THRESHOLD_MS).groupBy(*_KEY_DAY, "gap").agg(longest.alias("one"))
    return found.select(
        *_KEY_DAY,
        F.col("one.from_ms"),
        F.when(~F.col("one.is_on"), F.col("one.until_ms")).alias("until_ms"),
        F.col("one.lasted_ms"),
    )


def _with_served_meanwhile(episodes: DataFrame, leases: DataFrame) -> DataFrame:
    """Add the leases of the queue in the seconds that lie completely inside each episode, so none of the key itself."""
    begins = F.greatest(start_of("day"), F.col("from_ms"))
    ends = F.col("from_ms") + F.col("lasted_ms")
    inside = episodes.withColumns(
        {
            "begin_ms": begins - F.pmod(begins, F.lit(_SECOND_MS)) + _SECOND_MS,
            "end_ms": ends - F.pmod(ends, F.lit(_SECOND_MS)),
        }
    )
    return with_sums(inside, leases, ("served_meanwhile",), by=("queue", "day"), begin="begin_ms", end="end_ms")
