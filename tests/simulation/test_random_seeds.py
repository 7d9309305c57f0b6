"""Fresh random seeds, for ``make test-long``: the fixed seeds of the gate only show that nothing known came back."""

from __future__ import annotations

import pytest

from tests.kit import simulate, simulate_cluster

pytestmark = pytest.mark.long


def test_every_promise_holds_on_random_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """With seeds that were never run before the auditor finds no violation; a failure prints its seed."""
    code = simulate.main(["--random", "500"])
    assert code == 0, capsys.readouterr().out


def test_a_cluster_keeps_its_promises_on_random_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """With seeds that were never run before no cluster breaks a promise; a failure prints its seed."""
    code = simulate_cluster.main(["--random", "100"])
    assert code == 0, capsys.readouterr().out
