"""The whole broker under random workloads, faults, crashes and jumping clocks, checked by an independent auditor."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kit.simulate import main
from tests.kit.simulation.fairness import FairnessSimulation
from tests.kit.simulation.simulation import Simulation
from tests.simulation.test_known_seeds import KNOWN

SEEDS = sorted(set(range(1, 51)) - KNOWN)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_and_everything_drains(seed: int) -> None:
    """With this seed the auditor finds no violation, and after healing no message is left."""
    summary = Simulation(seed).run()
    assert summary.deliveries > 0


def test_the_seeds_reach_what_they_are_meant_to_reach() -> None:
    """Over a few seeds every kind of fault and crash happens, the journal is trimmed, and batches are staged and
    claimed."""
    summaries = [Simulation(seed).run() for seed in range(101, 119)]
    struck = {fault for summary in summaries for fault in summary.faults}
    died = {point for summary in summaries for point in summary.crashes}
    assert struck == {"before_write", "after_write", "full", "sync", "read", "recover"}
    assert died == {"before_write", "before_sync", "after_sync", "while_answering", "in_recovery"}
    damaged = {outcome for summary in summaries for outcome in summary.damaged}
    refused = {"flipped_page:refused", "missing_page:refused"}
    assert damaged >= refused | {"flipped_body:opened", "missing_body:opened", "lost_end:opened"}
    assert sum(summary.carried for summary in summaries) > 50
    assert sum(summary.claims for summary in summaries) > 50
    assert sum(summary.published for summary in summaries) > 50
    assert sum(summary.trimmed > 1 for summary in summaries) > 5


@pytest.mark.parametrize("seed", range(1, 21))
def test_shares_stay_within_their_bound(seed: int) -> None:
    """Keys that always have work stay within the bound of deficit round robin, at every level."""
    assert FairnessSimulation(seed).run() > 0


def test_a_seed_replays_exactly_in_another_process() -> None:
    """The durable data is the same, byte by byte, under any hash seed of the process."""
    digests = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.kit.simulate", "--seeds", "7-12"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.append([line.partition(" seconds=")[0] for line in done.stdout.splitlines()])
    assert digests[0] == digests[1]
    assert len(digests[0]) == 7


def test_the_command_tells_a_line_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a line of counts per seed, and exits with 0."""
    assert main(["--seeds", "1-2", "--steps", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["seed=1", "seed=2", "2"]
    assert "crashes=" in lines[0]


def test_the_command_prints_random_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """With --random it runs that many seeds of its own choice, and prints each so that it can be run again."""
    assert main(["--random", "2", "--steps", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    seeds = [line.partition(" ")[0].removeprefix("seed=") for line in lines[:2]]
    assert seeds[0] != seeds[1]
    assert main(["--seed", seeds[0], "--steps", "20"]) == 0
    again = capsys.readouterr().out.splitlines()
    assert again[0].partition(" seconds=")[0] == lines[0].partition(" seconds=")[0]


def test_the_command_shows_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """With --verbose it also prints the trace."""
    assert main(["--seed", "3", "--steps", "20", "--verbose"]) == 0
    assert "lease 100 of" in capsys.readouterr().out
