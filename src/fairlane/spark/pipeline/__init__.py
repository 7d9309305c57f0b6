"""The pipeline: from the journal to its tables, incrementally.

``run_pipeline`` updates a folder of tables, ``read_table`` reads one of them.
"""

from __future__ import annotations

from fairlane.spark.pipeline.folder import read_table
from fairlane.spark.pipeline.live import LiveCluster, LiveJournal, live_source
from fairlane.spark.pipeline.manifest import Manifest, read_manifest
from fairlane.spark.pipeline.run import CONF, RunReport, run_pipeline
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
    "run_pipeline",
]
