"""Run the simulation of several nodes: ``python -m tests.kit.simulate_cluster --seed 7``.

Each seed prints one line. A broken promise prints the seed, the step and the trace, and the exit code is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.kit.cluster.simulation import STEPS, ClusterSimulation, ClusterSummary
from tests.kit.replay import asked_for, replay


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested seeds and return the exit code."""
    asked = asked_for(arguments, program="tests.kit.simulate_cluster", told=__doc__, steps=STEPS)
    return replay(asked, lambda seed, steps: ClusterSimulation(seed, steps=steps), _line)


def _line(summary: ClusterSummary) -> str:
    troubles = ",".join(f"{name[1:]}:{count}" for name, count in sorted(summary.troubles.items())) or "none"
    return (
        f"seed={summary.seed} enqueued={summary.enqueued} deliveries={summary.deliveries} acked={summary.acked} "
        f"refused={summary.refused} lost_answers={summary.lost_answers} openings={summary.openings} "
        f"fenced={summary.fenced} moves={summary.moves} troubles={troubles}"
    )


if __name__ == "__main__":
    sys.exit(main())
