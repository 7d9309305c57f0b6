"""Pauses of queues and keys, and the parts of a wait in which a message was not paused.

A paused tenant is paused, not starved: the fairness tables must not count the time in which no message of a key could
have been delivered. The broker tells with each lease how much of the wait was a pause (``paused_ms``), which is enough
for sums. The fairness tables also need to know *when*, and they have to know it for messages that still wait. Both
follow from the journal's ``queue_paused`` events.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

INTERVALS = "array<struct<since_ms: bigint, until_ms: bigint>>"
_NEVER_MS = 1 << 62
_QUEUE = ("journal_id", "queue")


def pauses(events: DataFrame) -> DataFrame:
    """Return the pauses of each queue of a journal, in order: the key, null for the whole queue, from when, until when.

    A pause ends with the next event of the same queue and key, or with the queue. One that is still on never ends.
    """
    told = events.where(F.col("kind") == "queue_paused")
    by_key = Window.partitionBy(*_QUEUE, "fairness_key").orderBy("sequence")
    next_ms = F.lead("at_ms").over(by_key).alias("next_ms")
    each = told.select(*_QUEUE, "sequence", "fairness_key", "is_paused", "at_ms", next_ms)
    removed = events.where(F.col("kind") == "queue_removed")
    gone = removed.groupBy(*_QUEUE).agg(F.collect_list("at_ms").alias("gone"))
    removed_ms = F.array_min(F.filter("gone", lambda at_ms: at_ms >= F.col("at_ms")))
    until_ms = F.least(F.coalesce("next_ms", F.lit(_NEVER_MS)), F.coalesce(removed_ms, F.lit(_NEVER_MS)))
    on = each.where("is_paused").join(gone, list(_QUEUE), "left").withColumn("until_ms", until_ms)
    one = F.struct(F.col("at_ms").alias("from_ms"), "until_ms", F.col("fairness_key").alias("key"))
    return on.groupBy(*_QUEUE).agg(F.array_sort(F.collect_list(one)).alias("pauses"))


def unpaused(key: Column, since_ms: Column, until_ms: Column) -> Column:
    """Return the intervals of a wait in which the message was not paused, in order, by the column ``pauses``.

    A pause concerns the message if it is of the whole queue, of the message's key, or of a key above that.
    """

    def concerns(pause: Column) -> Column:
        is_above = F.slice(key, F.lit(1), F.greatest(F.size(pause["key"]), F.lit(0))) == pause["key"]
        return (pause["key"].isNull() | is_above) & (pause["from_ms"] < until_ms) & (pause["until_ms"] > since_ms)

    def step(so_far: Column, pause: Column) -> Column:
        before = F.array(_interval(so_far["reached_ms"], pause["from_ms"]))
        found = F.when(pause["from_ms"] > so_far["reached_ms"], F.concat(so_far["found"], before))
        return F.struct(
            F.greatest(so_far["reached_ms"], pause["until_ms"]).alias("reached_ms"),
            found.otherwise(so_far["found"]).alias("found"),
        )

    def finish(so_far: Column) -> Column:
        rest = F.array(_interval(so_far["reached_ms"], until_ms))
        return F.when(so_far["reached_ms"] < until_ms, F.concat(so_far["found"], rest)).otherwise(so_far["found"])

    start = F.struct(since_ms.alias("reached_ms"), F.array().cast(INTERVALS).alias("found"))
    return F.aggregate(F.filter(F.col("pauses"), concerns), start, step, finish)


def last_of(intervals: Column, length_ms: Column) -> Column:
    """Return the end of intervals that is ``length_ms`` long in all; what is before that is cut off."""
    nothing = F.lit(0).cast("long")
    whole = F.aggregate(intervals, nothing, lambda total, each: total + each["until_ms"] - each["since_ms"])

    def step(so_far: Column, each: Column) -> Column:
        cut_ms = F.least(so_far["skip_ms"], each["until_ms"] - each["since_ms"])
        kept = F.array(_interval(each["since_ms"] + cut_ms, each["until_ms"]))
        is_kept = each["since_ms"] + cut_ms < each["until_ms"]
        return F.struct(
            (so_far["skip_ms"] - cut_ms).alias("skip_ms"),
            F.when(is_kept, F.concat(so_far["found"], kept)).otherwise(so_far["found"]).alias("found"),
        )

    start = F.struct(F.greatest(whole - length_ms, nothing).alias("skip_ms"), F.array().cast(INTERVALS).alias("found"))
    return F.aggregate(intervals, start, step, lambda so_far: so_far["found"])


def _interval(since_ms: Column, until_ms: Column) -> Column:
    return F.struct(since_ms.cast("long").alias("since_ms"), until_ms.cast("long").alias("until_ms"))
