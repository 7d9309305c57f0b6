"""Frames that are computed once and used several times.

``DataFrame.persist`` keeps the rows, but every frame that is made of a persisted one carries its whole plan along:
Spark analyses it again with each step, and compares all parts of it with all that is cached before each job. With the
plans of the pipeline that takes several times as long as the work on a few thousand events.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, is_remote


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of a frame from their first use to the end, and provide them as a frame with a plan of one step.

    Lost rows are computed again, as with any cached frame. With Spark Connect they cannot be: there only a local
    checkpoint cuts a plan, so a job that misses the rows of a lost executor fails. Without the cut the plans would soon
    be deeper than the protocol can carry. Spark drops the rows of a checkpoint once nothing refers to them.
    """
    if is_remote():
        yield frame.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
        return
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield _cut(kept)
    finally:
        kept.unpersist()


def _cut(kept: DataFrame) -> DataFrame:
    """Return a persisted frame whose plan is the scan of its cache: what Spark replaces it with before each job."""
    spark = kept.sparkSession
    jvm: Any = spark._jvm
    frame_of = jvm.org.apache.spark.sql.classic.Dataset.ofRows  # no public call makes a frame of a plan
    # A frame that has run before remembers its plan without the cache, so ask a new one with the same plan.
    again = frame_of(spark._jsparkSession, kept._jdf.queryExecution().analyzed())
    return DataFrame(frame_of(spark._jsparkSession, again.queryExecution().withCachedData()), spark)
