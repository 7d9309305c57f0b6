"""Selects dead letters with SQL; the broker moves them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.spark.source.server_address import ServerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Dead letters that satisfy a condition.

    Attributes:
        total: how many dead letters were looked at.
        by_error: how many were chosen by reason and last error, the most frequent first.
    """

    ids: tuple[str, ...]
    total: int
    by_error: tuple[tuple[str, str, int], ...]


def choose(spark: SparkSession, place: ServerAddress, queue: str, where: str) -> Chosen:
    """Return the dead letters of a queue that satisfy an SQL condition, in the order in which they were dead-lettered.

    The columns are those of the kind ``dead_letters`` of the data source, with ``error`` for the last error text and
    ``payload_text`` for the payload read as UTF-8, null where it is none. Raises InvalidArgument if the condition is no
    SQL, or names a column that there is not.
    """
    letters = _dead_letters(spark, place, queue)
    try:
        chosen = letters.where(where).select("id", "dead_ms", "reason", "error")
    except (AnalysisException, ParseException) as error:
        raise InvalidArgument(f"Invalid condition on dead letters: {_first_line(error)}") from error
    rows = sorted(chosen.collect(), key=lambda row: (row.dead_ms, row.id))
    kinds: dict[tuple[str, str], int] = {}
    for row in rows:
        kind = (row.reason or "", row.error or "")
        kinds[kind] = kinds.get(kind, 0) + 1
    return Chosen(
        ids=tuple(row.id for row in rows),
        total=letters.count(),
        by_error=tuple((*kind, count) for kind, count in sorted(kinds.items(), key=lambda each: (-each[1], each[0]))),
    )


def _dead_letters(spark: SparkSession, place: ServerAddress, queue: str) -> DataFrame:
    letters = spark.read.format("fairlane").options(kind="dead_letters", queue=queue, **place.options()).load()
    return letters.withColumns(
        {
            "error": F.try_element_at("errors", F.lit(-1))["error"],
            "payload_text": F.try_validate_utf8(F.col("payload").cast("string")),
        }
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]
