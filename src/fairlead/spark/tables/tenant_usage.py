"""The table ``tenant_usage``: what each key did, per queue and hour, for whoever writes the bill."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from fairlead.spark.tables.attempts import in_queues
from fairlead.spark.tables.schemas import TENANT_USAGE
from fairlead.spark.tables.table import HOUR_MS, day_of, shaped

_KINDS = ("enqueued", "redriven", "leased", "ended", "failed", "acked", "dead", "removed")
_SUMS = {
    "enqueued": ("enqueued", "count"),
    "enqueued_bytes": ("enqueued", "bytes"),
    "enqueued_cost": ("enqueued", "cost"),
    "leased": ("leased", "count"),
    "acked": ("acked", "count"),
    "acked_bytes": ("acked", "bytes"),
    "cost_estimated": ("acked", "cost"),
    "cost_true": ("acked", "cost_true"),
    "service_ms": ("ended", "service_ms"),
    "failed": ("failed", "count"),
    "dead": ("dead", "count"),
    "removed": ("removed", "count"),
    "redriven": ("redriven", "count"),
}


def tenant_usage(attempts: DataFrame) -> DataFrame:
    """Return usage; each thing counts in the hour in which it happened."""
    begun_by, ended_by = F.col("begun_by"), F.col("ended_by")
    facts = F.array(
        _fact("enqueued", "begun_ms", begun_by.isin("enqueued", "published")),
        _fact("redriven", "begun_ms", begun_by == "redriven"),
        _fact("leased", "leased_ms", F.col("leased_ms").isNotNull()),
        _fact("ended", "end_ms", F.col("service_ms").isNotNull()),
        _fact("failed", "end_ms", F.col("is_failed")),
        *[_fact(kind, "end_ms", ended_by == kind) for kind in ("acked", "dead", "removed")],
    )
    place = ("queue", "key", "top_key")
    told = in_queues(attempts).select(
        *place,
        F.coalesce("size_bytes", F.lit(0)).alias("bytes"),
        "cost",
        F.coalesce("cost_true", "cost").alias("cost_true"),
        "service_ms",
        F.explode(F.filter(facts, lambda fact: fact.isNotNull())).alias("fact"),
    )
    counted = told.groupBy(*place, "fact").agg(
        F.count("*").alias("count"), *[F.sum(name).alias(name) for name in ("bytes", "cost", "cost_true", "service_ms")]
    )
    kind_of = F.col("fact") % len(_KINDS)
    hour_ms = (F.floor(F.col("fact") / len(_KINDS)) * HOUR_MS).alias("hour_ms")
    hours = counted.groupBy(*place, hour_ms).agg(
        *[
            F.coalesce(F.sum(F.when(kind_of == _KINDS.index(kind), F.col(of))), F.lit(0)).alias(name)
            for name, (kind, of) in _SUMS.items()
        ]
    )
    return shaped(hours.withColumn("day", day_of("hour_ms")), TENANT_USAGE)


def _fact(kind: str, at: str, is_so: Column) -> Column:
    """Return in one number what happened and in which hour: millions are grouped by it, and one is quick."""
    return F.when(is_so, F.floor(F.col(at) / HOUR_MS) * len(_KINDS) + _KINDS.index(kind))
