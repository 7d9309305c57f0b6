"""The table ``events``: the journal in folders by day; and what one day carries over to the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fairlane.spark.tables.attempts import DONE, MESSAGE, STORY, TOLD_IN
from fairlane.spark.tables.schemas import EVENTS
from fairlane.spark.tables.settings import needed, settings_of
from fairlane.spark.tables.table import day_of, id_of, without_twins
from fairlane.spark.tables.weights import TOLD, told_weights

_CARRIED = (*TOLD_IN, "policy_json", "name", "value", "is_paused", "day")
"""The columns that later days need."""

JOURNAL_SCHEMA = StructType([field for field in without_twins(EVENTS.schema) if field.name not in ("group", "day")])
"""The columns that are read from the journal's files. A column that an older file lacks is null."""


def events(journal: DataFrame) -> DataFrame:
    """Return events of the journal in the columns of the table, of any version.

    A missing column is null, an unknown one is dropped. The journal is never null, so that joins find it.
    """
    known = set(journal.columns)
    told = {
        field.name: (F.col(field.name) if field.name in known else F.lit(None)).cast(field.dataType)
        for field in JOURNAL_SCHEMA
    }
    told["journal_id"] = F.coalesce(told["journal_id"], F.lit(""))
    return journal.select(*[value.alias(name) for name, value in told.items()], day_of("at_ms").alias("day"))


def open_messages(attempts: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return the messages that were open at the end of some days, with these days in the column ``open_on``."""
    ends = _list(days)
    done = F.max(F.when(F.col("ended_by").isin(*DONE), day_of("end_ms"))).alias("done_on")
    begun = F.min(day_of(F.coalesce("begun_ms", "leased_ms", "end_ms"))).alias("begun_on")
    lives = attempts.groupBy(*MESSAGE).agg(done, begun)
    open_on = F.filter(
        ends, lambda end: (F.col("begun_on") <= end) & (F.col("done_on").isNull() | (F.col("done_on") > end))
    )
    known = lives.select("journal_id", id_of("message").alias("message_id"), open_on.alias("open_on"))
    return known.where(F.size("open_on") > 0)


def carried(events: DataFrame, open_messages: DataFrame, waiting: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return for each of some days the events that later days need, with the day in the column ``carried_on``.

    These are all events of the messages that are open at its end, and the settings and pauses that still matter.

    Args:
        events: all events.
        open_messages: the messages that were open at the ends of the days.
        waiting: since when messages waited then, see ``settings.waiting_since``.
        days: the days.
    """
    told = events.select(*_CARRIED)
    stories = told.where(F.col("kind").isin(*STORY)).join(open_messages, ["journal_id", "message_id"])
    settings = needed(settings_of(told), waiting, days=days)
    known = _each_day(stories.unionByName(settings), F.col("open_on"))
    return known.select(*_CARRIED, "carried_on").unionByName(_told(events, _list(days)), allowMissingColumns=True)


def _told(events: DataFrame, ends: Column) -> DataFrame:
    """Return the weights that messages had brought by the ends of days, as events."""
    by_day = _each_day(told_weights(events, F.col("day")), ends)
    last = by_day.groupBy("queue", "top_key", "carried_on").agg(
        F.max(F.struct("at_ms", "sequence", "weight", "day")).alias("last")
    )
    told = last.select("queue", F.array("top_key").alias("fairness_key"), "last.*", "carried_on")
    return told.withColumn("kind", F.lit(TOLD))


def _list(days: Sequence[date]) -> Column:
    return F.lit(list(days)).cast("array<date>")


def _each_day(frame: DataFrame, ends: Column) -> DataFrame:
    """Return each event once for each end of a day after it."""
    past = F.filter(ends, lambda end: F.col("day") <= end)
    return frame.withColumn("carried_on", F.explode(past))
