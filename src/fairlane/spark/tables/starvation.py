"""The table ``starvation``: episodes in which a top key had work and got nothing for long.

Between two leases of a key it starves from the later of two instants: the first lease, and the beginning of the longest
wait that lasts until the second. A wait that ends without a lease, by a removal or a pause, ends an episode, too.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.schemas import STARVATION
from fairlane.spark.tables.table import shaped, start_of
from fairlane.spark.tables.turns import WINDOW_LENGTH_MS, Days

THRESHOLD_MS = 60_000
_KEY_DAY = ("queue", "top_key", "day")
_STEP_MS = 1_000
"""Leases closer than this are merged. It must be shorter than the threshold."""


def starvation(
    pieces: DataFrame,
    windows: DataFrame,
    span: Days,
    *,
    threshold_ms: int = THRESHOLD_MS,
    window_length_ms: int = WINDOW_LENGTH_MS,
) -> DataFrame:
    """Return the episodes of each day, from pieces and the windows built from them."""
    episodes = _episodes(_ends(_of_starvable(pieces, span, threshold_ms), span), threshold_ms)
    told = episodes.join(_served_meanwhile(episodes, windows, window_length_ms), [*_KEY_DAY, "from_ms"], "left")
    return shaped(told.withColumn("served_meanwhile", F.coalesce("others", F.lit(0))), STARVATION)


def _of_starvable(pieces: DataFrame, span: Days, threshold_ms: int) -> DataFrame:
    """Drop the keys without a wait as long as the threshold: usually most of them."""
    waited_ms = F.coalesce("until_ms", _day_end(span)) - F.col("since_ms")
    starvable = pieces.where(waited_ms > threshold_ms).select(*_KEY_DAY).distinct()
    return pieces.join(F.broadcast(starvable), list(_KEY_DAY), "left_semi")


def _day_end(span: Days) -> Column:
    return F.least(start_of(F.date_add("day", 1)), F.lit(span.horizon_ms))


def _ends(pieces: DataFrame, span: Days) -> DataFrame:
    """Return when waits of a key ended, one row for each second: the first and last end, and the earliest beginning."""
    step = F.floor(F.col("until_ms") / _STEP_MS)
    return pieces.groupBy(*_KEY_DAY, step.alias("step"), "is_served").agg(
        F.coalesce(F.min("until_ms"), F.min(_day_end(span))).alias("until_ms"),
        F.max("until_ms").alias("last_ms"),
        F.min("since_ms").alias("since_ms"),
    )


def _episodes(ends: DataFrame, threshold_ms: int) -> DataFrame:
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
    found = gaps.where(F.col("lasted_ms") > threshold_ms).groupBy(*_KEY_DAY, "gap").agg(longest.alias("one"))
    return found.select(
        *_KEY_DAY,
        F.col("one.from_ms"),
        F.when(~F.col("one.is_on"), F.col("one.until_ms")).alias("until_ms"),
        F.col("one.lasted_ms"),
    )


def _served_meanwhile(episodes: DataFrame, windows: DataFrame, length_ms: int) -> DataFrame:
    """Return the leases of a queue in the windows that lie completely inside each episode."""
    in_all = windows.groupBy("queue", "day", "window_ms").agg(F.sum("handed_out").alias("handed_out"))
    day_ms = start_of("day")
    begins = F.greatest(day_ms, F.col("from_ms"))
    first = begins + F.pmod(-begins, F.lit(length_ms))
    last = F.col("from_ms") + F.col("lasted_ms") - length_ms
    each = episodes.where(first <= last).select(
        *_KEY_DAY, "from_ms", F.explode(F.sequence(first, last, F.lit(length_ms).cast("long"))).alias("window_ms")
    )
    joined = each.join(in_all, ["queue", "day", "window_ms"])
    return joined.groupBy(*_KEY_DAY, "from_ms").agg(F.sum("handed_out").alias("others"))
