"""Work on Spark that is interrupted ends quietly: jobs are cancelled, and tables are as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from fairlane.spark.interrupts import interruptible
from tests.kit.java import lean_environment
from tests.kit.waiting import PATIENCE_S
from tests.spark.journals import make_journal
from tests.spark.queues import until
from tests.system.server_process import ROOT

INTERRUPTED = 130


@pytest.fixture
def loud(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that speaks again afterwards."""
    yield spark
    spark.sparkContext.setLogLevel("ERROR")


def endless(spark: SparkSession) -> DataFrame:
    """Return a frame that no test can wait for."""
    return spark.range(1 << 60).where("id % 1000003 = 1000003")


def test_what_work_returns_or_raises_is_passed_on(spark: SparkSession) -> None:
    """Work in its own thread has the session, and its answer or error comes as if it had been called."""
    assert interruptible(spark, lambda: spark.range(5).count()) == 5
    with pytest.raises(ValueError, match="no"):
        interruptible(spark, lambda: int("no"))


def test_an_interrupt_cancels_the_jobs_and_lets_work_tidy_up(loud: SparkSession) -> None:
    """The work that an interrupt ends can still ask Spark for something before it is gone, and no job is left."""
    tracker, tidied = loud.sparkContext.statusTracker(), []

    def work() -> int:
        try:
            return endless(loud).count()
        finally:
            tidied.append(loud.range(3).schema.names)

    def interrupt() -> None:
        until(lambda: bool(tracker.getActiveJobsIds()))
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(loud, work)
    assert tidied == [["id"]]
    assert signal.getsignal(signal.SIGINT) is before
    until(lambda: not tracker.getActiveJobsIds())
    assert loud.range(4).count() == 4


@pytest.mark.long
def test_an_interrupted_pipeline_says_nothing_more(tmp_path: Path) -> None:
    """In the middle of its jobs, an interrupt as from a terminal ends the command at once, without a traceback."""
    make_journal(tmp_path / "data", messages=400, exports=tmp_path / "exports")
    command = [sys.executable, "-m", "fairlane", "pipeline", "run", "--once", "--master", "local[2]"]
    command += ["--journal", str(tmp_path / "exports"), "--tables", str(tmp_path / "tables")]
    process = subprocess.Popen(
        command, cwd=ROOT, env=lean_environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert any(line.startswith("run 1: messages") for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts the workers and Java as well
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == INTERRUPTED
    assert [line for line in said.splitlines() if line and not line.startswith("run 1: ")] == []
    assert not (tmp_path / "tables" / "manifest.json").exists()
