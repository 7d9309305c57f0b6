"""The table ``dead_letters``: dead letters, grouped by what their errors have in common."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.spark.tables.schemas import DEAD_LETTERS
from fairlane.spark.tables.table import day_of, id_of, shaped, whole_queue

KEYS_MAX = 100
SAMPLES_MAX = 5
SIGNATURE_LENGTH_MAX = 300

_REPLACED = (
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>)\]]+", "<url>"),
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (r"\"[^\"\n]*\"|`[^`\n]*`|(?<![A-Za-z0-9])'[^'\n]*'(?![A-Za-z0-9])", "<text>"),
    (r"(?:[A-Za-z]:)?(?:[\\/][\w.@%+~-]+){2,}[\\/]?", "<path>"),
    (r"0[xX][0-9a-fA-F]+|\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{6,}\b", "<hex>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)


def signature_of(error: Column) -> Column:
    """Return an error text with its variable parts replaced."""
    found = F.substring(F.coalesce(error, F.lit("")), 1, 4 * SIGNATURE_LENGTH_MAX)
    for pattern, replacement in _REPLACED:
        found = F.regexp_replace(found, pattern, replacement)
    return F.trim(F.substring(found, 1, SIGNATURE_LENGTH_MAX))


def dead_letters(deaths: DataFrame) -> DataFrame:
    """Return dead letters by day, queue, reason and signature."""
    first = F.row_number().over(Window.partitionBy("day", "signature_id").orderBy("number"))
    kinds = (
        deaths.withColumn("place", first)
        .groupBy("day", "queue", "reason", "signature", "signature_id")
        .agg(
            F.count("*").alias("count"),
            F.min("at_ms").alias("first_seen_ms"),
            F.max("at_ms").alias("last_seen_ms"),
            F.count_distinct("key").alias("keys_hit"),
            F.slice(F.array_sort(F.collect_set("key")), 1, KEYS_MAX).alias("keys"),
            F.min_by("error", "number").alias("sample_error"),
            F.array_sort(F.collect_set(F.when(F.col("place") <= SAMPLES_MAX, F.col("message_id")))).alias(
                "sample_message_ids"
            ),
            F.count_if(F.col("redriven_on") == F.col("day")).alias("redriven"),
        )
    )
    return shaped(kinds, DEAD_LETTERS)


def deaths(attempts: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return each dead letter with its cause, and the day on which it was redriven. ``before`` are known ones."""
    died = attempts.where((F.col("ended_by") == "dead") & ~F.col("is_dlq") & F.col("is_end_new"))
    back = attempts.where(F.col("ended_by") == "redriven").select(
        "journal_id", "number", day_of("end_ms").alias("back_on")
    )
    named = F.substring(F.sha2(F.concat_ws("\x1f", "queue", "reason", "signature"), 256), 1, 12)
    told = died.select(
        "journal_id",
        id_of("message").alias("message_id"),
        whole_queue("queue").alias("queue"),
        "key",
        F.col("last_sequence").alias("number"),
        F.col("end_ms").alias("at_ms"),
        day_of("end_ms").alias("day"),
        F.col("end_reason").alias("reason"),
        "error",
        signature_of(F.col("error")).alias("signature"),
        F.lit(None).cast("date").alias("redriven_on"),
    ).withColumn("signature_id", named)
    known = told if before is None else told.unionByName(before.select(*told.columns))
    joined = known.join(back, ["journal_id", "number"], "left")
    return joined.withColumn("redriven_on", F.coalesce("redriven_on", "back_on")).drop("back_on")


def merged(dead_letters: DataFrame) -> DataFrame:
    """Return the kinds of dead letters over all days of the table, in the same columns without the day.

    A day lists at most ``KEYS_MAX`` keys, so ``keys_hit`` is exact up to that many, and a lower bound above.
    """
    keys = F.array_distinct(F.flatten(F.collect_list("keys")))
    return dead_letters.groupBy("queue", "reason", "signature", "signature_id").agg(
        F.sum("count").alias("count"),
        F.min("first_seen_ms").alias("first_seen_ms"),
        F.max("last_seen_ms").alias("last_seen_ms"),
        F.greatest(F.max("keys_hit"), F.size(keys)).alias("keys_hit"),
        F.slice(F.array_sort(keys), 1, KEYS_MAX).alias("keys"),
        F.min_by("sample_error", "first_seen_ms").alias("sample_error"),
        F.slice(F.array_sort(F.flatten(F.collect_list("sample_message_ids"))), 1, SAMPLES_MAX).alias(
            "sample_message_ids"
        ),
        F.sum("redriven").alias("redriven"),
    )
