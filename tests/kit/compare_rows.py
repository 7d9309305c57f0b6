"""Run each seed of the simulation three times: ``python -m tests.kit.compare_rows --seeds 1-2000``.

Once all plain messages that wait are rows, once those beyond a number, and once every message is an object. Decisions,
answers and everything durable must be the same, byte by byte. Each seed prints one line; the exit code is 1 if one
differs or breaks a promise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.kit.replay import asked_for, replay
from tests.kit.simulation.simulation import STEPS, Simulation, SimulationFailed, Summary


class Comparison:
    """One seed in every representation."""

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        self._runs = [Simulation(seed, steps=steps, rows_from=rows_from) for rows_from in (0, 30, None)]

    def run(self) -> Summary:
        """Run all, and return their summary. Raises SimulationFailed if one breaks a promise or they differ."""
        rows, some, objects = [run.run() for run in self._runs]
        if not rows == some == objects:
            raise SimulationFailed(f"seed {rows.seed} differs\n  {rows}\n  {some}\n  {objects}")
        return rows

    def trace(self) -> str:
        """Return the trace of the run with rows."""
        return self._runs[0].trace()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the requested seeds and return the exit code."""
    asked = asked_for(arguments, program="tests.kit.compare_rows", told=__doc__, steps=STEPS)
    return replay(asked, lambda seed, steps: Comparison(seed, steps=steps), lambda summary: f"seed={summary.seed} same")


if __name__ == "__main__":
    sys.exit(main())
