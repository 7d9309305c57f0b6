"""The pipeline: from the journal to its tables, incrementally.

``run_pipeline`` updates tables, ``rebuild_tables`` computes days again, ``read_table`` reads one of them.
"""

from __future__ import annotations

from fairlane.spark.pipeline.live import LiveCluster, LiveJournal, live_source
from fairlane.spark.pipeline.manifest import Manifest, read_manifest
from fairlane.spark.pipeline.run import CONF, RunReport, rebuild_tables, run_pipeline
from fairlane.spark.pipeline.source import JournalFolder
from fairlane.spark.pipeline.table_files import read_table
from fairlane.spark.pipeline.verification import Mismatch, Verification, verify

__all__ = [
    "CONF",
    "JournalFolder",
    "LiveCluster",
    "LiveJournal",
    "Manifest",
    "Mismatch",
    "RunReport",
    "Verification",
    "live_source",
    "read_manifest",
    "read_table",
    "rebuild_tables",
    "run_pipeline",
    "verify",
]
