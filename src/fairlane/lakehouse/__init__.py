"""The tables of the pipeline wherever they are kept: a folder, an object store, Delta tables or an Iceberg catalog.

``open_tables`` opens them. This package knows files, formats and commits. It needs Arrow but no Spark, so a report
reads tables without a JVM; ``fairlane.spark.pipeline`` writes them.
"""

from __future__ import annotations

from fairlane.lakehouse.address import TablesAddress, parse_address
from fairlane.lakehouse.files import DataFile
from fairlane.lakehouse.opening import Lakehouse, open_tables

__all__ = ["DataFile", "Lakehouse", "TablesAddress", "open_tables", "parse_address"]
