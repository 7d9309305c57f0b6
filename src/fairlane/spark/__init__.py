"""Fairlane on Spark: queues and the journal as sources and sinks of PySpark, and a session to use them in.

Needs the extra ``fairlane[spark]``.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark  # noqa: F401 - so that its absence is told in one line
except ImportError as error:
    raise ImportError("PySpark is not installed. Install fairlane[spark].") from error

from fairlane.spark.session import spark_session
from fairlane.spark.source.data_source import FairlaneDataSource
from fairlane.spark.threads import in_thread

__all__ = ["FairlaneDataSource", "in_thread", "spark_session"]
