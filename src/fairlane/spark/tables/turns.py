"""Waiting for a turn: the work of each top key in each window, and what was leased.

``pieces`` cuts the time that a message waits for its turn into days, without the time in which it was paused. A piece
is as it was known at the day's end, so a day's tables don't depend on later days, and are the same whether days are
built one by one or all at once.

``windows`` sums the pieces. It never multiplies waits by windows: arrivals and departures are summed where they happen,
and what waits in between follows from running sums. So its size is the number of keys times windows with work.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.pauses import INTERVALS, last_of, pauses, unpaused
from fairlane.spark.tables.table import day_of, start_of

WINDOW_LENGTH_MS = 60_000
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


def pieces(attempts: DataFrame, events: DataFrame, span: Days) -> DataFrame:
    """Return when messages waited for their turn on each day: from when, until when, and whether that was served.

    A message that is paused meanwhile has a piece before the pause and one after it; ``before_ms`` is then where the
    one before ended. ``until_ms`` is null for a piece that lasts beyond the end of the day. A message with throttles
    that is not handed out on a day is left out, since the journal does not tell yet what it waits for.
    """
    starts_ms, ends_ms = start_of("day"), start_of(F.date_add("day", 1))
    is_served = day_of("leased_ms").eqNullSafe(F.col("day"))
    stop_ms = F.when(day_of("stop_ms") == F.col("day"), F.col("stop_ms"))
    known = (
        _by_day(attempts, span)
        .where(is_served | ~F.col("is_throttled"))
        .join(F.broadcast(pauses(events)), ["journal_id", "queue"], "left")
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
    )
    return told.where(F.col("until_ms").isNull() | (F.col("until_ms") > starts_ms) | F.col("is_served"))


def _by_day(attempts: DataFrame, span: Days) -> DataFrame:
    """Return the attempts that wait for a turn, once for each day on which they do."""
    proper = in_queues(attempts).where(F.col("ready_ms").isNotNull())
    stop = F.coalesce("leased_ms", "end_ms")
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
    ends_early = F.coalesce(F.try_element_at(own, F.lit(-1))["until_ms"] < limit_ms, F.lit(True))  # noqa: FBT003 - a literal
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


def windows(pieces: DataFrame, span: Days, *, window_length_ms: int = WINDOW_LENGTH_MS) -> DataFrame:
    """Return for each queue, top key and window with work: its cost, the served cost, and the waiting in it."""
    summed = _moves(pieces, span, window_length_ms)
    earlier = Window.partitionBy(*_KEY_DAY).orderBy("window_ms")
    before = earlier.rowsBetween(Window.unboundedPreceding, -1)
    after = earlier.rowsBetween(Window.unboundedPreceding, 0)
    known = summed.select(
        "*",
        F.coalesce(F.sum("change").over(before), F.lit(0)).alias("had"),
        F.coalesce(F.sum("change_cost").over(before), F.lit(0)).alias("had_cost"),
        F.sum("change").over(after).alias("left"),
        F.sum("change_cost").over(after).alias("left_cost"),
        F.lead("window_ms").over(earlier).alias("next_ms"),
    )
    return known.select(*_ROW, *_busy(span, window_length_ms)).unionByName(_quiet(known, span, window_length_ms))


_ROW = (*_KEY_DAY, "window_ms", "served_cost", "handed_out")


def _busy(span: Days, length_ms: int) -> list[Column]:
    """Return the columns of windows in which messages of a key begin or end to wait."""
    length = _end(F.col("window_ms"), span, length_ms) - F.col("window_ms")
    return [
        (F.col("had_cost") + F.col("came_cost")).alias("waiting_cost"),
        (F.col("had") * length + F.col("area_ms")).alias("waited_ms"),
    ]


def _quiet(known: DataFrame, span: Days, length_ms: int) -> DataFrame:
    """Return the windows in which messages of a key wait and nothing changes."""
    ends_ms = F.least(
        start_of(F.date_add("day", 1)) - length_ms,
        F.lit(span.horizon_ms - span.horizon_ms % length_ms),
    )
    first = F.col("window_ms") + length_ms
    last = F.coalesce(F.col("next_ms") - length_ms, ends_ms)
    gaps = known.where((F.col("left") > 0) & (first <= last)).select(
        *_KEY_DAY,
        "left",
        "left_cost",
        F.explode(F.sequence(first, last, F.lit(length_ms).cast("long"))).alias("window_ms"),
    )
    nothing = F.lit(0).cast("long")
    length = _end(F.col("window_ms"), span, length_ms) - F.col("window_ms")
    return gaps.select(
        *_KEY_DAY,
        "window_ms",
        nothing.alias("served_cost"),
        nothing.alias("handed_out"),
        F.col("left_cost").alias("waiting_cost"),
        (F.col("left") * length).alias("waited_ms"),
    )


def _moves(pieces: DataFrame, span: Days, length_ms: int) -> DataFrame:
    """Return arrivals and departures in each window; ``area_ms`` is their effect on the waiting time in it."""
    sign = F.col("sign")
    is_arrival = sign > 0
    moves = pieces.select(
        *("queue", "top_key", "cost", "is_served", "from_ms", "until_ms", "before_ms"),
        F.explode(F.array(F.lit(1), F.lit(-1))).alias("sign"),
    ).withColumn("at_ms", F.when(is_arrival, F.col("from_ms")).otherwise(F.col("until_ms")))
    window = F.col("at_ms") - F.pmod("at_ms", F.lit(length_ms))
    told = moves.where(F.col("at_ms").isNotNull()).withColumn("window_ms", window)
    is_service = ~is_arrival & F.col("is_served")
    # A message that was paused and resumed within one window is work of that window once.
    is_new = F.coalesce(F.col("before_ms") < F.col("window_ms"), F.lit(True))  # noqa: FBT003 - a literal
    area_ms = _end(F.col("window_ms"), span, length_ms) - F.col("at_ms")
    summed = told.groupBy("queue", "top_key", "window_ms").agg(
        F.sum(sign).alias("change"),
        F.sum(sign * F.col("cost")).alias("change_cost"),
        F.sum(F.when(is_arrival & is_new, F.col("cost")).otherwise(0)).alias("came_cost"),
        F.sum(F.when(is_service, F.col("cost")).otherwise(0)).alias("served_cost"),
        F.count_if(is_service).alias("handed_out"),
        F.sum(sign * area_ms).alias("area_ms"),
    )
    return summed.withColumn("day", day_of("window_ms"))


def _end(window: Column, span: Days, length_ms: int) -> Column:
    """Return the end of a window; the last one ends with the journal."""
    return F.least(window + length_ms, F.lit(span.horizon_ms))
