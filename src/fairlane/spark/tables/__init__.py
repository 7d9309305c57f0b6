"""The tables of the pipeline: usage, waits, fairness and failures.

Each table is a pure function from frames to a frame; ``schemas`` has the columns of all of them.
"""

from __future__ import annotations

from fairlane.spark.tables.schemas import TABLES
from fairlane.spark.tables.table import TableDefinition

__all__ = ["TABLES", "TableDefinition"]
