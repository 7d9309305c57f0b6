"""Waiting for a turn: the pieces of time in which a message could have been leased and was not.

``pieces`` cuts the time that a message waits for its turn into days, without the time in which it was paused. A piece
is as it was known at the day's end, so a day's tables don't depend on later days, and are the same whether days are
built one by one or all at once. ``runs`` sums them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.pauses import INTERVALS, last_of, pauses, unpaused
from fairlane.spark.tables.table import day_of, start_of

_KEY_DAY = ("queue", "top_key", "day")


@dataclass(frozen=True, slots=True)
class Days:
    """The days to build.

    Attributes:
        first_day: the first of them.
        horizon_ms: the instant of the last event there is; its day is the last.
    """

    first_day: date
    horizon_ms: int


def pieces(attempts: DataFrame, settings: DataFrame, span: Days) -> DataFrame:
    """Return when messages waited for their turn on each day: from when, until when, and whether that was served.

    Waits that ended before are left out: those that last are here, and those that a new event has ended. For these
    ``is_final`` is true: nothing that comes later changes their pieces of that day.

    A message that is paused meanwhile has a piece before the pause and one after it; ``before_ms`` is then where the
    one before ended. ``until_ms`` is null for a piece that lasts beyond the end of the day. A message with throttles
    that is not handed out on a day is left out, since the journal does not tell yet what it waits for. ``settings`` are
    the events of queues, their pauses among them.
    """
    starts_ms, ends_ms = start_of("day"), start_of(F.date_add("day", 1))
    is_served = day_of("leased_ms").eqNullSafe(F.col("day"))
    stop_ms = F.when(day_of("stop_ms") == F.col("day"), F.col("stop_ms"))
    known = (
        _by_day(attempts, span)
        .where(is_served | ~F.col("is_throttled"))
        .join(pauses(settings), ["journal_id", "queue"], "left")
        .withColumns({"is_served": is_served, "limit_ms": F.coalesce(stop_ms, ends_ms), "is_over": stop_ms.isNotNull()})
    )
    each = known.select("*", F.explode(_turns()).alias("turn"))
    is_last = F.col("turn.until_ms") == F.col("limit_ms")
    until_ms = F.when(~is_last | F.col("is_over"), F.col("turn.until_ms"))
    told = each.select(
        *_KEY_DAY,
        F.col("turn.since_ms").alias("since_ms"),
        F.greatest("turn.since_ms", starts_ms).alias("from_ms"),
        until_ms.alias("until_ms"),
        (F.col("is_served") & is_last).alias("is_served"),
        F.col("turn.before_ms").alias("before_ms"),
        "cost",
        F.col("is_over").alias("is_final"),
    )
    return told.where(F.col("until_ms").isNull() | (F.col("until_ms") > starts_ms) | F.col("is_served"))


def _by_day(attempts: DataFrame, span: Days) -> DataFrame:
    """Return the attempts that wait for a turn, once for each day on which they do.

    A message that is delayed waits for its turn only when it is due. Some end before, and some are not due yet.
    """
    stop = F.coalesce("leased_ms", "end_ms")
    is_ended_before = ~F.when(F.col("leased_ms").isNotNull(), F.col("is_leased_new")).otherwise(F.col("is_end_new"))
    is_known = stop.isNotNull() & is_ended_before
    ready = F.col("ready_ms")
    is_ready = stop.isNull() & (ready <= span.horizon_ms) | F.col("leased_ms").isNotNull() | (ready < F.col("end_ms"))
    proper = in_queues(attempts).where(ready.isNotNull() & is_ready & ~is_known)
    last = F.least(F.coalesce(day_of(stop), day_of(F.lit(span.horizon_ms))), day_of(F.lit(span.horizon_ms)))
    first = F.greatest(day_of("ready_ms"), F.lit(span.first_day))
    days = F.when(first <= last, F.sequence(first, last))
    return proper.select(
        *("journal_id", "queue", "top_key", "fairness_key", "ready_ms", "leased_ms", "turn_ms", "paused_ms", "cost"),
        stop.alias("stop_ms"),
        (F.size("throttles") > 0).alias("is_throttled"),
        F.explode(days).alias("day"),
    )


def _turns() -> Column:
    """Return the intervals in which a message waited for its turn, as a day knew it.

    Of one that was served the broker told how long that was in all: what throttles, caps and pauses took is cut off,
    and the rest is taken to come last. Most messages were never paused, and have one interval.
    """
    ready_ms, limit_ms, turn_ms = F.col("ready_ms"), F.col("limit_ms"), F.col("turn_ms")
    nothing = F.lit(None).cast("long")
    since_ms = F.when(F.col("is_served"), F.col("leased_ms") - turn_ms).otherwise(ready_ms)
    plain = F.array(_turn(since_ms, limit_ms, nothing))
    free = unpaused(F.col("fairness_key"), ready_ms, limit_ms)
    own = F.when(F.col("is_served"), last_of(free, turn_ms)).otherwise(free)
    # What was served at the very instant at which its pause ended was served all the same, after no wait at all.
    at_once = F.array(F.struct(limit_ms.alias("since_ms"), limit_ms.alias("until_ms"))).cast(INTERVALS)
    ends_early = F.coalesce(F.try_element_at(own, F.lit(-1))["until_ms"] < limit_ms, F.lit(col=True))
    whole = F.when(F.col("is_served") & ends_early, F.concat(own, at_once)).otherwise(own)
    cut = F.transform(
        whole, lambda each, at: _turn(each["since_ms"], each["until_ms"], F.get(whole, at - 1)["until_ms"])
    )
    may_be_cut = F.col("pauses").isNotNull() & (~F.col("is_served") | (F.col("paused_ms") > 0))
    return F.when(may_be_cut, cut).otherwise(plain)


def _turn(since_ms: Column, until_ms: Column, before_ms: Column) -> Column:
    return F.struct(
        since_ms.cast("long").alias("since_ms"),
        until_ms.cast("long").alias("until_ms"),
        before_ms.cast("long").alias("before_ms"),
    )
