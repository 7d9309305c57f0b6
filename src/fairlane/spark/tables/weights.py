"""The weights of top keys over time, found as in the broker: config, else policy, else what messages brought."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import TELLS_TERMS
from fairlane.spark.tables.table import whole_queue

TOLD = "weight_told"
"""A kind of event that is in no journal: the weight that messages brought for a key, carried over."""

_CONFIG = r"^weight:([^:]+):(.+)$"


def with_weights(frame: DataFrame, events: DataFrame, *, window_length_ms: int) -> DataFrame:
    """Add the column ``weight`` to rows of queue, top key and window: the weight at the window's end."""
    end_ms = F.col("window_ms") + window_length_ms
    joined = (
        _with_told(frame, events, window_length_ms)
        .join(F.broadcast(_by_policy(events)), "queue", "left")
        .withColumn("whole", whole_queue("queue"))
        .join(F.broadcast(_by_config(events)), ["whole", "top_key"], "left")
    )
    by_policy = F.try_element_at(_latest(F.col("policies"), end_ms)["weights"], F.col("top_key"))
    by_config = _latest(F.col("configs"), end_ms)["weight"]
    weight = F.coalesce(by_config, by_policy, F.col("told"), F.lit(1)).cast("long")
    return joined.withColumn("weight", weight).drop("policies", "configs", "told", "whole")


def told_weights(events: DataFrame, *also_by: Column) -> DataFrame:
    """Return the last weight that messages brought for each top key, and when, grouped also by ``also_by``."""
    brings = F.col("kind").isin(*TELLS_TERMS, TOLD) & F.col("weight").isNotNull() & (F.size("fairness_key") == 1)
    queue = F.when(F.col("kind") == "redriven", F.col("target")).otherwise(F.col("queue"))
    last = events.where(brings).groupBy(queue.alias("queue"), F.col("fairness_key")[0].alias("top_key"), *also_by)
    return last.agg(
        F.max("sequence").alias("sequence"),
        F.max("at_ms").alias("at_ms"),
        F.max_by("weight", F.struct("at_ms", "sequence")).alias("weight"),
    )


def _with_told(frame: DataFrame, events: DataFrame, length_ms: int) -> DataFrame:
    """Add the column ``told``: the weight that messages up to the end of the window brought."""
    window = (F.col("at_ms") - F.pmod("at_ms", F.lit(length_ms))).alias("window_ms")
    told = told_weights(events, window).select("queue", "top_key", "window_ms", F.col("weight").alias("told"))
    both = frame.unionByName(told, allowMissingColumns=True)
    in_order = Window.partitionBy("queue", "top_key").orderBy("window_ms", F.col("told").isNull())
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    known = both.withColumn("told", F.last("told", ignorenulls=True).over(so_far))
    return known.where(F.col("day").isNotNull())


def _by_policy(events: DataFrame) -> DataFrame:
    policies = events.where(F.col("kind") == "queue_set")
    weights = F.from_json("policy_json", "weights map<string, bigint>")["weights"].alias("weights")
    listed = F.collect_list(F.struct("sequence", "at_ms", weights))
    return policies.groupBy("queue").agg(F.array_sort(listed, _by_age).alias("policies"))


def _by_config(events: DataFrame) -> DataFrame:
    set_weights = events.where((F.col("kind") == "config_set") & F.rlike("name", F.lit(_CONFIG)))
    queue, key = (F.regexp_extract("name", _CONFIG, group) for group in (1, 2))
    listed = F.collect_list(F.struct("at_ms", "sequence", F.col("value").try_cast("long").alias("weight")))
    by_key = set_weights.groupBy(queue.alias("whole"), key.alias("top_key"))
    return by_key.agg(F.array_sort(listed).alias("configs"))


def _by_age(one: Column, other: Column) -> Column:
    """Compare two settings by age, because maps cannot be compared. Sequences order only those of one journal."""
    ages = [F.struct(each["at_ms"], each["sequence"]) for each in (one, other)]
    return F.when(ages[0] < ages[1], -1).when(ages[0] > ages[1], 1).otherwise(0)


def _latest(settings: Column, end_ms: Column) -> Column:
    """Return the last setting before an instant."""
    return F.try_element_at(F.filter(settings, lambda each: each["at_ms"] < end_ms), F.lit(-1))
