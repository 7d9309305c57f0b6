"""The table ``gaps``: what is missing of the journals; and the mark of the days that it concerns, in every table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from fairlane.spark.pipeline.journals import Gap
from fairlane.spark.tables.schemas import EVENTS, GAPS, MESSAGES
from fairlane.spark.tables.table import IS_COMPLETE, TableDefinition, shaped, without_twins


def gaps(spark: SparkSession, found: Sequence[Gap]) -> DataFrame:
    """Return gaps as a table; those of journals without any known event are left out, since no day has them."""
    columns = without_twins(GAPS.schema)
    rows = [
        F.struct(*[F.lit(getattr(gap, field.name)).cast(field.dataType).alias(field.name) for field in columns])
        for gap in found
        if gap.day is not None
    ]
    told = F.array(*rows).cast(ArrayType(columns))
    return shaped(spark.range(1).select(F.inline(told)), GAPS)  # as ``table.empty``, it leaves the active session alone


def marked(frame: DataFrame, table: TableDefinition, found: Sequence[Gap]) -> DataFrame:
    """Mark the rows of a table that may lack something: those of incomplete days, and messages open before a gap."""
    if not found or table.name in (EVENTS.name, GAPS.name):
        return frame
    days = sorted({day for gap in found for day in gap.days()})
    is_incomplete = F.col("day").isin(days)
    if table.name == MESSAGES.name:
        is_incomplete = F.when(F.col("is_open"), _is_before_gap(found)).otherwise(is_incomplete)
    return frame.withColumn(IS_COMPLETE, ~is_incomplete)


def _is_before_gap(found: Sequence[Gap]) -> Column:
    """Return whether more may have happened to a message than its row tells."""
    journal, last = F.col("journal_id"), F.col("last_sequence")
    return reduce(or_, [(journal == gap.journal_id) & (last < gap.until_sequence) for gap in found])
