"""A driver to be killed: runs the pipeline once, and kills itself, its JVM and its workers at a step.

``python -m tests.spark.lake_driver JOURNAL TABLES [STEP]``: what the run reports is a step, and so is each write or
deletion of an object, a file, a Delta log or a catalog entry by the driver. An odd STEP is before it, an even one
after it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import obstore
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from fairlane.spark import spark_session
from fairlane.spark.pipeline import JournalFolder, run_pipeline

PLACES = (
    *((obstore, "put"), (obstore, "delete"), (Path, "replace"), (Path, "unlink")),
    *((DeltaTable, "create_write_transaction"), (SqlCatalog, "commit_table")),
)


class Steps:
    """Counts steps, and ends the process group at one of them."""

    def __init__(self, fatal: int | None) -> None:
        self._fatal = fatal
        self.taken = 0

    def fatal(self, do: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is a step."""

        def called(*args: Any, **kwargs: Any) -> Any:
            self._count()
            result = do(*args, **kwargs)
            self._count()
            return result

        return called

    def _count(self) -> None:
        self.taken += 1
        if self.taken == self._fatal:
            os.killpg(os.getpgid(0), signal.SIGKILL)


def main(journal: str, tables: str, fatal: int | None) -> None:
    """Update the tables."""
    conf = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    spark = spark_session("lake", master="local[2,4]", conf=conf)
    steps = Steps(fatal)
    for where, name in PLACES:
        mock.patch.object(where, name, steps.fatal(getattr(where, name))).start()
    report = run_pipeline(spark, JournalFolder(Path(journal)), tables, tell=steps.fatal(lambda _line: None))
    print(f"{report.run} {steps.taken}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
