"""Partials: what is final of the newest day, so that the next run adds to it instead of reading the day again.

Hourly tables need none, since their rows can be added up. The fairness tables and ``dead_letters`` are made from sums
and rows that are kept here. The partials of the fairness tables are one frame with a column ``kind``: the ``work`` of
keys by window, the ``ends`` of their waits, and the ``leases`` of queues by second. None of them has anything of waits
that last; each run adds these again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial, reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from fairlane.spark.tables.news import Reached
from fairlane.spark.tables.runs import WORK_SUMS, added_up, work
from fairlane.spark.tables.starvation import ends, leases, merged_ends, merged_leases
from fairlane.spark.tables.table import DATE, FLAG, LONG, TEXT, day_of

VERSION: Final = 1
"""Of what partials mean. A run goes on only from those of its own version."""

BROUGHT: Final = StructType([StructField(name, LONG) for name in ("at_ms", "sequence", "weight")])
"""A weight that a message brought, as ``weights.brought_weights`` tells it."""

_KEY: Final = (("queue", TEXT), ("top_key", TEXT))
_KINDS: Final = {
    "work": (*_KEY, ("window_ms", LONG), *((name, LONG) for name in WORK_SUMS), ("by_message", BROUGHT)),
    "ends": (
        *_KEY,
        ("step", LONG),
        ("is_served", FLAG),
        *((f"{name}_ms", LONG) for name in ("until", "last", "since")),
    ),
    "leases": (("queue", TEXT), ("at_ms", LONG), ("served_meanwhile", LONG)),
}
_MERGED: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "work": added_up,
    "ends": merged_ends,
    "leases": merged_leases,
}

WAITS_SCHEMA: Final = StructType(
    [
        StructField(name, kind)
        for name, kind in {
            "kind": TEXT,
            **{column[0]: column[1] for told in _KINDS.values() for column in told},
            "day": DATE,
        }.items()
    ]
)
"""The columns of the partials of the fairness tables."""

DEATHS_SCHEMA: Final = StructType(
    [
        StructField(name, kind)
        for name, kind in (
            *(("journal_id", TEXT), ("message_id", TEXT), ("queue", TEXT), ("key", TEXT), ("number", LONG)),
            *(("at_ms", LONG), ("reason", TEXT), ("error", TEXT), ("signature", TEXT), ("signature_id", TEXT)),
            *(("redriven_on", DATE), ("day", DATE)),
        )
    ]
)
"""The columns of ``dead_letters.deaths``."""


def waits_over(pieces: DataFrame, events: DataFrame, reached: Reached, before: DataFrame | None) -> DataFrame:
    """Return the partials of the fairness tables, of waits that are over and weights that were brought.

    Args:
        pieces: when messages waited for their turn, see ``turns.pieces``.
        events: all events.
        reached: which of them are new.
        before: the partials of the last run.
    """
    final = pieces.where("is_final")
    news = {"work": work(pieces, events, reached), "ends": ends(final), "leases": leases(final)}
    parts = [_with_before(frame, kind, before) for kind, frame in news.items()]
    found = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    return found.select(*[F.col(field.name).cast(field.dataType).alias(field.name) for field in WAITS_SCHEMA])


def _with_before(news: DataFrame, kind: str, before: DataFrame | None) -> DataFrame:
    """Return new partials of a kind, added to those of the last run."""
    found = news if before is None else _MERGED[kind](news.unionByName(of_kind(before, kind).select(*news.columns)))
    told = found.withColumn("day", day_of("window_ms")) if kind == "work" else found
    return told.withColumn("kind", F.lit(kind))


def of_kind(partials: DataFrame, kind: str) -> DataFrame:
    """Return the partials of a kind, with their own columns and the day."""
    return partials.where(F.col("kind") == kind).select(*[name for name, _ in _KINDS[kind]], "day")


def kept(partials: DataFrame, newest_day: date) -> DataFrame:
    """Return what the next run needs of partials: the newest day, and the last weight of each key before it."""
    earlier = partials.where((F.col("kind") == "work") & (F.col("day") < F.lit(newest_day)))
    last = F.max(F.when(F.col("by_message").isNotNull(), F.struct("window_ms", "by_message")))
    weights = earlier.groupBy("queue", "top_key").agg(last.alias("last")).where(F.col("last").isNotNull())
    told = weights.select(
        "queue", "top_key", "last.*", *[F.lit(0).alias(name) for name in WORK_SUMS], F.lit("work").alias("kind")
    )
    newest = partials.where(F.col("day") == F.lit(newest_day)).drop("day")
    both = newest.unionByName(told, allowMissingColumns=True).withColumn("day", F.lit(newest_day))
    return both.select(*WAITS_SCHEMA.names)
