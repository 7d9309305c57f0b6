"""Run the simulation of the broker: ``python -m tests.kit.simulate --seed 7``.

Each seed prints one line. A broken promise prints the seed, the step and the trace, and the exit code is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.kit.replay import asked_for, replay
from tests.kit.simulation.simulation import STEPS, Simulation, Summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested seeds and return the exit code."""
    asked = asked_for(arguments, program="tests.kit.simulate", told=__doc__, steps=STEPS)
    return replay(asked, lambda seed, steps: Simulation(seed, steps=steps), _line)


def _line(summary: Summary) -> str:
    crashes = sum(summary.crashes.values())
    faults = ",".join(f"{kind}:{count}" for kind, count in sorted(summary.faults.items())) or "none"
    return (
        f"seed={summary.seed} operations={summary.operations} answered={summary.answered} crashes={crashes} "
        f"faults={faults} deliveries={summary.deliveries} events={summary.events} "
        f"claims={summary.claims} published={summary.published} carried={summary.carried} "
        f"trimmed={summary.trimmed} ticks={summary.ticks} digest={summary.digest}"
    )


if __name__ == "__main__":
    sys.exit(main())
