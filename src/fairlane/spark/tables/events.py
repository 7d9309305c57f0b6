"""The table ``events``: the journal as it is, each sequence once, in folders by day; and what must be carried on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fairlane.spark.tables.attempts import DONE, STORY, TOLD_IN
from fairlane.spark.tables.schemas import EVENTS
from fairlane.spark.tables.table import day_of, id_of
from fairlane.spark.tables.weights import TOLD, told_weights

SETTINGS = ("queue_set", "queue_removed", "queue_paused", "config_set", TOLD)
"""The kinds of events that later days need to know of, whenever they happened."""

_CARRIED = (*TOLD_IN, "policy_json", "name", "value", "is_paused", "day")
"""The columns that later days need."""

JOURNAL_SCHEMA = StructType([field for field in EVENTS.schema if field.name != "day"])
"""What is read of the journal's files. A column that a file does not have, since an older version wrote it, is null."""


def events(journal: DataFrame) -> DataFrame:
    """Return events of the journal in the columns of the table, whatever version wrote them.

    A column that the journal does not have is null, one that the table does not know is left out.
    """
    known = set(journal.columns)
    told = [
        (F.col(field.name) if field.name in known else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in JOURNAL_SCHEMA
    ]
    return journal.select(*told, day_of("at_ms").alias("day"))


def open_messages(attempts: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return the messages that were open at the end of some days, with these days in the column ``open_on``."""
    ends = _list(days)
    done = F.max(F.when(F.col("ended_by").isin(*DONE), day_of("end_ms"))).alias("done_on")
    begun = F.min(day_of(F.coalesce("begun_ms", "leased_ms", "end_ms"))).alias("begun_on")
    lives = attempts.groupBy("message").agg(done, begun)
    open_on = F.filter(
        ends, lambda end: (F.col("begun_on") <= end) & (F.col("done_on").isNull() | (F.col("done_on") > end))
    )
    return lives.select(id_of("message").alias("message_id"), open_on.alias("open_on")).where(F.size("open_on") > 0)


def carried(events: DataFrame, open_messages: DataFrame, *, days: Sequence[date]) -> DataFrame:
    """Return for each of some days the events that later days need, with the day in the column ``carried_on``.

    That are the stories of the messages still open at its end, and the settings made until then, in the columns that
    matter. ``events`` hold the whole stories of these messages.
    """
    ends, told = _list(days), events.select(*_CARRIED)
    stories = told.where(F.col("kind").isin(*STORY)).join(open_messages, "message_id")
    settings = told.where(F.col("kind").isin(*SETTINGS) & (F.col("kind") != TOLD)).withColumn("open_on", ends)
    known = _each_day(stories.unionByName(settings), F.col("open_on"))
    return known.select(*_CARRIED, "carried_on").unionByName(_told(events, ends), allowMissingColumns=True)


def _told(events: DataFrame, ends: Column) -> DataFrame:
    """Return as events the weights that messages had brought by the ends of days."""
    by_day = _each_day(told_weights(events, F.col("day")), ends)
    last = by_day.groupBy("queue", "top_key", "carried_on").agg(
        F.max(F.struct("sequence", "at_ms", "weight", "day")).alias("last")
    )
    told = last.select("queue", F.array("top_key").alias("fairness_key"), "last.*", "carried_on")
    return told.withColumn("kind", F.lit(TOLD))


def _list(days: Sequence[date]) -> Column:
    return F.lit(list(days)).cast("array<date>")


def _each_day(frame: DataFrame, ends: Column) -> DataFrame:
    """Return each event once for each of its days' ends that it was there before."""
    past = F.filter(ends, lambda end: F.col("day") <= end)
    return frame.withColumn("carried_on", F.explode(past))
