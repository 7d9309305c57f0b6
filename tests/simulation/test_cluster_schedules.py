"""Schedules in a simulated cluster: nodes die, stop, are fenced and take over from each other."""

from __future__ import annotations

import pytest

from tests.kit.cluster.schedules import ScheduleClusterSimulation
from tests.kit.cluster.store import SharedStore
from tests.kit.simulation.simulation import SimulationFailed


@pytest.mark.parametrize("seed", [1, 3, 6, 7, 9, 11])
def test_every_tick_fires_once_across_takeovers(seed: int) -> None:
    """Each tick of each queue's schedule fires exactly once, although several owners fire the ticks of one schedule."""
    simulation = ScheduleClusterSimulation(seed)
    summary = simulation.run()
    assert simulation.fired == simulation.expected()
    assert simulation.fired.total() > 50
    assert max(len(openings) for openings in simulation.owners.values()) > 2
    assert sum(summary.troubles.values()) > 5


class UnfencedStore(SharedStore):
    """A store that commits under any owner."""

    def sync(self) -> None:
        if self._is_open:
            self._epoch = self._log.epoch
        super().sync()


class UnfencedSchedules(ScheduleClusterSimulation):
    store_type = UnfencedStore


def breaks(seed: int) -> bool:
    """Return whether a run without fences breaks a promise."""
    try:
        UnfencedSchedules(seed).run()
    except SimulationFailed:
        return True
    return False


def test_owners_that_are_not_fenced_are_found_out() -> None:
    """If a former owner can still commit, the simulation with schedules finds it under some seed."""
    assert any(breaks(seed) for seed in range(60))
