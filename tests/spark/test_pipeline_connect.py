"""The pipeline with Spark Connect: the same tables, from a session without a JVM in its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.client import Client
from fairlane.spark.pipeline import JournalFolder, run_pipeline
from tests.spark.queues import address, fill
from tests.spark.test_pipeline import a_story, contents, write_segment
from tests.system.server_process import ROOT, ServerProcess


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_pipeline_runs_with_spark_connect(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Runs, a continued run, a rebuild and verify give a Connect server the tables of a classic session; a stream is
    refused with what to do instead."""
    story = a_story()
    for folder in ("first", "all"):
        write_segment(tmp_path / "journal" / folder, story[:7])
    write_segment(tmp_path / "journal" / "all", story[7:])
    run_pipeline(spark, JournalFolder(tmp_path / "journal" / "all"), tmp_path / "classic")
    with Client(address(server)) as client:
        client.create_queue("orders")
        fill(client, 20)
        for message in client.lease("orders", 10):
            client.ack(message)
    told = drive(tmp_path / "journal", tmp_path / "remote", address(server), tmp_path / "live")
    assert contents(spark, tmp_path / "remote") == contents(spark, tmp_path / "classic")
    assert "reads 17\nrun 3\n" in told
    assert "the tables agree with the broker" in told
    assert "Leave out --stream" in told


def drive(*arguments: Path | str) -> str:
    """Run the driver against a Connect server of its own, and return what it printed."""
    command = [sys.executable, "-m", "tests.spark.connect_driver", *map(str, arguments)]
    # SPARK_TESTING is how Spark itself says that the server of this session has any free port.
    environ = {
        **os.environ,
        "SPARK_REMOTE": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_TESTING": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout
