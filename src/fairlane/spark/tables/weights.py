"""The weights of top keys over time, found as in the broker: config, else policy, else what messages brought."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from fairlane.spark.tables.attempts import TELLS_TERMS
from fairlane.spark.tables.news import Reached
from fairlane.spark.tables.table import whole_queue

TOLD = "weight_told"
"""A kind of event that is in no journal: the weight that messages brought for a key, carried over."""
SOURCES = ("by_config", "by_policy", "by_message")
"""Where weights come from, the strongest first."""

_UNSET = -1
"""Stands for a weight that config or a policy no longer sets, so that a weaker source counts again."""
_CONFIG = r"^weight:([^:]+):(.+)$"


def brought_weights(events: DataFrame, reached: Reached, *, window_length_ms: int) -> DataFrame:
    """Return the last weight that new messages brought for a top key in each window, in the column ``by_message``.

    It is kept with the instant and the sequence of its event, so that of two the later one can be found.
    """
    window = _window(window_length_ms)
    known = told_weights(events.where((F.col("kind") == TOLD) | reached.is_new(F.col("sequence"))), window)
    return known.select("queue", "top_key", "window_ms", F.struct("at_ms", "sequence", "weight").alias("by_message"))


def set_weights(settings: DataFrame, queues: DataFrame, *, window_length_ms: int) -> DataFrame:
    """Return a row for each window in which config or a policy sets the weight of a top key, or stops to set it.

    Args:
        settings: the events of queues and config.
        queues: the queues that matter.
        window_length_ms: the length of a window. What was set last in it counts.
    """
    window = _window(window_length_ms)
    by_config = _by_config(settings, queues, window)
    return _by_policy(settings, window).unionByName(by_config, allowMissingColumns=True)


def _window(length_ms: int) -> Column:
    return (F.col("at_ms") - F.pmod("at_ms", F.lit(length_ms))).alias("window_ms")


def weight_in(so_far: WindowSpec) -> Column:
    """Return the weight of a key in a row, from what the sources set in that row and the rows before."""
    latest = [F.last(name, ignorenulls=True).over(so_far) for name in SOURCES]
    return F.coalesce(*[F.when(weight != _UNSET, weight) for weight in latest], F.lit(1)).cast("long")


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


def _by_policy(settings: DataFrame, window: Column) -> DataFrame:
    """Return which weights policies changed. A policy lists all its weights, so one that it lacks is unset."""
    by_queue = Window.partitionBy("queue").orderBy("at_ms", "sequence")
    weights = F.from_json("policy_json", "weights map<string, bigint>")["weights"].alias("weights")
    versions = (
        settings.where(F.col("kind") == "queue_set")
        .select("queue", "at_ms", "sequence", window, weights)
        .withColumn("next_ms", F.lead("window_ms").over(by_queue))
        .where(~F.col("next_ms").eqNullSafe(F.col("window_ms")))
        .withColumn("version", F.row_number().over(by_queue))
    )
    each = versions.select("queue", "window_ms", "next_ms", "version", F.explode("weights").alias("top_key", "weight"))
    by_key = Window.partitionBy("queue", "top_key").orderBy("version")
    version, weight = F.col("version"), F.col("weight")
    is_same = (F.lag("version").over(by_key) == version - 1) & (F.lag("weight").over(by_key) == weight)
    goes = F.col("next_ms").isNotNull() & ~F.lead("version").over(by_key).eqNullSafe(version + 1)
    changes = F.array(
        F.when(~is_same.eqNullSafe(other=True), _change(F.col("window_ms"), weight)),
        F.when(goes, _change(F.col("next_ms"), F.lit(_UNSET))),
    )
    found = each.select("queue", "top_key", F.array_compact(changes).alias("changes"))
    return found.select("queue", "top_key", F.explode("changes").alias("change")).select("queue", "top_key", "change.*")


def _change(window_ms: Column, weight: Column) -> Column:
    return F.struct(window_ms.alias("window_ms"), weight.cast("long").alias("by_policy"))


def _by_config(settings: DataFrame, queues: DataFrame, window: Column) -> DataFrame:
    """Return which weights config changed, in the queue and in its partitions."""
    set_weights = settings.where((F.col("kind") == "config_set") & F.rlike("name", F.lit(_CONFIG)))
    whole, key = (F.regexp_extract("name", _CONFIG, group) for group in (1, 2))
    weight = F.coalesce(F.col("value").try_cast("long"), F.lit(_UNSET))
    changes = set_weights.groupBy(whole.alias("whole"), key.alias("top_key"), window).agg(
        F.max_by(weight, F.struct("at_ms", "sequence")).alias("by_config")
    )
    places = queues.select("queue", whole_queue("queue").alias("whole"))
    return changes.join(places, "whole").select("queue", "top_key", "window_ms", "by_config")
