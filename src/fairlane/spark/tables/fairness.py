"""The tables ``fairness_keys`` and ``fairness``: what each top key was served, and what it was entitled to.

``fairlane.model.shares`` defines the entitled share; this is the same in SQL. With T the cost served in a window, let
each key i with work have weight w and the cost d of its work. Then key i is entitled to min(d, w * L), with the level L
such that the sum over all keys is T. In order of d/w, with D the work and W the weight of the keys before i, the level
is the greatest (T - D) / (W_all - W): it rises as long as keys get all they have, and falls from the first on that does
not.

Runs say how much work each key has, and many keys may wait quietly for long while few are served. So quiet keys take
part by *class*, not one by one: all quiet keys of a queue with the same weight and work are one entry of a window, with
the sums of their work and weight. A window then has as many entries as it has keys with changes and classes, and only
windows in which something was served have entries of classes. Weight and work are compared to one part in 32, on the
scale of the histograms, which bounds the number of classes; up to 63 they are exact. A class is entitled to
min(D, W * L), of which each of its keys has the part that it has of the work. That is exact unless the level lies
between the keys of one class, which differ by less than one part in 16.

A run of a quiet key is entitled to its work times the sum of the parts that its class got in the windows of the run: a
sum over an interval.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.histogram import bucket_of
from fairlane.spark.tables.intervals import with_sums
from fairlane.spark.tables.runs import WINDOW_LENGTH_MS
from fairlane.spark.tables.schemas import FAIRNESS, FAIRNESS_KEYS
from fairlane.spark.tables.table import shaped, start_of
from fairlane.spark.tables.turns import Days

_QUEUE_DAY = ("queue", "day")
_CLASS = (*_QUEUE_DAY, "weight_class", "work_class")
_KEY_DAY = ("queue", "top_key", "day")
_SUMS = {"work": "waiting_cost", "weight": "weight", "messages": "messages"}
"""What a class sums over its members, and the columns of their runs."""


def entries(runs: DataFrame) -> DataFrame:
    """Return the entries of each window in which something changed, with what each is entitled to.

    An entry is a key with changes, with the columns of its run, or a class of quiet keys (``members`` of them), which
    ``top_key`` and ``waiting_cost`` name one of. ``work``, ``weight`` and ``messages`` are those of all members,
    ``part`` is the part of the work that the entry is entitled to, and ``all_served`` the cost that was served in the
    window.
    """
    each = runs.where(~F.col("is_quiet")).select(
        "*", F.col("from_ms").alias("at_ms"), F.lit(1).alias("members"), F.col("waiting_cost").alias("work")
    )
    both = each.unionByName(_quiet_classes(runs), allowMissingColumns=True)
    work, weight, served = F.col("work"), F.col("weight"), F.coalesce("served_cost", F.lit(0))
    by_need = Window.partitionBy("queue", "at_ms").orderBy(work / weight, "top_key")
    before = by_need.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("queue", "at_ms")
    rest = F.sum(weight).over(whole) - F.coalesce(F.sum(weight).over(before), F.lit(0))
    all_served = F.sum(served).over(whole)
    level = (all_served - F.coalesce(F.sum(work).over(before), F.lit(0))) / rest
    levelled = both.select("*", all_served.alias("all_served"), level.alias("level_here"))
    entitled = F.least(work.cast("double"), weight * F.max("level_here").over(whole))
    return levelled.withColumn("part", F.coalesce(F.try_divide(entitled, work), F.lit(0.0))).drop("level_here")


def _with_class(runs: DataFrame) -> DataFrame:
    return runs.withColumns(
        {"weight_class": bucket_of(F.col("weight")), "work_class": bucket_of(F.col("waiting_cost"))}
    )


def _quiet_classes(runs: DataFrame) -> DataFrame:
    """Return the classes of quiet keys in each window in which something was served."""
    quiet = _with_class(runs.where("is_quiet"))
    served = runs.where(F.col("served_cost") > 0).select(*_QUEUE_DAY, F.col("from_ms").alias("at_ms")).distinct()
    looks = served.join(quiet.select(*_CLASS).distinct(), list(_QUEUE_DAY)).withColumn("is_look", F.lit(1))
    marks = _comings_and_goings(quiet).unionByName(looks, allowMissingColumns=True)
    in_order = Window.partitionBy(*_CLASS).orderBy("at_ms", F.coalesce("is_look", F.lit(0)))
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    # Of the runs that have begun, the one that lasts longest is on whenever any of them is.
    known = marks.select(
        *(*_CLASS, "at_ms", "is_look"),
        *[F.sum(name).over(so_far).alias(name) for name in ("members", *_SUMS)],
        F.max("one").over(so_far).alias("one"),
    )
    found = known.where(F.col("is_look").isNotNull() & (F.col("members") > 0))
    return found.select(*_CLASS, "at_ms", "members", *_SUMS, "one.top_key", "one.waiting_cost")


def _comings_and_goings(quiet: DataFrame) -> DataFrame:
    """Return by how much each class of quiet keys grows and shrinks at each instant, and its longest run from then."""
    sign = F.col("step.sign")
    steps = quiet.withColumn("step", F.explode(_steps()))
    one = F.struct("stop_ms", "top_key", "waiting_cost")
    return steps.groupBy(*_CLASS, F.col("step.at_ms").alias("at_ms")).agg(
        F.sum(sign).alias("members"),
        *[F.sum(sign * F.col(column)).alias(name) for name, column in _SUMS.items()],
        F.max(F.when(sign > 0, one)).alias("one"),
    )


def _steps() -> Column:
    """Return the beginning of a run and its end, by whole windows, as steps up and down."""
    ends = ((F.col("from_ms"), 1), (F.col("stop_ms"), -1))
    return F.array(*[F.struct(at_ms.alias("at_ms"), F.lit(sign).alias("sign")) for at_ms, sign in ends])


# ------------------------------------------------------------------------------------------------- keys


def fairness_keys(runs: DataFrame, entries: DataFrame, starvation: DataFrame) -> DataFrame:
    """Return the runs of keys with their entitled shares, from entries and the starvation of the days."""
    columns = [*runs.columns, "part", "all_served"]
    is_class = F.col("weight_class").isNotNull()
    busy = entries.where(~is_class).select(*columns)
    points = entries.where(is_class).select(*_CLASS, "at_ms", "part", "all_served")
    quiet = with_sums(
        _with_class(runs.where("is_quiet")), points, ("part", "all_served"), by=_CLASS, begin="from_ms", end="stop_ms"
    ).select(*columns)
    entitled, served = F.col("waiting_cost") * F.col("part"), F.col("served_cost")
    told = busy.unionByName(quiet).join(_episodes(starvation), list(_KEY_DAY), "left")
    known = told.select(
        "*",
        entitled.alias("entitled_cost"),
        F.try_divide(served, F.col("all_served")).alias("share"),
        F.try_divide(entitled, F.col("all_served")).alias("entitled_share"),
        (entitled - served).alias("lag_cost"),
        _starved().alias("starved_ms"),
    )
    return shaped(known, FAIRNESS_KEYS)


def _episodes(starvation: DataFrame) -> DataFrame:
    """Return the episodes of each key. If nothing was leased meanwhile, no consumer was there: no key starves."""
    starved = starvation.where(F.col("served_meanwhile") > 0)
    episode = F.struct("from_ms", (F.col("from_ms") + F.col("lasted_ms")).alias("until_ms"))
    return starved.groupBy(*_KEY_DAY).agg(F.collect_list(episode).alias("episodes"))


def _starved() -> Column:
    """Return how long a key starved in a run: the sum of the parts of its episodes that lie in it."""

    def step(so_far: Column, episode: Column) -> Column:
        begin, end = F.greatest(F.col("from_ms"), episode["from_ms"]), F.least(F.col("until_ms"), episode["until_ms"])
        return so_far + F.greatest(end - begin, F.lit(0))

    return F.coalesce(F.aggregate("episodes", F.lit(0).cast("long"), step), F.lit(0))


# ----------------------------------------------------------------------------------------------- queues

_RUNNING = ("quiet_keys", "quiet_cost", "starving_keys")


def fairness(
    runs: DataFrame,
    entries: DataFrame,
    starvation: DataFrame,
    span: Days,
    *,
    window_length_ms: int = WINDOW_LENGTH_MS,
) -> DataFrame:
    """Return the fairness of each queue by run: a window in which something changed, or all windows until the next."""
    sign = F.col("step.sign")
    quiet = runs.where("is_quiet").withColumn("step", F.explode(_steps()))
    changes = quiet.select(
        *_QUEUE_DAY,
        F.col("step.at_ms").alias("at_ms"),
        sign.alias("quiet_keys"),
        (sign * F.col("waiting_cost")).alias("quiet_cost"),
    )
    marks = changes.unionByName(_starving(starvation, window_length_ms), allowMissingColumns=True)
    summed = marks.groupBy(*_QUEUE_DAY, "at_ms").agg(*[F.sum(name).alias(name) for name in _RUNNING])
    known = summed.join(_windows(entries), [*_QUEUE_DAY, "at_ms"], "full")
    in_order = Window.partitionBy(*_QUEUE_DAY).orderBy("at_ms")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    running = known.select(
        *(*_QUEUE_DAY, "at_ms", "window"),
        *[F.coalesce(F.sum(name).over(so_far), F.lit(0)).alias(name) for name in _RUNNING],
        F.lead("at_ms").over(in_order).alias("next_ms"),
    )
    rows = F.array_compact(F.array(_busy_row(span, window_length_ms), _quiet_row(span, window_length_ms)))
    told = running.select(*_QUEUE_DAY, F.explode(rows).alias("row")).select(*_QUEUE_DAY, "row.*")
    return shaped(told, FAIRNESS)


def _starving(starvation: DataFrame, length_ms: int) -> DataFrame:
    """Return in which windows keys begin and cease to starve. Two episodes of a key in one window count once."""
    from_ms, until_ms = F.greatest(start_of("day"), F.col("from_ms")), F.col("from_ms") + F.col("lasted_ms")
    first = from_ms - F.pmod(from_ms, F.lit(length_ms))
    stop = until_ms - 1 - F.pmod(until_ms - 1, F.lit(length_ms)) + length_ms
    by_key = Window.partitionBy(*_KEY_DAY).orderBy("first_ms")
    episodes = starvation.where(F.col("served_meanwhile") > 0).select(
        *_KEY_DAY, first.alias("first_ms"), stop.alias("stop_ms")
    )
    apart = episodes.withColumn("from_ms", F.greatest("first_ms", F.lag("stop_ms").over(by_key)))
    steps = apart.where(F.col("from_ms") < F.col("stop_ms")).withColumn("step", F.explode(_steps()))
    return steps.select(*_QUEUE_DAY, "step.at_ms", F.col("step.sign").alias("starving_keys"))


def _windows(entries: DataFrame) -> DataFrame:
    """Return the windows in which something changed, as a struct each; quiet keys are not counted in it yet."""
    served, part = F.coalesce("served_cost", F.lit(0)), F.col("part")
    is_key = F.col("weight_class").isNull()
    lag = F.col("waiting_cost") * part - served
    found = entries.groupBy(*_QUEUE_DAY, "at_ms").agg(
        F.count_if(is_key).alias("keys"),
        F.sum(F.when(is_key, F.col("work"))).alias("waiting_cost"),
        F.sum(served).alias("served_cost"),
        F.sum("handed_out").alias("handed_out"),
        _jain_index().alias("jain"),
        F.greatest(F.max(lag), F.lit(0.0)).alias("lag_max_cost"),
        F.max_by("top_key", F.when(lag > _NOTHING, F.struct(lag, "top_key"))).alias("lag_max_key"),
    )
    values = [name for name in found.columns if name not in (*_QUEUE_DAY, "at_ms")]
    return found.select(*_QUEUE_DAY, "at_ms", F.struct(*values).alias("window"))


def _jain_index() -> Column:
    """Return the index over the keys that are entitled to something, with ``shares.fair_ratio`` of each.

    The members of a class of quiet keys were served nothing and have the same ratio.
    """
    entitled, members = F.col("work") * F.col("part"), F.col("members")
    served, cost = F.coalesce("served_cost", F.lit(0)), F.col("work") / F.col("messages")
    is_fair = F.abs(served - entitled) < cost * members
    ratio = F.when(entitled > 0, F.when(is_fair, F.lit(1.0)).otherwise(served / entitled))
    count, whole = F.sum(F.when(entitled > 0, members)), F.sum(members * ratio)
    return F.try_divide(whole * whole, count * F.sum(members * ratio * ratio))


def _busy_row(span: Days, length_ms: int) -> Column:
    from_ms, window = F.col("at_ms"), F.col("window")
    row = F.struct(
        from_ms.alias("from_ms"),
        F.least(from_ms + length_ms, F.lit(span.horizon_ms)).alias("until_ms"),
        (window["keys"] + F.col("quiet_keys")).alias("keys"),
        (window["waiting_cost"] + F.col("quiet_cost")).alias("waiting_cost"),
        *[window[name].alias(name) for name in ("served_cost", "handed_out", "jain", "lag_max_cost", "lag_max_key")],
        "starving_keys",
    )
    return F.when(window.isNotNull(), row)


def _quiet_row(span: Days, length_ms: int) -> Column:
    """Return the windows up to the next change, in which keys wait and nothing is served."""
    from_ms = F.col("at_ms") + F.when(F.col("window").isNotNull(), F.lit(length_ms)).otherwise(0)
    until_ms = F.least(F.col("next_ms"), F.lit(span.horizon_ms))
    nothing = F.lit(0).cast("long")
    row = F.struct(
        from_ms.alias("from_ms"),
        until_ms.alias("until_ms"),
        F.col("quiet_keys").alias("keys"),
        F.col("quiet_cost").alias("waiting_cost"),
        nothing.alias("served_cost"),
        nothing.alias("handed_out"),
        F.lit(None).cast("double").alias("jain"),
        F.lit(0.0).alias("lag_max_cost"),
        F.lit(None).cast("string").alias("lag_max_key"),
        "starving_keys",
    )
    return F.when((F.col("quiet_keys") > 0) & (from_ms < until_ms), row)


_NOTHING = 1e-6
"""A lag below this is rounding."""
