"""Fairlead on Spark: queues and the journal as sources and sinks of PySpark, and a session to use them in.

Needs the extra ``fairlead[spark]``.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark  # noqa: F401 - so that its absence is told in one line
except ImportError as error:
    raise ImportError("Spark needs the packages of an extra: install fairlead[spark].") from error

from fairlead.spark.session import spark_session
from fairlead.spark.source.data_source import FairleadDataSource

__all__ = ["FairleadDataSource", "spark_session"]
