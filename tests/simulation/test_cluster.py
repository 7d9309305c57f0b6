"""Several nodes in the simulation: real engines, fenced stores, and nodes that stop, die and lose connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.cluster import budgets
from fairlane.cluster.budgets import Step, owner_step
from fairlane.cluster.entries import Budget, Share
from tests.kit import simulate_cluster
from tests.kit.cluster import node as cluster_node
from tests.kit.cluster.node import OpenGroup, SimulatedNode, Steps
from tests.kit.cluster.simulation import ClusterSimulation
from tests.kit.cluster.store import SharedStore
from tests.kit.simulation.simulation import SimulationFailed

SEEDS = range(60)


@pytest.mark.parametrize("seed", [5, 10, 24, 33, 35, 48])
def test_nodes_keep_what_a_single_one_promises(seed: int) -> None:
    """Through pauses, deaths and lost connections nothing acked is lost, and everything is drained after healing."""
    summary = ClusterSimulation(seed).run()
    assert min(summary.enqueued, summary.deliveries, summary.acked, summary.refused, summary.openings) > 10
    assert sum(summary.troubles.values()) > 10


def test_a_seed_repeats_itself() -> None:
    """The same seed gives exactly the same run."""
    assert ClusterSimulation(33, steps=1_000).run() == ClusterSimulation(33, steps=1_000).run()


def test_the_command_tells_of_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a line per seed and a sum, and exits with 0 if no promise was broken."""
    assert simulate_cluster.main(["--seeds", "1-2", "--steps", "300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["seed=1", "seed=2", "2"]


class UnfencedStore(SharedStore):
    """A store that commits under any owner."""

    def sync(self) -> None:
        if self._is_open:
            self._epoch = self._log.epoch
        super().sync()


class HastyNode(SimulatedNode):
    """A node that answers before it commits."""

    def _serve(self, group: OpenGroup) -> Steps:
        while not group.is_closing and not group.engine.is_fenced:
            turn = group.engine.begin()
            yield
            group.engine.finish(turn)
            yield
            group.engine.write(turn)
            group.engine.sync()
            yield


def found(simulate: Callable[[int], ClusterSimulation], *, what: str = "") -> str:
    """Return the report of the first seed that finds a violation, or a certain one."""
    for seed in SEEDS:
        try:
            simulate(seed).run()
        except SimulationFailed as failure:
            report = str(failure).splitlines()[0]
            if what in report:
                return report
    raise AssertionError("no seed finds it")


class UnfencedSimulation(ClusterSimulation):
    store_type = UnfencedStore


def test_a_store_without_fences_is_found_out() -> None:
    """If a former owner can still commit, some seed finds it."""
    assert found(UnfencedSimulation, what="have both committed under epoch")


def test_an_answer_before_its_commit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a node answers before its commit is durable, the first message shows it."""
    monkeypatch.setattr("tests.kit.cluster.simulation.SimulatedNode", HastyNode)
    assert "not durable" in found(ClusterSimulation)


def test_a_node_that_is_never_in_doubt_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a node that lives relies on its memory after others saw its session end, some seed finds it."""
    monkeypatch.setattr(SimulatedNode, "is_in_doubt", lambda _self, _incarnation: False)
    assert found(lambda seed: ClusterSimulation(seed + 50), what="answers from memory")  # the first that does is 56


def test_a_share_that_is_given_back_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an owner returns a share before its engine stops using it, groups may exceed the total."""

    def hasty(budget: Budget | None, group: str, *, opening: int, applied: Share | None) -> Step:
        step = owner_step(budget, group, opening=opening, applied=applied)
        if budget is None or step.apply is None or budget.openings.get(group) != opening:
            return step
        granted = budget.granted.get(group, budgets.NOTHING)
        if granted == step.apply:
            return step
        return owner_step(budget, group, opening=opening, applied=step.apply)

    monkeypatch.setattr(cluster_node, "owner_step", hasty)
    assert "groups may use" in found(ClusterSimulation)
