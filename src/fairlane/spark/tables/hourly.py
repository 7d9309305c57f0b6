"""The tables by queue, key and hour: ``tenant_usage`` for chargeback, ``latency``, ``throttle_waits`` and ``sla``.

Each is a sum over what is new in attempts, and the rows that the table has already: these are sums of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.histogram import bucket_of, histograms
from fairlane.spark.tables.schemas import LATENCY, SLA, TENANT_USAGE, THROTTLE_WAITS
from fairlane.spark.tables.table import (
    HOUR_MS,
    IS_COMPLETE,
    day_of,
    hour_of,
    key_text,
    shaped,
    whole_queue,
    without_twins,
)

UNNAMED = "_others"
"""The key of refused messages whose own key the journal does not name."""
_PLACE = ("queue", "key", "top_key")
_OTHERS = (*_PLACE, "hour_ms", IS_COMPLETE, "day")
_COUNTS = tuple(field.name for field in without_twins(TENANT_USAGE.schema) if field.name not in _OTHERS)


def _of_queues(attempts: DataFrame) -> DataFrame:
    """Return the attempts of ordinary queues. Partitions of a queue count as one, whatever their journal."""
    return in_queues(attempts).withColumn("queue", whole_queue("queue"))


def tenant_usage(attempts: DataFrame, before: DataFrame | None = None, *, events: DataFrame | None = None) -> DataFrame:
    """Return usage; each event counts in the hour in which it happened.

    Args:
        attempts: the attempts of messages that were enqueued.
        before: rows to go on from.
        events: the events with refusals; a refused message has no attempts.
    """
    facts = F.explode(F.filter(F.array(_begun(), _leased(), _ended()), lambda fact: fact.isNotNull()))
    told = _alike(_of_queues(attempts)).select(*_PLACE, facts.alias("fact")).select(*_PLACE, "fact.*")
    if events is not None:
        told = told.unionByName(_refused(events), allowMissingColumns=True)
    if before is not None:
        told = told.unionByName(before.select(*told.columns))
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS]
    hours = told.groupBy(*_PLACE, "hour_ms").agg(*sums)
    return shaped(hours.withColumn("day", day_of("hour_ms")), TENANT_USAGE)


def _refused(events: DataFrame) -> DataFrame:
    """Return what limits kept out, by key and hour. Refusals whose key is not known share one name."""
    path = F.coalesce("fairness_key", F.array(F.lit(UNNAMED)))
    return (
        events.where(F.col("kind") == "refused")
        .groupBy(
            whole_queue("queue").alias("queue"),
            key_text(path).alias("key"),
            F.try_element_at(path, F.lit(1)).alias("top_key"),
            hour_of("at_ms").alias("hour_ms"),
        )
        .agg(F.sum("messages").alias("refused"), F.sum("cost").alias("refused_cost"))
    )


def _alike(attempts: DataFrame) -> DataFrame:
    """Group attempts that began, were leased and ended in the same hours and ways, which leaves few rows."""
    hours = [
        F.when(F.col(f"is_{moment}_new"), hour_of(f"{moment}_ms")).alias(f"{moment}_hour_ms")
        for moment in ("begun", "leased", "end")
    ]
    return attempts.groupBy(*_PLACE, *hours, "begun_by", "ended_by").agg(
        F.count("*").alias("count"),
        F.count_if("is_failed").alias("failed"),
        F.sum("size_bytes").alias("bytes"),
        F.sum("cost").alias("cost"),
        F.sum(F.coalesce("cost_true", "cost")).alias("cost_true"),
        F.sum("service_ms").alias("service_ms"),
    )


def _begun() -> Column:
    is_new = F.col("begun_by").isin("enqueued", "published")
    is_redriven = F.col("begun_by").isin("redriven", "dead")  # dead letters of others come to an ordinary queue
    return _fact(
        "begun",
        is_new | is_redriven,
        enqueued=F.when(is_new, F.col("count")),
        enqueued_bytes=F.when(is_new, F.col("bytes")),
        enqueued_cost=F.when(is_new, F.col("cost")),
        redriven=F.when(is_redriven, F.col("count")),
    )


def _leased() -> Column:
    return _fact("leased", F.lit(col=True), leased=F.col("count"))


def _ended() -> Column:
    is_acked, is_dead = (F.col("ended_by") == kind for kind in ("acked", "dead"))
    is_removed = F.col("ended_by").isin("removed", "redriven")  # one that dead letters of others come to
    return _fact(
        "end",
        F.col("service_ms").isNotNull() | (F.col("failed") > 0) | is_acked | is_dead | is_removed,
        acked=F.when(is_acked, F.col("count")),
        acked_bytes=F.when(is_acked, F.col("bytes")),
        cost_estimated=F.when(is_acked, F.col("cost")),
        cost_true=F.when(is_acked, F.col("cost_true")),
        service_ms=F.col("service_ms"),
        failed=F.col("failed"),
        dead=F.when(is_dead, F.col("count")),
        removed=F.when(is_removed, F.col("count")),
    )


def _fact(moment: str, is_so: Column, **counts: Column) -> Column:
    """Return what attempts contribute to the hour of one of their instants."""
    values = [counts.get(name, F.lit(None)).cast("long").alias(name) for name in _COUNTS]
    hour_ms = F.col(f"{moment}_hour_ms")
    return F.when(is_so & hour_ms.isNotNull(), F.struct(hour_ms.alias("hour_ms"), *values))


_MEASURES = ("wait", "service")
_BUCKETS = 4096
"""An upper bound on buckets: even the longest duration in milliseconds is below."""
_HOUR = (*_PLACE, "hour_ms")


def latency(attempts: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return waits by the hour of the lease, and service times by the hour in which the lease ended.

    ``before`` are rows to go on from.
    """
    code, span = F.col("code"), F.col("span_ms")
    known = _spans(_of_queues(attempts)).where(span.isNotNull())
    counted = known.groupBy(*_PLACE, _code().alias("code")).agg(
        F.count("*").alias("count"), F.sum(span).alias("sum_ms"), F.max(span).alias("max_ms")
    )
    buckets = counted.withColumns(
        {
            "hour_ms": F.floor(code / (_BUCKETS * len(_MEASURES))) * HOUR_MS,
            "measure": F.floor(code / _BUCKETS) % len(_MEASURES),
            "bucket": (code % _BUCKETS).cast("int"),
        }
    ).drop("code")
    if before is not None:
        known_before = [_buckets_of(before, name).withColumn("measure", F.lit(at)) for at, name in enumerate(_MEASURES)]
        buckets = _summed(reduce(DataFrame.unionByName, known_before, buckets), by=(*_HOUR, "measure"))
    found = histograms(buckets, "span", by=(*_HOUR, "measure"))
    told = found.groupBy(*_HOUR).agg(*_aggregates("wait", "handed_out"), *_aggregates("service", "served"))
    return shaped(told.withColumn("day", day_of("hour_ms")), LATENCY)


def _buckets_of(rows: DataFrame, name: str, *, by: Sequence[str] = _HOUR) -> DataFrame:
    """Return the buckets of the histograms of rows; the first bucket of each has the sum and the greatest value."""
    at, entry = F.col("at"), F.col("entry")
    each = rows.select("*", F.posexplode(f"{name}_histogram").alias("at", "entry"))
    return each.select(
        *by,
        entry["bucket"].alias("bucket"),
        entry["count"].alias("count"),
        F.when(at == 0, F.col(f"{name}_sum_ms")).otherwise(0).alias("sum_ms"),
        F.when(at == 0, F.col(f"{name}_max_ms")).otherwise(0).alias("max_ms"),
    )


def _summed(buckets: DataFrame, *, by: Sequence[str]) -> DataFrame:
    """Return each bucket once."""
    told = buckets.groupBy(*by, "bucket")
    return told.agg(F.sum("count").alias("count"), F.sum("sum_ms").alias("sum_ms"), F.max("max_ms").alias("max_ms"))


def _spans(attempts: DataFrame) -> DataFrame:
    """Return each new measure of each attempt, and when it was known. Plain columns are faster than lists."""
    each = attempts.withColumn("measure", F.explode(F.array(*[F.lit(at) for at in range(len(_MEASURES))])))
    is_wait = F.col("measure") == _MEASURES.index("wait")
    wait = F.greatest(F.col("leased_ms") - F.col("ready_ms"), F.lit(0))
    return each.select(
        *_PLACE,
        "measure",
        F.when(is_wait, F.col("leased_ms")).otherwise(F.col("end_ms")).alias("known_ms"),
        F.when(is_wait, F.when(F.col("is_leased_new"), wait))
        .otherwise(F.when(F.col("is_end_new"), F.col("service_ms")))
        .alias("span_ms"),
    )


def _code() -> Column:
    """Return hour, measure and bucket as one number: grouping millions of rows by one number is fast."""
    hour = F.floor(F.col("known_ms") / HOUR_MS) * len(_MEASURES) + F.col("measure")
    return hour * _BUCKETS + bucket_of(F.col("span_ms"))


def _aggregates(measure: str, count: str) -> list[Column]:
    """Return the columns of one measure, from its only row."""

    def only(name: str) -> Column:
        return F.first(F.when(F.col("measure") == _MEASURES.index(measure), F.col(name)), ignorenulls=True)

    named = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "histogram")
    return [
        F.coalesce(only("count"), F.lit(0)).alias(count),
        F.coalesce(only("span_sum_ms"), F.lit(0)).alias(f"{measure}_sum_ms"),
        *[only(f"span_{name}").alias(f"{measure}_{name}") for name in named],
    ]


_WAIT_PLACE = ("queue", "throttle", "key", "top_key", "hour_ms")


def throttle_waits(attempts: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return throttle waits by the hour of the lease; a message with several throttles counts for each.

    ``before`` are rows to go on from.
    """
    is_taken = F.col("leased_ms").isNotNull() & F.col("is_leased_new") & (F.size("throttles") > 0)
    taken = _of_queues(attempts).where(is_taken)
    each = taken.select(
        *("queue", "key", "top_key", "throttled_ms"),
        F.explode("throttles").alias("throttle"),
        hour_of("leased_ms").alias("hour_ms"),
    )
    span = F.col("throttled_ms")
    counted = each.groupBy(*_WAIT_PLACE, bucket_of(span).alias("bucket")).agg(
        F.count("*").alias("count"), F.sum(span).alias("sum_ms"), F.max(span).alias("max_ms")
    )
    if before is not None:
        known = _buckets_of(before.withColumnRenamed("throttled_ms", "throttled_sum_ms"), "throttled", by=_WAIT_PLACE)
        counted = _summed(counted.unionByName(known), by=_WAIT_PLACE)
    found = histograms(counted, "throttled", by=_WAIT_PLACE, percents=(50, 99))
    at_once = F.filter("throttled_histogram", lambda entry: entry["bucket"] == 0)
    told = found.withColumns(
        {
            "handed_out": F.col("count"),
            "waited": F.col("count") - F.coalesce(F.try_element_at(at_once, F.lit(1))["count"], F.lit(0)),
            "throttled_ms": F.col("throttled_sum_ms"),
            "day": day_of("hour_ms"),
        }
    )
    return shaped(told, THROTTLE_WAITS)


def sla(attempts: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return the outcome of messages with a deadline, by the hour in which it was decided.

    ``before`` are rows to go on from.
    """
    is_decided = F.col("ended_by").isin("acked", "removed", "dead") & F.col("is_end_new")
    decided = _of_queues(attempts).where(F.col("deadline_ms").isNotNull() & is_decided)
    is_acked = F.col("ended_by") == "acked"
    is_past = F.col("end_reason").eqNullSafe("deadline")
    hours = decided.groupBy(*_PLACE, hour_of("end_ms").alias("hour_ms")).agg(
        F.count("*").alias("with_deadline"),
        F.count_if(is_acked & (F.col("end_ms") <= F.col("deadline_ms"))).alias("met"),
        F.count_if(is_acked & (F.col("end_ms") > F.col("deadline_ms"))).alias("late"),
        F.count_if(~is_acked & is_past).alias("missed"),
        F.count_if(~is_acked & ~is_past).alias("otherwise"),
    )
    if before is not None:
        both = hours.unionByName(before.select(*hours.columns))
        hours = both.groupBy(*_HOUR).agg(*[F.sum(name).alias(name) for name in hours.columns if name not in _HOUR])
    return shaped(hours.withColumn("day", day_of("hour_ms")), SLA)
