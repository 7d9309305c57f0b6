"""Lets Spark find ``format("fairlead")`` by itself: it looks into modules whose names begin with ``pyspark_``."""

from fairlead.spark.source.data_source import FairleadDataSource as DefaultSource

__all__ = ["DefaultSource"]
