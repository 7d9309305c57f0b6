"""What-if with Spark Connect, in a process of its own: a process has either a classic session or a remote one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from fairlane.spark.whatif.capacity import find_capacity
from fairlane.spark.whatif.comparison import Journal, compare
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import sweep
from fairlane.spark.whatif.targets import target_of

loopback = {"spark.connect.grpc.binding.address": "127.0.0.1"}
spark = SparkSession.builder.remote("local[2]").config(map=loopback).getOrCreate()
journal = Journal(sys.argv[1])
scenarios = sweep(Scenario(name=ORIGINAL), ["weight:acme=2,5", "consumers=3,5"], journal.queues, journal.policies)
done = []
found = compare(journal, scenarios, spark=spark, progress=lambda *counts: done.append(counts))
assert found == compare(journal, scenarios)
assert done[0] == (0, 5) and done[-1] == (5, 5), done
target = [target_of("wait_p99:*<=1s")]
assert find_capacity(journal, target, spark=spark).consumers == find_capacity(journal, target).consumers
print("same")
"""


@pytest.mark.long
def test_scenarios_run_without_a_spark_context(tmp_path: Path) -> None:
    """A remote session has no context, and gives the same numbers as this process, with progress."""
    make_journal(tmp_path, Traffic(messages=600, span_ms=10_000, tenants=4, consumers=3, load=0.9))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    # SPARK_TESTING is how Spark itself says that the server of this session has any free port.
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.stdout.strip().endswith("same"), done.stderr[-2_000:]
