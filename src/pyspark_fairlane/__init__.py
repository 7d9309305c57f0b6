"""Lets Spark find ``format("fairlane")`` by itself: it looks into modules whose names begin with ``pyspark_``."""

from fairlane.spark.source.data_source import FairlaneDataSource as DefaultSource

__all__ = ["DefaultSource"]
