"""A cached frame is computed once, and its plan is one step."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.spark.caching import cached


def test_a_cached_frame_is_computed_once_and_its_plan_is_short(spark: SparkSession) -> None:
    """Uses of random numbers see the same ones, also in a join with itself, and the plan does not show their source."""
    drawn = spark.range(100).select("id", F.rand().alias("drawn")).where("drawn >= 0").distinct()
    with cached(drawn) as kept:
        first, again = kept.orderBy("id").collect(), kept.orderBy("id").collect()
        assert first == again
        assert kept.join(kept.withColumnRenamed("drawn", "same"), "id").where("drawn = same").count() == 100
        plan = kept._jdf.queryExecution().analyzed().toString()
        assert plan.splitlines()[0].startswith("InMemoryRelation")
        assert drawn.storageLevel.useMemory
    assert not drawn.storageLevel.useMemory


def test_a_frame_that_was_used_before_is_cached_too(spark: SparkSession) -> None:
    """Spark remembers how it ran a frame, without the cache; the cached one reads the cache all the same."""
    drawn = spark.range(100).select("id", F.rand().alias("drawn"))
    assert len(drawn.collect()) == 100
    with cached(drawn) as kept:
        assert kept._jdf.queryExecution().analyzed().toString().startswith("InMemoryRelation")
