"""The events that set something up to later ones: queues and their policies, pauses, config; and how long each matters.

A day needs what was in force when it began and what was set on it. Of pauses it also needs those that are over, as long
as a message waits that was there: the pause is no part of its turn. All other settings are superseded, so what is
carried from day to day grows with what is set up, and not with how often it was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.table import day_of

SETTINGS = ("queue_set", "queue_removed", "queue_paused", "config_set")


def settings_of(events: DataFrame) -> DataFrame:
    """Return the events that change queues, pauses and config; they are few."""
    return events.where(F.col("kind").isin(*SETTINGS))


def waiting_since(attempts: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return for each queue since when messages waited that were there at the ends of some days, in ``since``."""
    stop = F.coalesce("leased_ms", "end_ms")
    oldest = [F.min(F.when(stop.isNull() | (day_of(stop) >= F.lit(day)), F.col("ready_ms"))) for day in days]
    since = F.array(*oldest).cast("array<bigint>").alias("since")
    return in_queues(attempts).groupBy("journal_id", "queue").agg(since)


def needed(settings: DataFrame, waiting: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return settings with the days after which each is still needed, in the column ``open_on``.

    Args:
        settings: see ``settings_of``.
        waiting: since when messages wait, see ``waiting_since``, by the same days.
        days: the days.
    """
    over_ms, is_of_pause = F.col("over_ms"), F.col("kind").isin("queue_paused", "queue_removed")

    def is_needed(end: Column, at: Column) -> Column:
        is_in_force = over_ms.isNull() | (day_of(over_ms) >= end)
        is_awaited = is_of_pause & (over_ms > F.get(F.col("since"), at))
        return (F.col("day") <= end) & (is_in_force | F.coalesce(is_awaited, F.lit(col=False)))

    ends = F.lit(list(days)).cast("array<date>")
    known = settings.withColumn("over_ms", _over_ms()).join(waiting, ["journal_id", "queue"], "left")
    return known.withColumn("open_on", F.filter(ends, is_needed)).drop("over_ms", "since")


def _over_ms() -> Column:
    """Return until when a setting was in force; null if it is to this day. One that unsets something never was."""
    kind, at_ms = F.col("kind"), F.col("at_ms")
    in_order = Window.partitionBy("journal_id", "queue").orderBy("sequence")
    later = in_order.rowsBetween(1, Window.unboundedFollowing)
    again_ms = F.lead("at_ms").over(
        Window.partitionBy("journal_id", "kind", "queue", "fairness_key", "name").orderBy("sequence")
    )
    removed_ms = F.min(F.when(kind == "queue_removed", at_ms)).over(later)
    is_end = (kind == "queue_paused") & ~F.col("is_paused").eqNullSafe(other=True)
    is_unset = (kind == "config_set") & F.col("value").isNull()
    return F.when((kind == "queue_removed") | is_end | is_unset, at_ms).otherwise(F.least(again_ms, removed_ms))
