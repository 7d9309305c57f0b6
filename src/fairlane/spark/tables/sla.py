"""The table ``sla``: which deadlines were met, per queue, key and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.spark.tables.attempts import in_queues
from fairlane.spark.tables.schemas import SLA
from fairlane.spark.tables.table import day_of, hour_of, shaped


def sla(attempts: DataFrame) -> DataFrame:
    """Return the outcome of messages with a deadline, by the hour in which it was decided."""
    decided = in_queues(attempts).where(
        F.col("deadline_ms").isNotNull() & F.col("ended_by").isin("acked", "removed", "dead")
    )
    is_acked = F.col("ended_by") == "acked"
    is_past = F.col("end_reason").eqNullSafe("deadline")
    hours = decided.groupBy("queue", "key", "top_key", hour_of("end_ms").alias("hour_ms")).agg(
        F.count("*").alias("with_deadline"),
        F.count_if(is_acked & (F.col("end_ms") <= F.col("deadline_ms"))).alias("met"),
        F.count_if(is_acked & (F.col("end_ms") > F.col("deadline_ms"))).alias("late"),
        F.count_if(~is_acked & is_past).alias("missed"),
        F.count_if(~is_acked & ~is_past).alias("otherwise"),
    )
    return shaped(hours.withColumn("day", day_of("hour_ms")), SLA)
