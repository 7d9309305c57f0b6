"""One arithmetic of buckets: what Spark counts by, the report reads back without Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.model import histogram as model
from fairlane.spark.tables.histogram import bucket_of, greatest_in, histograms

BUCKETS = 1_500
"""Those of spans up to a million years."""


def test_spark_counts_by_the_buckets_of_the_model(spark: SparkSession) -> None:
    """Each bucket ends where Spark ends it: its last value is in it, the next one in the next."""
    bucket = F.col("id").cast("int")
    last = greatest_in(bucket)
    rows = spark.range(BUCKETS).select(bucket, last, bucket_of(last), bucket_of(last + 1)).collect()
    assert [tuple(row) for row in rows] == [(at, model.greatest_in(at), at, at + 1) for at in range(BUCKETS)]
    assert [model.bucket_of(model.greatest_in(at)) for at in range(BUCKETS)] == list(range(BUCKETS))


def test_a_histogram_of_spark_has_the_percentiles_that_the_report_finds(spark: SparkSession) -> None:
    """Values counted by Spark and read by the report: the same percentiles, the largest value among them."""
    spans = [number**3 for number in range(1, 101)]
    counted = (
        spark.createDataFrame([(span,) for span in spans], "span bigint")
        .groupBy(F.lit("all").alias("place"), bucket_of(F.col("span")).alias("bucket"))
        .agg(F.count("*").alias("count"), F.sum("span").alias("sum_ms"), F.max("span").alias("max_ms"))
    )
    (row,) = histograms(counted, "wait", by=["place"]).collect()
    read = model.LogHistogram()
    read.add([entry.asDict() for entry in row["wait_histogram"]], most=row["wait_max_ms"])
    told = [row[f"wait_p{percent}_ms"] for percent in (50, 90, 99)]
    assert [read.percentile(percent / 100) for percent in (50, 90, 99)] == told
    for percent, value in zip((50, 90, 99), told, strict=True):
        assert spans[percent - 1] <= value <= spans[percent - 1] * 33 / 32
