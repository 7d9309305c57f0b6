"""Runs: how much work each top key had, from when until when, and what of it was served.

A run is either one window in which messages of the key began or ended to wait, or all windows in a row in which
nothing of that happened while some waited: its backlog is constant then. So a key that waits a whole day for its turn
costs a row, not one a minute, and the number of runs is bounded by the number of events.

Arrivals and departures are summed where they happen, and what waits in between follows from running sums. What sets the
weight of a key is summed with them, so a run has one weight. The sums of waits that are over are kept from run to run
of the pipeline (``work``); waits that last are added to them each time (``runs``).

Columns:
    queue, top_key, day: whose run it is.
    from_ms, until_ms: from when until when, by whole windows; the last one ends with the journal.
    stop_ms: the end of the last window, even if the journal ends before.
    is_quiet: whether nothing changed.
    weight: the weight of the key at the end.
    backlog: the messages that waited for their turn at the end.
    messages, waiting_cost: the number and the cost of the messages that could have been leased.
    handed_out, served_cost: the number and the cost of those that were.
    waited_ms: how long messages waited for their turn in the run, summed over messages.
"""

from __future__ import annotations

from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.news import ALL_NEW, Reached
from fairlane.spark.tables.table import day_of, start_of
from fairlane.spark.tables.turns import Days
from fairlane.spark.tables.weights import SOURCES, brought_weights, set_weights, weight_in

WINDOW_LENGTH_MS = 60_000
_KEY = ("queue", "top_key")
WORK_SUMS = ("change", "change_cost", "came", "came_cost", "served_cost", "handed_out", "area_ms")
"""What is summed by key and window, see ``_moves``."""


def work(
    pieces: DataFrame, events: DataFrame, reached: Reached = ALL_NEW, *, window_length_ms: int = WINDOW_LENGTH_MS
) -> DataFrame:
    """Return what is final of the work of top keys, summed by window: waits that are over, and weights brought.

    Two such frames can be added up. Weights of the days before are among it, in their own windows.

    Args:
        pieces: when messages waited for their turn, see ``turns.pieces``.
        events: all events; new messages among them bring weights.
        reached: which events are new.
        window_length_ms: the length of a window.
    """
    moves = _moves(pieces.where("is_final"), window_length_ms)
    brought = brought_weights(events, reached, window_length_ms=window_length_ms)
    return added_up(moves.unionByName(brought, allowMissingColumns=True))


def added_up(work: DataFrame) -> DataFrame:
    """Return each window of each key once."""
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in WORK_SUMS]
    return work.groupBy(*_KEY, "window_ms").agg(*sums, F.max("by_message").alias("by_message"))


def runs(
    work: DataFrame,
    pieces: DataFrame,
    settings: DataFrame,
    span: Days,
    *,
    window_length_ms: int = WINDOW_LENGTH_MS,
) -> DataFrame:
    """Return the runs of all top keys.

    Args:
        work: what is final, see ``work``.
        pieces: when messages waited for their turn, see ``turns.pieces``; those that still wait count.
        settings: the events of queues and config, which set weights.
        span: the days.
        window_length_ms: the length of a window.
    """
    waiting = _moves(pieces.where("NOT is_final"), window_length_ms)
    queues = work.select("queue").union(waiting.select("queue")).distinct()
    changes = set_weights(settings, queues, window_length_ms=window_length_ms)
    marks = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), (work, waiting, changes))
    known = _running(_by_window(marks))
    both = F.array(_busy(span, window_length_ms), _quiet(span, window_length_ms))
    return known.select(*_KEY, "day", "weight", F.explode(F.array_compact(both)).alias("run")).select(
        *_KEY, "day", "weight", "run.*"
    )


def _moves(pieces: DataFrame, length_ms: int) -> DataFrame:
    """Return each arrival and departure; ``area_ms`` is its effect on the waiting time in its whole window."""
    sign, cost = F.col("sign"), F.col("cost")
    is_arrival = sign > 0
    moves = pieces.select(
        *(*_KEY, "cost", "is_served", "from_ms", "until_ms", "before_ms"),
        F.explode(F.array(F.lit(1), F.lit(-1))).alias("sign"),
    ).withColumn("at_ms", F.when(is_arrival, F.col("from_ms")).otherwise(F.col("until_ms")))
    window = F.col("at_ms") - F.pmod("at_ms", F.lit(length_ms))
    told = moves.where(F.col("at_ms").isNotNull()).withColumn("window_ms", window)
    is_service = ~is_arrival & F.col("is_served")
    # A message that was paused and resumed within one window is work of that window once.
    is_new = is_arrival & ~(F.col("before_ms") >= F.col("window_ms")).eqNullSafe(other=True)
    return told.select(
        *(*_KEY, "window_ms"),
        sign.alias("change"),
        (sign * cost).alias("change_cost"),
        is_new.cast("long").alias("came"),
        F.when(is_new, cost).otherwise(0).alias("came_cost"),
        F.when(is_service, cost).otherwise(0).alias("served_cost"),
        is_service.cast("long").alias("handed_out"),
        (sign * (F.col("window_ms") + length_ms - F.col("at_ms"))).alias("area_ms"),
    )


def _by_window(marks: DataFrame) -> DataFrame:
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in WORK_SUMS]
    summed = marks.groupBy(*_KEY, "window_ms").agg(*sums, *[F.max(name).alias(name) for name in SOURCES])
    return summed.withColumns({"day": day_of("window_ms"), "by_message": F.col("by_message")["weight"]})


def _running(summed: DataFrame) -> DataFrame:
    """Add what waited at the beginning and at the end of each window, and the weight. A day begins with nothing."""
    earlier = Window.partitionBy(*_KEY, "day").orderBy("window_ms")
    before = earlier.rowsBetween(Window.unboundedPreceding, -1)
    ever = Window.partitionBy(*_KEY).orderBy("window_ms").rowsBetween(Window.unboundedPreceding, 0)
    return summed.select(
        "*",
        weight_in(ever).alias("weight"),
        F.coalesce(F.sum("change").over(before), F.lit(0)).alias("had"),
        F.coalesce(F.sum("change_cost").over(before), F.lit(0)).alias("had_cost"),
        F.lead("window_ms").over(earlier).alias("next_ms"),
    )


def _busy(span: Days, length_ms: int) -> Column:
    """Return the run of a window in which something changed; null for one in which the key had no work."""
    from_ms, had, came, change = F.col("window_ms"), F.col("had"), F.col("came"), F.col("change")
    stop_ms = from_ms + length_ms
    until_ms = _end(stop_ms, span)
    run = _run(
        from_ms,
        stop_ms,
        until_ms,
        is_quiet=False,
        backlog=had + change,
        messages=had + came,
        waiting_cost=F.col("had_cost") + F.col("came_cost"),
        served_cost=F.col("served_cost"),
        handed_out=F.col("handed_out"),
        waited_ms=had * (until_ms - from_ms) + F.col("area_ms") - change * (stop_ms - until_ms),
    )
    return F.when((had > 0) | (came > 0), run)


def _quiet(span: Days, length_ms: int) -> Column:
    """Return the run of the windows that follow, in which messages wait and nothing changes; null if none does."""
    horizon = span.horizon_ms
    ends_ms = F.least(start_of(F.date_add("day", 1)), F.lit(horizon - horizon % length_ms + length_ms))
    from_ms, stop_ms = F.col("window_ms") + length_ms, F.coalesce(F.col("next_ms"), ends_ms)
    until_ms = F.greatest(_end(stop_ms, span), from_ms)
    backlog = F.col("had") + F.col("change")
    run = _run(
        from_ms,
        stop_ms,
        until_ms,
        is_quiet=True,
        backlog=backlog,
        messages=backlog,
        waiting_cost=F.col("had_cost") + F.col("change_cost"),
        served_cost=F.lit(0),
        handed_out=F.lit(0),
        waited_ms=backlog * (until_ms - from_ms),
    )
    return F.when((backlog > 0) & (from_ms < stop_ms), run)


def _run(from_ms: Column, stop_ms: Column, until_ms: Column, *, is_quiet: bool, **sums: Column) -> Column:
    ends = {"from_ms": from_ms, "stop_ms": stop_ms, "until_ms": until_ms}
    numbers = [value.cast("long").alias(name) for name, value in (ends | sums).items()]
    return F.struct(*numbers, F.lit(is_quiet).alias("is_quiet"))


def _end(at_ms: Column, span: Days) -> Column:
    """Return an instant, or the end of the journal if that comes first."""
    return F.least(at_ms, F.lit(span.horizon_ms))
