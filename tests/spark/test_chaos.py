"""Drivers and workers that are killed: nothing is lost, nothing doubled. By hand it is run with many more kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.spark.chaos import rampage
from tests.spark.cluster import lose_a_worker
from tests.system.server_process import ServerProcess

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["journal", "queue", "sink", "pipeline"])
def test_a_killed_driver_loses_and_doubles_nothing(kind: str, server: ServerProcess, tmp_path: Path) -> None:
    """Two drivers are killed at random moments; the third finishes, and every row is there once."""
    chance = random.Random(7)
    outcome = rampage(kind, tmp_path, server, kills=2, chance=chance, rows=4_000)
    assert outcome.expected >= 4_000
    assert (outcome.lost, outcome.doubled, outcome.left_leased) == (0, 0, 0), str(outcome)


@pytest.mark.timeout(300)
def test_a_killed_worker_of_a_cluster_loses_and_doubles_nothing(server: ServerProcess, tmp_path: Path) -> None:
    """On a master and two workers, with speculation, one worker is killed mid-job: the answers are the same."""
    outcome = lose_a_worker("queue", tmp_path, server)
    assert outcome.expected > 0
    assert (outcome.lost, outcome.doubled, outcome.left_leased) == (0, 0, 0), str(outcome)
