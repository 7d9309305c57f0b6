"""Fresh random seeds, for ``make test-long``: the fixed seeds of the gate only show that nothing known came back."""

from __future__ import annotations

import pytest

from tests.kit import simulate, simulate_cluster

pytestmark = pytest.mark.long
SLICES, CLUSTER_SLICES = 20, 5
"""Tests that share the seeds, because a slow machine takes longer for all of them than one test may."""


@pytest.mark.parametrize("_part", range(SLICES))
def test_every_promise_holds_on_random_seeds(capsys: pytest.CaptureFixture[str], _part: int) -> None:
    """With seeds that were never run before the auditor finds no violation; the seeds are printed."""
    with capsys.disabled():
        code = simulate.main(["--random", str(500 // SLICES)])
    assert code == 0


@pytest.mark.parametrize("_part", range(CLUSTER_SLICES))
def test_a_cluster_keeps_its_promises_on_random_seeds(capsys: pytest.CaptureFixture[str], _part: int) -> None:
    """With seeds that were never run before no cluster breaks a promise; the seeds are printed."""
    with capsys.disabled():
        code = simulate_cluster.main(["--random", str(100 // CLUSTER_SLICES)])
    assert code == 0
