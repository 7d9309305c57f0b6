"""Drivers and workers that are killed: nothing is lost, nothing doubled. By hand it is run with many more kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.spark.chaos import PACES, rampage
from tests.spark.cluster import lose_a_worker
from tests.system.server_process import ServerProcess

pytestmark = pytest.mark.long


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["journal", "queue", "sink", "relay", "pipeline"])
def test_a_killed_driver_loses_and_doubles_nothing(kind: str, server: ServerProcess, tmp_path: Path) -> None:
    """Two drivers are killed at random moments; the third finishes, and every row is there once."""
    check(kind, server, tmp_path, kills=2)


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kind", ["journal", "queue", "sink", "relay", "pipeline"])
def test_twenty_killed_drivers_lose_and_double_nothing(kind: str, server: ServerProcess, tmp_path: Path) -> None:
    """Twenty drivers are killed while they run; the next one finishes, and every row is there once."""
    check(kind, server, tmp_path, kills=20)


def check(kind: str, server: ServerProcess, folder: Path, *, kills: int) -> None:
    """Check that every one of the kills met a running driver, and that no row is lost or doubled."""
    outcome = rampage(kind, folder, server, kills=kills, chance=random.Random(7))
    assert outcome.kills == kills
    assert outcome.expected >= kills * PACES[kind].rows
    assert (outcome.lost, outcome.doubled, outcome.left_leased) == (0, 0, 0), str(outcome)


@pytest.mark.timeout(300)
def test_a_killed_worker_of_a_cluster_loses_and_doubles_nothing(server: ServerProcess, tmp_path: Path) -> None:
    """On a master and two workers, with speculation, one worker is killed mid-job: the answers are the same."""
    outcome = lose_a_worker("queue", tmp_path, server)
    assert outcome.expected > 0
    assert (outcome.lost, outcome.doubled, outcome.left_leased) == (0, 0, 0), str(outcome)
