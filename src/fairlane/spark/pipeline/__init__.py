"""The pipeline: from the journal to its tables, incrementally.

``run_pipeline`` updates a folder of tables, ``rebuild_tables`` computes days again, ``read_table`` reads a table.
"""

from __future__ import annotations

from fairlane.spark.pipeline.folder import read_table
from fairlane.spark.pipeline.live import LiveCluster, LiveJournal, live_source
from fairlane.spark.pipeline.manifest import Manifest, read_manifest
from fairlane.spark.pipeline.run import CONF, RunReport, rebuild_tables, run_pipeline
from fairlane.spark.pipeline.source import JournalFolder

__all__ = [
    "CONF",
    "JournalFolder",
    "LiveCluster",
    "LiveJournal",
    "Manifest",
    "RunReport",
    "live_source",
    "read_manifest",
    "read_table",
    "rebuild_tables",
    "run_pipeline",
]
